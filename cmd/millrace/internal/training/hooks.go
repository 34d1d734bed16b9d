package training

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/report/folder"
	"github.com/millrace-ml/millrace/report/metrics"
	"github.com/millrace-ml/millrace/run"
	"github.com/millrace-ml/millrace/trace"
)

// hooks returns the hooks that feed the sinks and the progress line.
func (w *runDir) hooks() run.Hooks {
	v := values{samples: w.from.samples(), each: int64(w.Plan.StepSamples()), stragglers: map[int]float64{}}
	keep := func(err error) {
		if err != nil && w.failed == nil {
			w.failed = err
			w.progress.say(w.failed.Error())
			_ = w.happened(metrics.Warned, w.failed.Error())
		}
	}
	return run.Hooks{
		OnPart:   cli.AtStep,
		OnTested: func(done, of int) { w.progress.tested(done, of) },
		OnStep: func(s run.StepReport) {
			w.steps = trace.StepNumber(s.Step)
			w.progress.step(s, v.stragglers)
			values := v.step(s)
			values.LeftS = w.progress.left(values.Time)
			keep(incomplete(w.sinks.Step(values)))
		},
		OnEvaluation: func(e trace.Evaluation) {
			done := trace.StepNumber(e.Step)
			values := metrics.EvaluationValues{Time: time.Now(), Step: done, Loss: e.Loss, Apart: e.Apart,
				Reported: e.Reported}
			text := fmt.Sprintf("after %s: evaluation loss %s", terminal.Count(done, "step"), terminal.Loss(e.Loss))
			fields := []any{"step", done, "evaluation_loss", e.Loss}
			if e.Samples > 0 {
				values.Accuracy, values.Correct, values.Samples = new(e.Accuracy()), e.Correct, e.Samples
				text += fmt.Sprintf(", accuracy %.2f %%", 100*e.Accuracy())
				fields = append(fields, "evaluation_accuracy", e.Accuracy())
			}
			for _, name := range slices.Sorted(maps.Keys(e.Reported)) {
				if v := e.Reported[name]; v != nil {
					fields = append(fields, "evaluation_"+name, *v)
				}
			}
			if !w.progress.summed(evaluating, done) {
				w.progress.say(text+e.Said(), fields...)
			}
			w.progress.behind()
			values.LeftS = w.progress.left(values.Time)
			keep(incomplete(w.sinks.Evaluation(values)))
		},
		OnCheckpoint: func(dir string, steps int) {
			if !w.progress.summed(saving, steps) {
				w.progress.say("saved " + dir)
			}
			w.progress.behind()
			keep(w.happened(metrics.Saved, "saved "+dir))
			keep(w.dropReplaced())
		},
		OnQuiet: func(quiet time.Duration, chain []string) {
			text := fmt.Sprintf("nothing has happened for %v, as workers compute", quiet.Round(time.Second))
			w.progress.say(text + "; if a device hangs, a second signal ends the run")
			for _, line := range chain {
				w.progress.say("  " + line)
			}
			keep(w.happened(metrics.Waiting, text, chain...))
		},
		OnLate: func(late, usual time.Duration, chain []string) {
			text := fmt.Sprintf("step %d has taken %v so far, and others took %s", w.steps+1,
				late.Round(100*time.Millisecond), terminal.Duration(usual.Seconds()))
			w.progress.say(text)
			for _, line := range chain {
				w.progress.say("  " + line)
			}
			keep(w.happened(metrics.Waiting, text, chain...))
		},
		WantsTrace: func(int) bool { return w.tracing.due(time.Now()) },
		OnTrace: func(t *trace.Timeline) {
			// An error here must not fail the run. The live page then just does not show the step.
			err := w.tracing.note(time.Now(), func() error { return t.WriteFile(w.path(folder.StepName)) })
			if err != nil && !w.unshown {
				w.unshown = true
				text := fmt.Sprintf("pages do not show the step as it happens: %v", err)
				w.progress.say(text)
				keep(w.happened(metrics.Warned, text))
			}
		},
		OnPace: func(p run.Pace) {
			w.steps = trace.StepNumber(p.To) // the step that showed it; its own hook is called after this one
			v.pace(p)
			if p.Still {
				return
			}
			w.progress.say(p.Text, "worker", p.Worker, "over", p.Over, "times", p.Times, "others", p.Others)
			keep(w.happened(metrics.Slower, p.Text))
		},
		OnTaken: func(processor int) {
			text := fmt.Sprintf("another run on this machine has bound its workers to processor %d and others; this "+
				"one's go wherever there is room, and steps will take longer than predicted (--bind always binds them too)",
				processor)
			w.progress.say(text)
			keep(w.happened(metrics.Warned, text))
		},
	}
}

// incomplete wraps the error of a sink.
func incomplete(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("metrics are not whole: %w", err)
}

// tracing decides which steps are written to a file for the live page.
type tracing struct {
	watched func() bool // reports whether someone watches this process's live page
	begun   time.Time
	not     atomic.Int64 // no step is written before this time, in Unix nanoseconds
	last    atomic.Int64
}

// traceWatched is the time between two written steps if a page of this process is watched. If no page is watched, the
// time is traceUnwatched, because other programs may read the folder. Writing takes at most 1/tracePart of the time.
const (
	traceWatched   = 2 * time.Second
	traceUnwatched = 30 * time.Second
	traceFirst     = 5 * time.Second // from the start of the run to the first written step, if no page is watched
	tracePart      = 500
)

// due reports whether a step is to be written now.
func (t *tracing) due(now time.Time) bool {
	at := now.UnixNano()
	if at < t.not.Load() {
		return false
	}
	last, every := t.last.Load(), traceUnwatched
	if t.watched() {
		every = traceWatched
	} else if last == 0 {
		last, every = t.begun.UnixNano(), traceFirst
	}
	return at-last >= int64(every)
}

// note writes a step, and delays the next one in proportion to the time that writing took.
func (t *tracing) note(now time.Time, write func() error) error {
	err := write()
	t.last.Store(now.UnixNano())
	t.not.Store(now.Add(tracePart * time.Since(now)).UnixNano())
	return err
}

// happened records in the run's folder an event other than a step. Before the run has begun, it only keeps the event,
// and the method `begins` writes it later.
func (w *runDir) happened(kind, text string, lines ...string) error {
	e := metrics.Event{Time: time.Now(), Step: w.steps, Kind: kind, Text: text, Lines: lines}
	if kind == metrics.Begun { // the event gets the time that the report shows
		e.Time = w.start.Began
	}
	if w.events == nil {
		w.early = append(w.early, e)
		return nil
	}
	return w.events.Write(e)
}

// begins records the start of the run, and then the events before it.
func (w *runDir) begins() error {
	text := fmt.Sprintf("begins with step %s of %s", terminal.Whole(w.steps+1), terminal.Whole(w.Job.Train.Steps))
	if w.steps == w.Job.Train.Steps {
		text = fmt.Sprintf("has done all %s, and evaluates", terminal.Count(w.steps, "step"))
	}
	err := w.happened(metrics.Begun, text)
	for _, e := range w.early {
		err = errors.Join(err, w.events.Write(e))
	}
	w.early = nil
	return err
}

// over records how the run ended.
func (w *runDir) over(r *run.Result, ended error) error {
	switch {
	case w.events == nil:
		return nil
	case ended != nil:
		return w.happened(metrics.Failed, ended.Error())
	case r.Stopped:
		return w.happened(metrics.Stopped, fmt.Sprintf("stopped after step %s of %s",
			terminal.Whole(r.Steps), terminal.Whole(w.Job.Train.Steps)))
	}
	return w.happened(metrics.Finished, fmt.Sprintf("all %s are done", terminal.Count(r.Steps, "step")))
}

// dropStep removes the file of a single step's Timeline, because the Timeline of the run contains that step.
func dropStep(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
