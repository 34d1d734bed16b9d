package folder

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/millrace-ml/millrace/internal/document"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/report"
	"github.com/millrace-ml/millrace/report/metrics"
	"github.com/millrace-ml/millrace/trace"
)

// Run is a training as read from its folder.
type Run struct {
	Dir   string
	Parts []Part // in order; the last part has the folder's own files
	// Steps and Evaluated are the lines of metrics.jsonl, of all parts.
	Steps     []metrics.StepValues
	Evaluated []metrics.EvaluationValues
	// Begins are the times of all starts in events.jsonl. A start that did no step is not a part, but its time is
	// included.
	Begins []time.Time
}

// Part holds the files that one start of the training wrote. The field of a missing file is nil.
type Part struct {
	Dir        string
	First      int        // first step of the part
	End        int        // first step of the next part; -1 for the last part
	Start      *Start     // nil in a folder of an older millrace
	Plan       *plan.Plan // nil only if the part was killed at its start
	LayerNames []string   // names of the model's layers, in order
	LayerS     []float64  // seconds of a micro-batch in each layer, on the profile's first device type; nil: not known
	Simulated  *trace.Timeline
	Measured   *trace.Timeline // the Timeline without the steps from End on; nil if the part was killed or still runs
}

// Read reads a run's folder. Only its plan must exist.
func Read(dir string) (*Run, error) {
	r, err := ReadParts(dir)
	if err == nil {
		r.Steps, r.Evaluated, err = readMetrics(filepath.Join(dir, MetricsName))
	}
	if err == nil {
		r.Begins, err = readBegins(filepath.Join(dir, EventsName))
	}
	return r, err
}

// Cause reads from a run's error.json why its last start failed. It returns "" if there is no such file.
func Cause(dir string) (string, error) {
	text, err := document.Read(filepath.Join(dir, ErrorName), document.MaxBytes)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return "", err
	}
	var e struct {
		Cause string `json:"cause"`
	}
	if err := json.Unmarshal(text, &e); err != nil {
		return "", fmt.Errorf("%s: %w", filepath.Join(dir, ErrorName), err)
	}
	return e.Cause, nil
}

// runsIn returns the end of an error about a folder that is not a run's: which folder to give instead. It names the
// subfolders that are folders of runs, unless there are none or more than mostRuns.
func runsIn(dir string) string {
	plans, _ := filepath.Glob(filepath.Join(dir, "*", PlanName)) // an invalid pattern finds nothing
	var runs []string
	for _, p := range plans {
		runs = append(runs, filepath.Dir(p))
	}
	if n := len(runs); n == 0 || n > mostRuns {
		return "what train --out named"
	}
	return strings.Join(runs, " or ")
}

// mostRuns is the maximal number of folders that runsIn names.
const mostRuns = 4

// ReadParts reads the parts of a run. Unlike Read, it reads neither metrics.jsonl, which has a line for each step, nor
// events.jsonl.
func ReadParts(dir string) (*Run, error) {
	if _, err := os.Stat(filepath.Join(dir, PlanName)); err != nil {
		return nil, fmt.Errorf("%s is no folder of a run: %w; give %s", dir, err, runsIn(dir))
	}
	r := &Run{Dir: dir}
	earlier, err := kept(filepath.Join(dir, PartsName))
	if err != nil {
		return nil, err
	}
	began, _, err := beginning(dir)
	if err != nil {
		return nil, err
	}
	for _, n := range earlier {
		if n >= began {
			continue // an interrupted Keep left files here, of the present part or of one that is no longer valid
		}
		r.Parts = append(r.Parts, Part{Dir: filepath.Join(dir, PartsName, nameOf(n)), First: n})
	}
	r.Parts = append(r.Parts, Part{Dir: dir, First: began})
	for i := range r.Parts {
		p := &r.Parts[i]
		if p.End = -1; i+1 < len(r.Parts) {
			p.End = r.Parts[i+1].First
		}
		if err := p.read(); err != nil {
			return nil, err
		}
	}
	return r, nil
}

func (p *Part) read() error {
	var prof *profile.Profile
	err := errors.Join(file(&p.Start, p.Dir, StartName, starts.Read), file(&p.Plan, p.Dir, PlanName, plan.Read),
		file(&prof, p.Dir, ProfileName, profile.Read), file(&p.Simulated, p.Dir, PredictedName, trace.ReadFile),
		file(&p.Measured, p.Dir, TimelineName, trace.ReadFile))
	if err != nil {
		return err
	}
	if prof != nil {
		for _, l := range prof.Layers {
			p.LayerNames = append(p.LayerNames, l.Name)
		}
		if p.Plan != nil {
			p.LayerS = LayerTimes(prof, p.Plan.MicroBatch)
		}
	}
	if prof != nil && p.Plan != nil {
		if err := p.Plan.Fits(prof.Model, prof.ModelID, len(prof.Layers)); err != nil {
			return fmt.Errorf("%w (in %s)", err, filepath.Join(p.Dir, PlanName))
		}
	}
	if p.Measured != nil && p.End >= 0 {
		p.Measured = upTo(p.Measured, p.End)
	}
	return nil
}

// LayerTimes returns the time of a micro-batch in each layer, forward and backward, in seconds, on a profile's first
// device type. It returns nil if the profile has no costs for this size.
func LayerTimes(p *profile.Profile, size int) []float64 {
	types := p.DeviceTypes()
	if len(types) == 0 {
		return nil
	}
	costs, _, err := p.At(types[0], size)
	if err != nil {
		return nil
	}
	var all []float64
	for _, c := range costs {
		all = append(all, c.ForwardS+c.BackwardS)
	}
	return all
}

// file reads a file into *into, unless the file is missing.
func file[T any](into **T, dir, name string, read func(string) (*T, error)) error {
	path := filepath.Join(dir, name)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	v, err := read(path)
	*into = v
	return err
}

// upTo returns a Timeline without its values for steps from `end` on. All events stay, because they cover few steps.
func upTo(t *trace.Timeline, end int) *trace.Timeline {
	out := *t
	out.Steps = slices.DeleteFunc(slices.Clone(t.Steps), func(s trace.StepMark) bool { return s.Step >= end })
	out.Computed = slices.DeleteFunc(slices.Clone(t.Computed), func(c trace.Computed) bool { return c.Step >= end })
	out.Losses = slices.DeleteFunc(slices.Clone(t.Losses), func(l trace.Loss) bool { return l.Step >= end })
	out.Applied = slices.DeleteFunc(slices.Clone(t.Applied), func(a trace.Applied) bool { return a.Step >= end })
	out.Seen = slices.DeleteFunc(slices.Clone(t.Seen), func(s trace.Seen) bool { return s.Step >= end })
	out.Evaluations = slices.DeleteFunc(slices.Clone(t.Evaluations),
		func(e trace.Evaluation) bool { return e.Step >= end })
	return &out
}

// beginning returns the first step of the part in dir, and whether there is a part. In a folder of an older millrace
// the Timeline says which step is the first. A part without a Timeline, which was killed, is assumed to begin with step
// 0.
func beginning(dir string) (first int, there bool, err error) {
	var s *Start
	if err := file(&s, dir, StartName, starts.Read); err != nil || s != nil {
		if err != nil {
			return 0, false, err
		}
		return s.Done, true, nil
	}
	for _, name := range Files {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			there = true
		}
	}
	if t, err := trace.ReadFile(filepath.Join(dir, TimelineName)); err == nil && len(t.Steps) > 0 {
		first = t.Steps[0].Step
	}
	return first, there, nil
}

// Shown returns the part whose step a report draws. It is the last part that has a plan, a Timeline and steps. If there
// is no such part, it is the last part.
func (r *Run) Shown() *Part {
	for i := len(r.Parts) - 1; i >= 0; i-- {
		if p := &r.Parts[i]; p.Plan != nil && p.Measured != nil && len(p.Measured.Steps) > 0 {
			return p
		}
	}
	return &r.Parts[len(r.Parts)-1]
}

// Inputs returns what a report of the run shows, except Facts and Lags. The drawn step is from the part that Shown
// returns; losses and evaluations are from all parts.
func (r *Run) Inputs() report.Inputs {
	p := r.Shown()
	in := report.Inputs{Title: r.Dir, Plan: p.Plan, LayerNames: p.LayerNames, Simulated: p.Simulated,
		Measured: p.Measured, Losses: r.Losses(), Evaluations: r.Evaluations(), LayerS: p.LayerS}
	for _, s := range r.Steps {
		in.Took = append(in.Took, report.StepTook{Step: trace.StepIndex(s.Step), S: s.StepS, BusyS: s.BusyS,
			PeakBytes: s.PeakBytes})
	}
	for _, later := range r.Parts[1:] {
		in.Resumed = append(in.Resumed, later.First)
	}
	if p.Measured == nil && p.Start != nil {
		in.Unmeasured = fmt.Sprintf("The measured step is missing: there is no %s, which a run writes when it ends. This "+
			"one still goes on, or was killed.", TimelineName)
	}
	return in
}

// Losses returns the loss of every step of the training, in order.
func (r *Run) Losses() []trace.Loss {
	all := map[int]trace.Loss{}
	for _, s := range r.Steps {
		l := trace.Loss{Step: trace.StepIndex(s.Step), Value: s.Loss}
		all[l.Step] = l
	}
	for _, p := range r.Parts {
		if p.Measured != nil {
			for _, l := range p.Measured.Losses {
				all[l.Step] = l
			}
		}
	}
	return slices.Collect(inOrder(all))
}

// Order records what depends on timing in a training. If a single worker holds the weights, Applied lists the updates
// in their order. If a reference is beside pipelines, Seen says which version of the reference each update of a
// pipeline used.
type Order struct {
	Applied []trace.Applied
	Seen    []trace.Seen
}

// Order returns the order of updates. It returns an error if a part has no Timeline, because it was killed or still
// runs, or if the training has no such order.
func (r *Run) Order() (all Order, err error) {
	for _, p := range r.Parts {
		if p.Measured == nil {
			return Order{}, fmt.Errorf("%s does not say in which order its updates were made from step %d on: it was killed",
				p.Dir, trace.StepNumber(p.First))
		}
		all.Applied, all.Seen = append(all.Applied, p.Measured.Applied...), append(all.Seen, p.Measured.Seen...)
	}
	if all.Applied == nil && all.Seen == nil {
		return all, fmt.Errorf("%s has no order of updates: it is of schedule %s; an order there is of asp, and of elastic "+
			"with --reference beside", r.Dir, r.Shown().Plan.Schedule)
	}
	return all, nil
}

// Evaluations returns every evaluation of the training, in order.
func (r *Run) Evaluations() []trace.Evaluation {
	all := map[int]trace.Evaluation{}
	for _, e := range r.Evaluated {
		at := trace.StepIndex(e.Step)
		all[at] = trace.Evaluation{Step: at, Loss: e.Loss, Correct: e.Correct, Samples: e.Samples, Reported: e.Reported,
			Apart: e.Apart}
	}
	for _, p := range r.Parts {
		if p.Measured != nil {
			for _, e := range p.Measured.Evaluations {
				all[e.Step] = e
			}
		}
	}
	return slices.Collect(inOrder(all))
}

// inOrder yields the values of a map by ascending key.
func inOrder[T any](all map[int]T) func(yield func(T) bool) {
	return func(yield func(T) bool) {
		for _, step := range slices.Sorted(maps.Keys(all)) {
			if !yield(all[step]) {
				return
			}
		}
	}
}

// longestLine is the maximal length of a line of metrics, enough for a step with some 100,000 workers.
const longestLine = 1 << 24

// readBegins returns the times of the starts in a file of events. It skips lines that are damaged.
func readBegins(path string) (begins []time.Time, err error) {
	err = eachLine(path, func(line []byte) {
		var e metrics.Event
		if json.Unmarshal(line, &e) == nil && e.Kind == metrics.Begun {
			begins = append(begins, e.Time)
		}
	})
	return begins, err
}

// readMetrics reads a file of metrics. It skips lines that do not have the form of a run's lines, and an incomplete
// last line.
func readMetrics(path string) (steps []metrics.StepValues, evaluated []metrics.EvaluationValues, err error) {
	err = eachLine(path, func(line []byte) {
		var which struct {
			Step       *int     `json:"step"`
			Evaluation *float64 `json:"evaluation_loss"`
		}
		if json.Unmarshal(line, &which) != nil || which.Step == nil || *which.Step < 1 {
			return
		}
		if which.Evaluation == nil {
			var s metrics.StepValues
			if json.Unmarshal(line, &s) == nil {
				steps = append(steps, s)
			}
			return
		}
		var e metrics.EvaluationValues
		if json.Unmarshal(line, &e) == nil {
			evaluated = append(evaluated, e)
		}
	})
	return steps, evaluated, err
}

// eachLine calls f for every line of a file. A file that does not exist has no lines.
func eachLine(path string, f func(line []byte)) error {
	from, err := document.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("folder: %w", err)
	}
	defer from.Close()
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, longestLine)
	read := 0
	for ; lines.Scan(); read++ {
		f(lines.Bytes())
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("folder: %s, behind %d lines: %w", path, read, err)
	}
	return nil
}
