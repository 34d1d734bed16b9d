package training

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/cmd/internal/prepare"
	"github.com/millrace-ml/millrace/internal/crash"
	"github.com/millrace-ml/millrace/internal/document"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/report"
	"github.com/millrace-ml/millrace/report/metrics"
	"github.com/millrace-ml/millrace/run"
	"github.com/millrace-ml/millrace/schedule/programs"
	"github.com/millrace-ml/millrace/trace"
)

// runDir is the folder of one run while it lasts: the plan and its prediction, metrics as
// they come, and at the end the Timeline and the reports.
type runDir struct {
	*prepare.Prepared
	simulated *trace.Timeline
	program   string
	workers   []metrics.Worker
	machines  []report.Fact // of the hosts
	run       string        // its launcher's name of it, the same for every start; empty: none
	from      *resumption   // nil: the run begins with step 0
	begun     bool          // the folder is this run's
	replaced  string        // where the run is that this one replaces; empty: nowhere
	sinks     metrics.Sinks
	files     []io.Closer
	metrics   *metricsServer // nil where nobody asked for it
	progress  *progress
	failed    error // the first error of a sink
}

func (w *runDir) path(name string) string { return filepath.Join(w.Job.Out, name) }

// newRun is the folder of a run that has not begun, whose workers are on these hosts, or all here. metrics is nil where
// nobody asked for them.
func newRun(p *prepare.Prepared, hosts []string, simulated *trace.Timeline, from *resumption,
	metrics *metricsServer) (*runDir, error) {
	program, err := programs.Build(p.Plan, p.Profile.TiedLayers(), p.Job.Clip > 0, 1)
	if err != nil {
		return nil, err
	}
	return &runDir{Prepared: p, simulated: simulated, program: program.Text(), workers: named(p.Plan, hosts), from: from,
		metrics: metrics, progress: newProgress(os.Stderr, p.Job.Steps)}, nil
}

// begin makes the job's folder, which is taken, this run's, and writes everything that is known before the first step.
func (w *runDir) begin() error {
	if err := checkOut(w.Job, w.run, w.from); err != nil { // another run may have been there meanwhile
		return err
	}
	if err := w.makeRoom(); err != nil {
		return err
	}
	w.begun = true
	err := errors.Join(noteRun(w.Job.Out, w.run), note(w.Job.Out, written...), dropError(w.path(ErrorName)),
		os.MkdirAll(checkpoints(w.Job), 0o755))
	err = errors.Join(err, w.Plan.Write(w.path("plan.json")), w.Profile.Write(w.path("profile.json")),
		document.Write(w.path("program.txt"), func(f io.Writer) error { _, err := io.WriteString(f, w.program); return err }),
		w.simulated.WriteFile(w.path("predicted.json.gz")))
	if err != nil {
		return err
	}
	return w.openSinks()
}

func (w *runDir) openSinks() error {
	done := w.from.steps()
	jsonl, err := openMetrics(w.path("metrics.jsonl"), done, done == w.Job.Steps)
	if err != nil {
		return err
	}
	now := time.Now()
	events, err := w.createEvents(now, cli.HostName())
	if err != nil {
		return errors.Join(err, jsonl.Close())
	}
	board, err := metrics.NewTensorBoard(events, now)
	if err != nil {
		return errors.Join(err, jsonl.Close(), events.Close())
	}
	w.files = []io.Closer{jsonl, events}
	w.sinks = metrics.Sinks{metrics.NewJSONL(jsonl), board}
	if w.metrics != nil {
		scraped := metrics.NewPrometheus(map[string]string{"model": w.Model.Name}, w.workers)
		w.sinks = append(w.sinks, scraped)
		w.metrics.serve(scraped.Handler(), func(err error) { slog.Error("metrics server", "error", err) })
	}
	return nil
}

// hooks feed the sinks and the progress line.
func (w *runDir) hooks() run.Hooks {
	v := values{samples: w.from.samples(), each: int64(w.Plan.StepSamples()), stragglers: map[int]float64{}}
	keep := func(err error) {
		if err != nil && w.failed == nil {
			w.failed = err
			w.progress.say(w.failed.Error())
		}
	}
	return run.Hooks{
		OnPart: cli.AtStep,
		OnStep: func(s run.StepReport) {
			keep(incomplete(w.sinks.Step(v.step(s))))
			w.progress.step(s, v.stragglers)
		},
		OnEvaluation: func(e trace.Evaluation) {
			values := metrics.EvaluationValues{Time: time.Now(), Step: e.Step, Loss: e.Loss, Apart: e.Apart,
				Reported: e.Reported}
			text, fields := fmt.Sprintf("after %d steps: evaluation loss %.4f", e.Step+1, e.Loss), []any{"step", e.Step,
				"evaluation_loss", e.Loss}
			if e.Samples > 0 {
				values.Accuracy = new(e.Accuracy())
				text += fmt.Sprintf(", accuracy %.2f %%", 100*e.Accuracy())
				fields = append(fields, "evaluation_accuracy", e.Accuracy())
			}
			keep(incomplete(w.sinks.Evaluation(values)))
			for _, name := range slices.Sorted(maps.Keys(e.Reported)) {
				if v := e.Reported[name]; v != nil {
					fields = append(fields, "evaluation_"+name, *v)
				}
			}
			w.progress.say(text+e.Said(), fields...)
		},
		OnCheckpoint: func(dir string, _ int) {
			w.progress.say("saved " + dir)
			keep(w.dropReplaced())
		},
		OnQuiet: func(quiet time.Duration, chain []string) {
			w.progress.say(fmt.Sprintf("nothing has happened for %v, as workers compute; if a device hangs, a second signal "+
				"ends the run", quiet.Round(time.Second)))
			for _, line := range chain {
				w.progress.say("  " + line)
			}
		},
		OnPace: func(p run.Pace) {
			v.pace(p)
			w.progress.say(p.Text, "worker", p.Worker, "over", p.Over, "times", p.Times, "others", p.Others)
		},
		OnTaken: func(processor int) {
			w.progress.say(fmt.Sprintf("another run on this machine has bound its workers to processor %d and others; this "+
				"one's go wherever there is room, and steps will take longer than predicted (--bind always binds them too)",
				processor))
		},
	}
}

// incomplete is an error of a sink.
func incomplete(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("metrics are not whole: %w", err)
}

// close ends the sinks.
func (w *runDir) close() error {
	err := errors.Join(w.failed, w.sinks.Close())
	for _, f := range w.files {
		err = errors.Join(err, f.Close())
	}
	if w.metrics != nil {
		err = errors.Join(err, w.metrics.Close())
	}
	w.progress.end()
	return err
}

// finish writes the Timeline and the reports, and returns what they were drawn from.
func (w *runDir) finish(r *run.Result) (report.Inputs, error) {
	err := w.close()
	t := w.measured(r)
	in := report.Inputs{
		Title: w.Job.Out, Plan: w.Plan, LayerNames: prepare.NamesOf(w.Model), Simulated: w.simulated, Measured: t,
		Facts: slices.Concat(w.machines, []report.Fact{
			{Name: "threads per worker", Value: fmt.Sprint(w.Job.ThreadsPerWorker)},
			{Name: "seed", Value: fmt.Sprint(w.Job.Seed)},
			{Name: "optimizer", Value: w.Job.Optimizer.Kind}, {Name: "data", Value: w.Job.Data},
		}),
	}
	in.Facts = append(in.Facts, averageFacts(w.Plan, t.Evaluations)...)
	return in, errors.Join(err, t.WriteFile(w.path("timeline.json.gz")),
		document.Write(w.page(), func(f io.Writer) error { return report.HTML(f, in) }),
		document.Write(w.path("trace.perfetto"), func(f io.Writer) error { return report.Perfetto(f, t) }),
		document.Write(w.path("trace.json"), func(f io.Writer) error { return report.ChromeJSON(f, t) }))
}

// inTime waits for what writes files, so long at most, in a process that then ends: a file is whole or not there.
func inTime(most time.Duration, write func()) {
	whole := make(chan struct{})
	crash.Go(func() {
		defer close(whole)
		write()
	})
	select {
	case <-whole:
	case <-time.After(most):
		document.Drop()
	}
}

// page is where the report is.
func (w *runDir) page() string { return w.path("report.html") }

// measured is the Timeline of the run. One without a step, of a run that was killed before it could report, is that
// of the steps before, where they left one of the same workers, with the evaluation.
func (w *runDir) measured(r *run.Result) *trace.Timeline {
	t := &r.Timeline
	if len(t.Steps) > 0 || w.from.steps() == 0 {
		return t
	}
	before, err := trace.ReadFile(w.path("timeline.json.gz"))
	if err != nil || before.Model != t.Model || before.Workers != t.Workers || before.Stages != t.Stages {
		return t
	}
	last := w.from.steps() - 1
	before.Evaluations = slices.DeleteFunc(before.Evaluations, func(e trace.Evaluation) bool { return e.Step == last })
	before.Evaluations = append(before.Evaluations, t.Evaluations...)
	return before
}

// print says how the run went.
func (w *runDir) print(out io.Writer, in report.Inputs, r *run.Result) error {
	if err := report.Terminal(out, in); err != nil {
		return err
	}
	if r.Checkpoint != "" {
		fmt.Fprintf(out, "checkpoint  %s\n", r.Checkpoint)
	}
	_, err := fmt.Fprintf(out, "report      %s\n", w.page())
	return err
}

// averageFacts says how far the reference of elastic averaging was from the average of the
// pipelines, at worst.
func averageFacts(pl *plan.Plan, evaluations []trace.Evaluation) []report.Fact {
	if pl.Together() == 1 {
		return nil
	}
	e := pl.Elastic
	facts := []report.Fact{{Name: "pipelines", Value: fmt.Sprintf("%d side by side, alpha %.3g, %s", e.Pipelines,
		e.Alpha, e.Order)}}
	worst := 0.0
	n := 0
	for _, e := range evaluations {
		if e.Apart != nil {
			worst, n = max(worst, *e.Apart), n+1
		}
	}
	if n > 0 {
		facts = append(facts, report.Fact{Name: "reference", Value: fmt.Sprintf("within %.1e of the pipelines' average at "+
			"%d evaluations", worst, n)})
	}
	return facts
}

// Outcome is what train prints with --json.
type Outcome struct {
	Out         string             `json:"out"`
	Steps       int                `json:"steps"`
	Loss        float64            `json:"loss"`
	Evaluations []trace.Evaluation `json:"evaluations,omitempty"`
	Checkpoint  string             `json:"checkpoint,omitempty"`
	Predicted   float64            `json:"predicted_step_s"`
	Measured    float64            `json:"measured_step_s"`
	Report      string             `json:"report"`
	Stopped     bool               `json:"stopped"`
	// Taken and Changed are settings of the checkpoint that the run went on from.
	Taken   []string `json:"taken,omitempty"`
	Changed []string `json:"changed,omitempty"`
}

// outcome is what is printed for machines.
func (w *runDir) outcome(t *trace.Timeline, r *run.Result) Outcome {
	o := Outcome{
		Out: w.Job.Out, Steps: r.Steps, Loss: r.Loss, Evaluations: t.Evaluations, Checkpoint: r.Checkpoint,
		Predicted: w.Plan.Predicted.StepS, Measured: t.StepTime(min(10, len(t.Steps)/10)),
		Report: w.page(), Stopped: r.Stopped,
	}
	if w.from != nil {
		o.Taken, o.Changed = w.from.taken, w.from.changed
	}
	return o
}

// unreplaced says of a run that has failed without a checkpoint where the one is that it was to replace.
func (w *runDir) unreplaced(err error) error {
	if w.replaced == "" {
		return err
	}
	return fmt.Errorf("%w; what was in %s before is in %s", err, w.Job.Out, w.replaced)
}
