package live

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/millrace-ml/millrace/internal/crash"
	"github.com/millrace-ml/millrace/report"
	"github.com/millrace-ml/millrace/report/folder"
	"github.com/millrace-ml/millrace/report/metrics"
	"github.com/millrace-ml/millrace/trace"
)

// Columns of the series of steps, and of the series of evaluations.
var (
	stepColumns = []string{"loss", "samples_per_s", "step_s", "bubble", "gradient_norm", "learning_rate",
		"peak_bytes"}
	evaluationColumns = []string{"loss", "accuracy"}
)

// mostSteps and mostEvaluations are the maximal numbers of parts in a run's series of steps and of evaluations.
// mostEvents is the maximal number of events that a Follower keeps.
const (
	mostSteps       = 2000
	mostEvaluations = 500
	mostEvents      = 200
)

// Follower reads what a run leaves in its folder. Its owner must guard it with a lock.
type Follower struct {
	dir string

	metrics, events tail
	files           map[string]*changing

	replaced    int // the value of `beginnings` when the metrics were last read from the beginning
	news        int // number of polls that found anything new
	steps       *series
	evaluations *series
	now         now
	recent      []report.StepTook
	evaluated   *metrics.EvaluationValues // the last evaluation
	happened    []metrics.Event
	clock       clock
	heard       time.Time // time of the newest event, step or evaluation

	about   about
	details int               // how often the result of the method detail has changed
	wrong   map[string]string // by file: what is wrong with it
	drawn   [2]stepData       // the data of the predicted step, and of the measured steps
	bad     [2]int            // number of invalid lines in metrics.jsonl, and in events.jsonl
	soFar   numbers           // computed from the last steps, for a run without a report
}

// stepData is the data for drawing the steps of a Timeline.
type stepData struct {
	json  []byte // the result of report.StepData; nil: none
	shown int    // how often json has changed
}

// clock measures how long a run has run, without the pauses before it resumed.
type clock struct {
	begins      []time.Time // start of the run, and of each resumed part
	paused      time.Duration
	first, last time.Time // first: start of the run, or of step 1 if earlier; last: end of the last step or evaluation
}

// now has the values of the last step.
type now struct {
	Step       int             `json:"step"` // from 1; 0: none yet
	Samples    int64           `json:"samples"`
	AtS        float64         `json:"at"`
	BusyS      []float64       `json:"busy,omitempty"`
	PeakBytes  []int64         `json:"peak,omitempty"`
	LiveBytes  []int64         `json:"live,omitempty"`
	Stragglers map[int]float64 `json:"stragglers,omitempty"`
	loss       float64
	left       []float64 // the least and the most remaining seconds, as the run reported them at the time `said`
	said       time.Time
}

// NewFollower returns a Follower of a folder, which may not exist yet.
func NewFollower(dir string) *Follower {
	f := &Follower{dir: dir, files: map[string]*changing{}, wrong: map[string]string{}}
	f.metrics.path, f.events.path = f.path("metrics.jsonl"), f.path("events.jsonl")
	for _, name := range []string{"job.yaml", "plan.json", "profile.json", "predicted.json.gz", "timeline.json.gz",
		"step.json.gz", folder.ErrorName} {
		f.files[name] = &changing{path: f.path(name)}
	}
	f.files["report"] = &changing{path: f.path("timeline.json.gz")}
	f.forget()
	return f
}

func (f *Follower) path(name string) string { return filepath.Join(f.dir, name) }

// beginnings counts how often the files of any run were read from the beginning. So a run that disappeared and came
// back gets another number.
var beginnings atomic.Int64

// forget discards the metrics, to read them from the beginning.
func (f *Follower) forget() {
	f.replaced = int(beginnings.Add(1))
	f.steps, f.evaluations = newSeries(mostSteps, len(stepColumns)), newSeries(mostEvaluations, len(evaluationColumns))
	f.now, f.recent, f.evaluated, f.bad[0] = now{}, nil, nil, 0
	f.clock, f.heard = clock{begins: f.clock.begins}, time.Time{}
	if n := len(f.happened); n > 0 {
		f.heard = f.happened[n-1].Time
	}
}

// look calls Poll. If Poll panics, a training in this process goes on, and the page shows the error.
func (f *Follower) look(steps bool) (more bool) {
	err := crash.Guard(func() error { more = f.Poll(steps); return nil })
	const cannot = "millrace cannot show all of this run: "
	if err != nil {
		f.say(cannot, fmt.Errorf("%s%w", cannot, err))
	}
	return more || err != nil
}

// Poll reads what is new, and reports whether anything was new. If `steps` is set, it also reads the Timelines of the
// steps that are drawn.
func (f *Follower) Poll(steps bool) bool {
	more, err := f.events.read(func() {
		f.happened, f.clock.begins, f.bad[1] = nil, nil, 0
		f.details++
	}, f.event)
	f.say("events.jsonl", cmp.Or(err, leftOut("events.jsonl", "an event of a run", f.bad[1])))
	again, err := f.metrics.read(f.forget, f.line)
	f.say("metrics.jsonl", cmp.Or(err, leftOut("metrics.jsonl", "a step or an evaluation", f.bad[0])))
	files := f.readFiles(steps)
	if again || files {
		f.soFar = f.ofTheLastSteps()
	}
	if files || more || again {
		f.news++
	}
	return files || more || again
}

// leftOut returns an error that counts the invalid lines of a file, or nil if there are none.
func leftOut(name, of string, lines int) error {
	switch lines {
	case 0:
		return nil
	case 1:
		return fmt.Errorf("a line of %s is not of %s, and is left out", name, of)
	}
	return fmt.Errorf("%d lines of %s are not of %s, and are left out", lines, name, of)
}

// say records what is wrong with a file; nil means that nothing is.
func (f *Follower) say(name string, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if f.wrong[name] == text {
		return
	}
	if f.details++; text == "" {
		delete(f.wrong, name)
	} else {
		f.wrong[name] = text
	}
}

// event processes a line of events.jsonl.
func (f *Follower) event(line []byte) {
	var e metrics.Event
	if err := json.Unmarshal(line, &e); err != nil || e.Kind == "" {
		f.bad[1]++
		return
	}
	f.details++
	if f.heard = later(f.heard, e.Time); e.Kind == metrics.Begun {
		f.clock.begins = append(f.clock.begins, e.Time)
	}
	if len(e.Lines) > mostEvents {
		e.Lines = e.Lines[:mostEvents]
	}
	if f.happened = append(f.happened, e); len(f.happened) > mostEvents {
		f.happened = slices.Delete(f.happened, 0, len(f.happened)-mostEvents)
	}
	if len(f.clock.begins) > mostEvents {
		f.clock.begins = slices.Delete(f.clock.begins, 0, 1)
	}
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// line processes a line of metrics.jsonl.
func (f *Follower) line(text []byte) {
	var v struct {
		metrics.StepValues
		Step       *int                `json:"step"`
		Loss       *float64            `json:"loss"`
		Evaluation *float64            `json:"evaluation_loss"`
		Accuracy   *float64            `json:"evaluation_accuracy"`
		Reported   map[string]*float64 `json:"evaluation_reported"`
	}
	err := json.Unmarshal(text, &v)
	if err != nil || v.Step == nil || *v.Step < 1 || v.Loss == nil && v.Evaluation == nil {
		f.bad[0]++
		return
	}
	if n := len(f.clock.begins); n > 0 && f.now.said.Before(f.clock.begins[n-1]) && !v.Time.Before(f.clock.begins[n-1]) {
		f.recent = nil // a run that is resumed may have another plan, with other predictions
	}
	if f.heard = later(f.heard, v.Time); v.Loss == nil {
		f.now.AtS = max(f.now.AtS, f.clock.at(v.Time, 0))
		f.evaluations.add(*v.Step, f.now.AtS, f.now.Samples, []float64{*v.Evaluation, number(v.Accuracy)})
		f.now.left, f.now.said = v.LeftS, v.Time
		f.evaluated = &metrics.EvaluationValues{Step: *v.Step, Loss: *v.Evaluation, Accuracy: v.Accuracy,
			Reported: v.Reported}
		return
	}
	f.now = now{Step: *v.Step, Samples: v.Samples, AtS: f.clock.at(v.Time, v.StepS), BusyS: v.BusyS,
		PeakBytes: v.PeakBytes, LiveBytes: v.LiveBytes, Stragglers: v.Stragglers, loss: *v.Loss, left: v.LeftS,
		said: v.Time}
	peak := math.NaN()
	if len(v.PeakBytes) > 0 {
		peak = float64(slices.Max(v.PeakBytes))
	}
	known := func(x float64) float64 {
		if x == 0 {
			return math.NaN()
		}
		return x
	}
	f.steps.add(*v.Step, f.now.AtS, v.Samples, []float64{*v.Loss, known(v.SamplesPerSecond), known(v.StepS), v.Bubble,
		known(v.GradientNorm), known(v.LearningRate), peak})
	f.recent = append(f.recent, report.StepTook{Step: trace.StepIndex(*v.Step), S: v.StepS, BusyS: v.BusyS,
		PeakBytes: v.PeakBytes})
	if len(f.recent) > 2*report.Recent {
		f.recent = slices.Delete(f.recent, 0, report.Recent)
	}
}

func number(x *float64) float64 {
	if x == nil {
		return math.NaN()
	}
	return *x
}

// at returns how long the run had run when a step or an evaluation was done, in seconds. It includes evaluations and
// checkpoints, like the duration in the report. It leaves out the pauses before later parts.
func (c *clock) at(done time.Time, stepS float64) float64 {
	if c.first.IsZero() {
		if c.first = done.Add(-time.Duration(stepS * float64(time.Second))); len(c.begins) > 0 {
			if b := c.begins[0]; b.Before(c.first) {
				c.first = b
			}
		}
	} else {
		from := c.last
		for _, b := range c.begins {
			if b.After(from) && b.Before(done) {
				c.paused += b.Sub(from)
				from = b
			}
		}
	}
	c.last = later(c.last, done)
	return max(0, c.last.Sub(c.first)-c.paused).Seconds()
}

// IsRun reports whether a folder belongs to a run, judged by its files.
func IsRun(dir string) bool {
	for _, name := range []string{"metrics.jsonl", "events.jsonl", "plan.json"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err == nil && info.Mode().IsRegular() {
			return name != "plan.json" || regular(filepath.Join(dir, "profile.json"))
		}
	}
	return false
}

func regular(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}
