package training

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/data"
	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/report/folder"
	"github.com/millrace-ml/millrace/run/checkpoint"
	"github.com/millrace-ml/millrace/schedule/family"
)

// explain says what the run resumes from, and with which settings.
func (r *resumption) explain(j *job.Job) string {
	if r == nil {
		return ""
	}
	if r.anew {
		return fmt.Sprintf("%s has no checkpoint yet: training begins with step 1\n", checkpoints(j))
	}
	text := "goes on from " + r.path + "\n"
	if len(r.taken) > 0 {
		text += "taken from it: " + strings.Join(r.taken, ", ") + "\n"
	}
	if len(r.changed) > 0 {
		text += fmt.Sprintf("changed: %s\n", strings.Join(r.changed, ", "))
	}
	return text
}

// planned says that the plan's micro-batches have another size than the checkpoint's. It says nothing if micro_batch
// was given. It also records the change, because sums are then formed in another order, and bits differ.
func (r *resumption) planned(j *job.Job, pl *plan.Plan) string {
	if r == nil || r.manifest == nil || j.Given("micro_batch") || pl.MicroBatch == r.manifest.MicroBatch {
		return ""
	}
	changed := fmt.Sprintf("micro_batch %d (was %d)", pl.MicroBatch, r.manifest.MicroBatch)
	r.changed = append(r.changed, changed)
	return fmt.Sprintf("changed: %s\n", changed)
}

// reread says that the training data differs from the data that the checkpoint's run read. It also records the change.
func (r *resumption) reread(now data.Mark) string {
	if r == nil || r.manifest == nil || r.manifest.Data.Rows == 0 || r.manifest.Data == now {
		return ""
	}
	changed, so := "the values of the training data", ""
	if was := r.manifest.Data.Rows; now.Rows != was {
		changed = fmt.Sprintf("training samples %s (was %s)", terminal.Whole(now.Rows), terminal.Whole(was))
		so = "; they come in another order than before"
	}
	r.changed = append(r.changed, changed)
	return fmt.Sprintf("changed: %s%s\n", changed, so)
}

// remedied adds a command to the error of a damaged newest checkpoint. The command resumes from the newest whole one.
func remedied(err error) error {
	var damaged *checkpoint.DamagedError
	if !errors.As(err, &damaged) || damaged.Whole == "" {
		return err
	}
	return cli.BadInput(fmt.Errorf("%w; go on from that with: %s", err, CommandFrom(commandLine(), damaged.Whole)))
}

// planFlags are the flags that may change the plan of a resumed run.
var planFlags = []string{"workers", "stages", "split", "schedule", "plan", "program", "batch", "micro-batches",
	"micro-batch", "pipelines", "weights", "recompute", "memory-limit", "profile", "cluster", "tensor"}

// replanned says which plan the rest of a run trains, and why. If this plan is the checkpoint's, it says nothing. flags
// are the flags of the command line.
func (r *resumption) replanned(flags []string, pl *plan.Plan, m *model.Model) string {
	if r == nil || r.manifest == nil || r.manifest.Plan == nil || samePlan(r.manifest.Plan, pl) {
		return ""
	}
	was, own := r.manifest.Plan.Summary(), pl.Summary()
	before, now := cuts(r.manifest.Plan, m), cuts(pl, m)
	if was == own || len(pl.Stages) == len(r.manifest.Plan.Stages) && before != now {
		was, own = was+before, own+now
	}
	var asked []string
	for _, name := range planFlags {
		if slices.Contains(flags, name) {
			asked = append(asked, "--"+name)
		}
	}
	why := "chosen anew, from what is measured of this machine now"
	switch n, had := len(pl.Devices()), len(r.manifest.Plan.Devices()); {
	case len(asked) == 1:
		why = "as " + asked[0] + " asks"
	case len(asked) > 1:
		last := len(asked) - 1
		why = "as " + strings.Join(asked[:last], ", ") + " and " + asked[last] + " ask"
	case n != had:
		why = fmt.Sprintf("for %s instead of %d", terminal.Count(n, "worker"), had)
	default:
		if file := filepath.Join(filepath.Dir(filepath.Dir(r.path)), folder.PlanName); isFile(file) {
			why += "; --plan " + file + " keeps the one before"
		}
	}
	return fmt.Sprintf("changed: the plan, %s (was %s): %s\n", own, was, why)
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// samePlan reports whether two plans train in the same way: the same stages on the same workers, in the same order.
func samePlan(a, b *plan.Plan) bool {
	return a.Summary() == b.Summary() && a.Schedule == b.Schedule && a.Weights == b.Weights &&
		slices.EqualFunc(a.Stages, b.Stages, func(x, y plan.Stage) bool {
			return x.FirstLayer == y.FirstLayer && x.LastLayer == y.LastLayer && slices.Equal(x.Devices, y.Devices)
		})
}

// cuts names the first layer of each stage but the first.
func cuts(pl *plan.Plan, m *model.Model) string {
	var names []string
	for _, s := range pl.Stages[1:] {
		if s.FirstLayer < len(m.Layers) {
			names = append(names, m.Layers[s.FirstLayer].Name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return ", cut before " + strings.Join(names, ", ")
}

// dropped holds, in `settings`, the settings of a run's plan that its continuation does not keep. `by` holds the flags
// that contradict them.
type dropped struct{ settings, by []string }

// explain says which settings were dropped and why.
func (d dropped) explain() string {
	if len(d.settings) == 0 {
		return ""
	}
	why := "the number of workers"
	if len(d.by) > 0 {
		why = strings.Join(d.by, ", ")
	}
	return fmt.Sprintf("no longer fixed, because of %s: %s\n", why, strings.Join(d.settings, ", "))
}

// replan drops settings of a run's plan that contradict a flag. If `others` is true, the number of workers has changed,
// and replan also drops settings that contradict the new number. The planner then chooses the dropped settings again.
// If a new schedule allows the number of stages, the stages and the split stay.
func (t *training) replan(j *job.Job, others bool) {
	drop := func(key, value string, by ...string) bool {
		by = slices.DeleteFunc(slices.Clone(by), func(flag string) bool {
			return !t.Flags().Changed(flag) && !(others && flag == "workers")
		})
		if t.Flags().Changed(key) || len(by) == 0 {
			return false
		}
		if j.TakeBack(key); value == "" {
			return true
		}
		if said := key + " " + value; !slices.Contains(t.dropped.settings, said) { // replanned again with all processes
			t.dropped.settings = append(t.dropped.settings, said)
		}
		for _, flag := range by {
			if flag = "--" + flag; t.Flags().Changed(flag[2:]) && !slices.Contains(t.dropped.by, flag) {
				t.dropped.by = append(t.dropped.by, flag)
			}
		}
		return true
	}
	if others && !t.Flags().Changed("workers") {
		j.Machine.Workers = 0 // as many workers as were started
		j.TakeBack("workers")
	}
	if t.Flags().Changed("plan") && !t.Flags().Changed("workers") {
		j.Machine.Workers = job.Auto // as many as the plan has
		j.TakeBack("workers")
	}
	if drop("program", j.Plan.Program, "workers", "stages", "split", "schedule", "plan") && j.Plan.Program != "" {
		j.Plan.Program, j.Plan.Schedule = "", ""
		j.TakeBack("schedule")
	}
	by := []string{"workers", "plan", "program"}
	if !admitsStages(j) {
		by = append(by, "schedule")
	}
	stages, split := "", strings.Join(j.Plan.Split, ",")
	if j.Plan.Stages > 0 {
		stages = strconv.Itoa(j.Plan.Stages)
	}
	if drop("stages", stages, append(by, "split")...) {
		j.Plan.Stages = 0
	}
	if drop("split", split, append(by, "stages")...) {
		j.Plan.Split = nil
	}
	if drop("schedule", j.Plan.Schedule, "workers", "plan", "program") ||
		j.Plan.Stages == 1 && drop("schedule", j.Plan.Schedule, "stages") {
		j.Plan.Schedule = ""
	}
	if t.Flags().Changed("plan") {
		t.replanByFile(j)
	}
}

// replanByFile drops the settings of a run's plan that a plan's file also has, except those of the command line.
func (t *training) replanByFile(j *job.Job) {
	usual := job.Default()
	for _, own := range []struct {
		key   string
		reset func()
	}{
		{"micro_batch", func() { j.Plan.MicroBatch = usual.Plan.MicroBatch }},
		{"micro_batches", func() { j.Plan.MicroBatches = usual.Plan.MicroBatches }},
		{"weights", func() { j.Plan.Weights = usual.Plan.Weights }},
		{"pipelines", func() { j.Plan.Elastic.Pipelines = usual.Plan.Elastic.Pipelines }},
	} {
		if !t.Flags().Changed(strings.ReplaceAll(own.key, "_", "-")) {
			j.TakeBack(own.key)
			own.reset()
		}
	}
}

// admitsStages reports whether the job's schedule can have the job's number of stages on its workers.
func admitsStages(j *job.Job) bool {
	f, err := family.Named(j.Plan.Schedule)
	if err != nil {
		return true // an unknown schedule is refused later
	}
	stages, workers := cmp.Or(j.Plan.Stages, len(j.Plan.Split)+1), j.Machine.Workers
	switch {
	case f.Undivided, stages == 1, f.DefaultPolicy().Averages():
		return f.Undivided && stages == 1
	case f.Place == nil:
		return workers == 0 || stages <= workers
	}
	for chunks := 1; workers > 0 && chunks <= max(1, stages/workers); chunks++ {
		if len(f.Placement(workers, chunks)) == stages {
			return true
		}
	}
	return false
}
