package reporting

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/report"
	"github.com/millrace-ml/millrace/report/folder"
	"github.com/millrace-ml/millrace/trace"
)

// facts lists the settings of a run, where and when it ran, and what it resumed from.
func facts(r *folder.Run, evaluations []trace.Evaluation) []report.Fact {
	p := r.Shown()
	var all []report.Fact
	add := func(name, value string) {
		if value != "" {
			all = append(all, report.Fact{Name: name, Value: value})
		}
	}
	j := job.Default()
	if errors.Join(j.Read(filepath.Join(p.Dir, folder.JobName)), j.Complete()) == nil {
		add("model", j.Model.Name+settings(&j))
		add("data", j.Data.Source)
		add("plan", planned(p.Plan, &j))
		pipelines := 1
		if p.Plan != nil {
			pipelines = p.Plan.Together()
		}
		add("optimizer", j.Train.Learned(pipelines))
		add("seed", fmt.Sprint(j.Data.Seed))
		add("threads per worker", fmt.Sprint(j.Machine.ThreadsPerWorker))
	} else {
		add("plan", planned(p.Plan, &j))
	}
	if n := len(r.Steps); n > 0 && r.Steps[n-1].Step < j.Train.Steps {
		add("steps done", fmt.Sprintf("%s of %s", terminal.Whole(r.Steps[n-1].Step), terminal.Whole(j.Train.Steps)))
	}
	if cause, err := folder.Cause(r.Dir); err == nil {
		add("failed", cause)
	}
	began, took := lasted(r)
	if !began.IsZero() {
		add("began", began.Local().Format("2006-01-02 15:04:05 MST"))
	}
	if took > 0 {
		text := terminal.Duration(took.Seconds())
		if n := len(r.Parts); n > 1 {
			text += " in " + terminal.Count(n, "part")
		}
		add("took", text)
	}
	var from []string
	for _, part := range r.Parts {
		if s := part.Start; s != nil && s.From != "" {
			from = append(from, fmt.Sprintf("%s at %s", s.From, s.Began.Local().Format("15:04:05")))
		}
	}
	add("resumed from", strings.Join(from, ", "))
	if s := p.Start; s != nil {
		add("engine", s.Engine)
		add(terminal.Plural(len(s.Hosts), "host"), strings.Join(s.Hosts, "; "))
	}
	if order, err := r.Order(); err == nil { // otherwise the updates do not depend on which worker was first
		all = append(all, staleness(order)...)
	}
	all = append(all, rounded(p.Measured)...)
	return append(all, averaging(p.Plan, evaluations)...)
}

// rounded says how much rounding changed the values that stages sent in fewer bits.
func rounded(t *trace.Timeline) (all []report.Fact) {
	if t == nil {
		return nil
	}
	worst := map[string]trace.Rounded{}
	for _, r := range t.Rounded {
		w := worst[r.Kind]
		worst[r.Kind] = trace.Rounded{Format: r.Format, Absolute: max(w.Absolute, r.Absolute),
			Relative: max(w.Relative, r.Relative), Beyond: w.Beyond + r.Beyond}
	}
	for _, kind := range []struct{ name, what string }{{"SF", "activations"}, {"SB", "gradients"}} {
		r, sent := worst[kind.name]
		if !sent {
			continue
		}
		text := fmt.Sprintf("sent in %s: off by %.2g at most, and by %.2g of the largest number of a sample", r.Format,
			r.Absolute, r.Relative)
		if r.Beyond > 0 {
			text += fmt.Sprintf("; %s beyond the format became its largest", terminal.Count(int(r.Beyond), "number"))
		}
		all = append(all, report.Fact{Name: kind.what, Value: text})
	}
	return all
}

// settings returns the settings of a model in brackets.
func settings(j *job.Job) string {
	if len(j.Model.Settings) == 0 {
		return ""
	}
	return " (" + j.Model.SettingsText() + ")"
}

// planned describes a plan in a few words, with its origin.
func planned(p *plan.Plan, j *job.Job) string {
	if p == nil {
		return ""
	}
	text := fmt.Sprintf("%s on %s, %s a step", p.Schedule, terminal.Count(len(p.Devices()), "worker"),
		terminal.Count(p.StepSamples(), "sample"))
	switch {
	case j.Plan.File != "":
		text += "; from " + j.Plan.File
	case j.Plan.Program != "":
		text += "; in the order of " + j.Plan.Program
	}
	return text
}

// lasted returns when a training began and how long it ran in all. Each start counts from its beginning to its last
// record before the next start. Pauses between starts do not count.
func lasted(r *folder.Run) (began time.Time, took time.Duration) {
	begins := slices.Clone(r.Begins)
	for _, p := range r.Parts {
		if p.Start != nil { // it may be of an older millrace, which wrote no events
			begins = append(begins, p.Start.Began)
		}
	}
	slices.SortFunc(begins, time.Time.Compare)
	begins = slices.CompactFunc(begins, time.Time.Equal)
	if len(begins) == 0 {
		return began, 0
	}
	ends := slices.Clone(begins)
	note := func(at time.Time) {
		part := len(begins) - 1
		for part > 0 && at.Before(begins[part]) {
			part--
		}
		if at.After(ends[part]) {
			ends[part] = at
		}
	}
	for _, s := range r.Steps {
		note(s.Time)
	}
	for _, e := range r.Evaluated {
		note(e.Time)
	}
	for part, end := range ends {
		took += end.Sub(begins[part])
	}
	return begins[0], took
}

// staleness returns how many updates old the weights were with which gradients were computed. If a thread beside each
// worker updates the reference, it returns instead how many steps old the reference was when pipelines used it.
func staleness(of folder.Order) []report.Fact {
	if of.Applied != nil {
		median, most := trace.Staleness(of.Applied)
		return []report.Fact{{Name: "staleness",
			Value: fmt.Sprintf("%g of the others' updates between weights and update, %d at most", median, most)}}
	}
	median, most := trace.Behind(of.Seen)
	return []report.Fact{{Name: "reference beside",
		Value: fmt.Sprintf("%g steps behind as pipelines saw it, %d at most", median, most)}}
}

// averaging says how many pipelines are averaged, and the largest distance between the reference and their average.
func averaging(p *plan.Plan, evaluations []trace.Evaluation) []report.Fact {
	if p == nil || p.Together() == 1 {
		return nil
	}
	e := p.Elastic
	all := []report.Fact{{Name: "pipelines", Value: fmt.Sprintf("%d side by side, alpha %.3g, %s", e.Pipelines,
		e.Alpha, e.Order)}}
	worst, n := 0.0, 0
	for _, e := range evaluations {
		if e.Apart != nil {
			worst, n = max(worst, *e.Apart), n+1
		}
	}
	if n > 0 {
		all = append(all, report.Fact{Name: "reference", Value: fmt.Sprintf("within %.1e of the pipelines' average at %s",
			worst, terminal.Count(n, "evaluation"))})
	}
	return all
}
