package training

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/cmd/internal/prepare"
	"github.com/millrace-ml/millrace/cmd/millrace/internal/reporting"
	"github.com/millrace-ml/millrace/internal/crash"
	"github.com/millrace-ml/millrace/internal/document"
	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/launch"
	"github.com/millrace-ml/millrace/report"
	"github.com/millrace-ml/millrace/report/folder"
	"github.com/millrace-ml/millrace/report/metrics"
	"github.com/millrace-ml/millrace/run"
	"github.com/millrace-ml/millrace/trace"
)

// runDir is the folder of one run while the run lasts. The plan and its prediction are written first, then the metrics
// of each step, and at the end the Timeline and the reports.
type runDir struct {
	*prepare.Prepared
	simulated *trace.Timeline
	program   string
	workers   []metrics.Worker
	start     folder.Start
	run       string      // the launcher's name of the run, equal for every start; empty: none
	from      *resumption // nil: the run begins with its first step
	begun     bool        // the folder belongs to this run
	replaced  string      // folder with the run that this run replaces; empty: none
	sinks     metrics.Sinks
	events    *metrics.EventLog // nil before the run has begun
	early     []metrics.Event   // events before the run began
	steps     int               // steps done
	tracing   tracing
	files     []io.Closer
	servers   *servers
	progress  *progress
	failed    error // the first error of a sink
	unshown   bool  // a step could not be written for the live page, and this was reported
}

func (w *runDir) path(name string) string { return filepath.Join(w.Job.Output.Folder, name) }

// newRun returns the folder of a run that has not begun. `hosts` are the hosts of its workers; nil: all on this host.
func newRun(p *prepare.Prepared, hosts []string, simulated *trace.Timeline, from *resumption,
	servers *servers, c *run.Config) (*runDir, error) {
	program, err := run.FirstProgram(*c, from.steps())
	if err != nil {
		return nil, err
	}
	return &runDir{Prepared: p, simulated: simulated, program: program.Text(), workers: named(p.Plan, hosts), from: from,
		servers: servers, progress: newProgress(os.Stderr, c)}, nil
}

// begin takes over the locked folder for this run, and writes everything that is known before the first step.
func (w *runDir) begin() error {
	if err := checkOut(w.Job, w.run, w.from); err != nil { // another run may have used the folder since an earlier check
		return err
	}
	if err := w.makeRoom(); err != nil {
		return err
	}
	w.begun = true
	w.start.Began = time.Now()
	err := errors.Join(noteRun(w.Job.Output.Folder, w.run), note(w.Job.Output.Folder, written...),
		w.start.Write(w.Job.Output.Folder), dropError(w.path(folder.ErrorName)), os.MkdirAll(checkpoints(w.Job), 0o755))
	err = errors.Join(err, w.Plan.Write(w.path(folder.PlanName)), w.Profile.Write(w.path(folder.ProfileName)),
		document.WriteText(w.path(folder.ProgramName), w.program),
		w.simulated.WriteFile(w.path(folder.PredictedName)), w.writeJob())
	if err != nil {
		return err
	}
	return w.openSinks()
}

// writeJob writes the settings, unless some cannot be written to a file.
func (w *runDir) writeJob() error {
	if _, err := w.Job.Text(); err != nil {
		return nil
	}
	return w.Job.Write(w.path(folder.JobName))
}

func (w *runDir) openSinks() error {
	done := w.from.steps()
	jsonl, err := openMetrics(w.path(folder.MetricsName), done, done == w.Job.Train.Steps)
	if err != nil {
		return err
	}
	now := time.Now()
	w.tracing.watched, w.tracing.begun = w.servers.watched, now
	w.files = []io.Closer{jsonl}
	happened, err := os.OpenFile(w.path(folder.EventsName), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	w.files, w.events, w.steps = append(w.files, happened), metrics.NewEventLog(happened), done
	if err := w.begins(); err != nil {
		return err
	}
	events, err := w.createEvents(now, cli.HostName())
	if err != nil {
		return err
	}
	w.files = append(w.files, events)
	board, err := metrics.NewTensorBoard(events, now)
	if err != nil {
		return err
	}
	w.sinks = metrics.Sinks{metrics.NewJSONL(jsonl), board}
	if w.servers.metrics != nil {
		scraped := metrics.NewPrometheus(map[string]string{"model": w.Model.Name}, w.workers)
		w.sinks = append(w.sinks, scraped)
		w.servers.scraped(scraped.Handler())
	}
	return nil
}

func (w *runDir) close() error {
	err := errors.Join(w.failed, w.sinks.Close())
	for _, f := range w.files {
		err = errors.Join(err, f.Close())
	}
	w.progress.end()
	return err
}

// finish writes the Timeline and the reports of a run that has ended, with or without an error. It returns the data of
// the reports.
func (w *runDir) finish(r *run.Result, ended error) (report.Inputs, error) {
	t := &r.Timeline
	err := errors.Join(w.over(r, ended), w.close(), t.WriteFile(w.path(folder.TimelineName)),
		dropStep(w.path(folder.StepName)))
	whole, unread := folder.Read(w.Job.Output.Folder)
	if unread != nil { // on a full disk there is no Timeline; then only this part of the run is drawn
		whole = &folder.Run{Dir: w.Job.Output.Folder, Parts: []folder.Part{{Dir: w.Job.Output.Folder, End: -1,
			Start: &w.start, Plan: w.Plan,
			LayerNames: prepare.NamesOf(w.Model), LayerS: folder.LayerTimes(w.Profile, w.Plan.MicroBatch),
			Simulated: w.simulated, Measured: t}}}
		err = errors.Join(err, unread)
	}
	in := reporting.Inputs(whole)
	return in, errors.Join(err,
		document.Write(w.page(), func(f io.Writer) error { return report.HTML(f, in) }),
		document.Write(w.path("trace.perfetto"), func(f io.Writer) error { return report.Perfetto(f, in.Measured) }),
		document.Write(w.path("trace.json"), func(f io.Writer) error { return report.ChromeJSON(f, in.Measured) }))
}

// inTime calls `write` and waits for its end, but no longer than `most`. The process must end soon after inTime
// returns. Files are always whole or absent.
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

// page returns the path of the report.
func (w *runDir) page() string { return w.path(folder.ReportName) }

// print prints how the run went.
func (w *runDir) print(out io.Writer, in report.Inputs, r *run.Result) error {
	if err := report.Terminal(out, in); err != nil {
		return err
	}
	if r.Checkpoint != "" {
		fmt.Fprintf(out, "checkpoint  %s\n", r.Checkpoint)
	}
	if text := w.outdated(report.MeasuredStep(in)); text != "" {
		fmt.Fprintln(out, text)
	}
	return w.printPages(out)
}

// outdated says that steps were much faster than predicted from this machine's profile, and how to measure the profile
// anew. It returns "" if steps were not so fast, or if the prediction is not from a profile of this machine. Slower
// steps are reported during the run.
func (w *runDir) outdated(stepS float64) string {
	predictedS := w.Plan.Predicted.StepS
	if stepS <= 0 || stepS > predictedS/muchFaster || w.Job.Machine.Cluster != "" || w.Job.Plan.Profile != "" {
		return ""
	}
	return fmt.Sprintf("profile     a step takes %s, not %s: the machine was busier when it was profiled. %s profile rm "+
		"%s discards what was measured", terminal.Duration(stepS), terminal.Duration(predictedS), commandLine()[0],
		w.Plan.Model)
}

// muchFaster is a factor. A profile is called outdated if steps are at least this many times as fast as predicted.
const muchFaster = 1.5

// printPages prints where the run's pages are.
func (w *runDir) printPages(out io.Writer) error {
	_, err := fmt.Fprintf(out, "report      %s\nwatch       %s serve %s\n", w.page(), commandLine()[0],
		w.Job.Output.Folder)
	return err
}

// printStopped prints what a stopped run leaves. If `known` is true, it prints the whole command that resumes the run;
// the command of another launcher is not known.
func (w *runDir) printStopped(out io.Writer, r *run.Result, known bool) {
	_ = w.printPages(out)
	if r.Checkpoint == "" {
		fmt.Fprintf(out, "stopped     after step %s of %s; no checkpoint was saved\n", terminal.Whole(r.Steps),
			terminal.Whole(w.Job.Train.Steps))
		return
	}
	fmt.Fprintf(out, "stopped     after step %s of %s, saved %s\n", terminal.Whole(r.Steps),
		terminal.Whole(w.Job.Train.Steps), r.Checkpoint)
	if at := filepath.Dir(r.Checkpoint); known {
		fmt.Fprintf(out, "goes on     %s\n", CommandFrom(commandLine(), at)) // not wrapped, so that it can be copied
	} else {
		fmt.Fprintf(out, "goes on     with the same command and --resume %s\n", at)
	}
}

// Outcome is what train prints with --json.
type Outcome struct {
	Out         string             `json:"out"`
	Steps       int                `json:"steps"`
	Loss        float64            `json:"loss"`
	Evaluations []trace.Evaluation `json:"evaluations,omitempty"` // steps count from 1
	// Held and Accuracy are the results of the last evaluation, as metrics.jsonl names them. They are nil without an
	// evaluation. Accuracy is also nil if correct answers are not counted.
	Held       *float64            `json:"evaluation_loss,omitempty"`
	Accuracy   *float64            `json:"evaluation_accuracy,omitempty"`
	Numbers    []report.Comparison `json:"numbers"`                 // the numbers that the report compares
	Over       string              `json:"measured_over,omitempty"` // steps that the measured numbers cover
	Checkpoint string              `json:"checkpoint,omitempty"`
	Predicted  float64             `json:"predicted_step_s"`
	Measured   float64             `json:"measured_step_s"`
	Report     string              `json:"report"`
	Stopped    bool                `json:"stopped"`
	// Taken and Changed are settings of the checkpoint that the run resumed from.
	Taken   []string `json:"taken,omitempty"`
	Changed []string `json:"changed,omitempty"`
}

// outcome returns what is printed as JSON.
func (w *runDir) outcome(in report.Inputs, r *run.Result) (Outcome, error) {
	numbers, over, err := report.CompareOver(in)
	if err != nil {
		return Outcome{}, err
	}
	evaluations := slices.Clone(r.Timeline.Evaluations)
	for i := range evaluations {
		evaluations[i].Step = trace.StepNumber(evaluations[i].Step)
	}
	o := Outcome{
		Out: w.Job.Output.Folder, Steps: r.Steps, Loss: r.Loss, Evaluations: evaluations, Checkpoint: r.Checkpoint,
		Predicted: w.Plan.Predicted.StepS, Measured: report.MeasuredStep(in),
		Report: w.page(), Stopped: r.Stopped, Numbers: numbers, Over: over,
	}
	if n := len(evaluations); n > 0 {
		last := evaluations[n-1]
		o.Held = &last.Loss
		if last.Samples > 0 {
			o.Accuracy = new(last.Accuracy())
		}
	}
	if w.from != nil {
		o.Taken, o.Changed = w.from.taken, w.from.changed
	}
	return o, nil
}

// unreplaced extends the error of a run that failed without a checkpoint: it says where the replaced run was moved.
func (w *runDir) unreplaced(err error) error {
	if w.replaced == "" {
		return err
	}
	return fmt.Errorf("%w; what was in %s before is in %s", err, w.Job.Output.Folder, w.replaced)
}

// commandLine returns what the user typed: the command line of this process, or of the millrace launch that started it.
// It begins with the name by which the program was started.
func commandLine() []string {
	args := slices.Clone(os.Args)
	args[0] = cli.Called()
	if by := launchLine(); by != nil {
		args = by
	}
	if filepath.Base(args[0]) != "millrace" { // a test binary
		args[0] = cli.Called()
	}
	return args
}

// launchLine returns the command line of the millrace launch that started this process; nil if none did.
func launchLine() (args []string) {
	if json.Unmarshal([]byte(os.Getenv(launch.CommandVar)), &args) != nil || len(args) == 0 {
		return nil
	}
	return args
}

// CommandFrom returns a command line for a shell, with --resume set to `path` and without --overwrite.
func CommandFrom(args []string, path string) string {
	args = slices.DeleteFunc(slices.Clone(args), func(a string) bool {
		return a == "--overwrite" || strings.HasPrefix(a, "--overwrite=")
	})
	at := slices.IndexFunc(args, func(a string) bool { return a == "--resume" || strings.HasPrefix(a, "--resume=") })
	switch {
	case at < 0:
		args = append(args, "--resume", path)
	case args[at] == "--resume" && at+1 < len(args):
		args[at+1] = path
	default:
		args[at] = "--resume=" + path
	}
	return cli.Quoted(args)
}
