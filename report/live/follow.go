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
	"github.com/millrace-ml/millrace/internal/document"
	"github.com/millrace-ml/millrace/report"
	"github.com/millrace-ml/millrace/report/metrics"
	"github.com/millrace-ml/millrace/trace"
)

// Columns of the series of steps, and of that of evaluations.
var (
	stepColumns = []string{"loss", "samples_per_s", "step_s", "bubble", "gradient_norm", "learning_rate",
		"peak_bytes"}
	evaluationColumns = []string{"loss", "accuracy"}
)

// How much is kept of a run.
const (
	mostSteps       = 2000
	mostEvaluations = 500
	mostEvents      = 200
)

// Follower reads what a run leaves in its folder. Whoever has one guards it.
type Follower struct {
	dir string

	metrics, events tail
	files           map[string]*changing

	replaced    int // which of all the times that files of some run began anew was the last of this one
	news        int // how often anything was new
	steps       *series
	evaluations *series
	now         now
	recent      []report.StepTook
	evaluated   *metrics.EvaluationValues // last
	happened    []metrics.Event
	clock       clock
	heard       time.Time // of anything

	about   about
	details int               // how often that has changed
	wrong   map[string]string // by file: a sentence
	drawn   [2]stepData       // the predicted step, and the measured ones
	bad     [2]int            // lines of metrics, and of events, that are none
	soFar   numbers           // of the last steps
}

// stepData is what a page draws the steps of a Timeline from.
type stepData struct {
	json  []byte // as report.StepData has it; nil: there are none
	shown int    // how often that has changed
}

// clock says how long a run has gone on. What lies between its end and its going on is left out.
type clock struct {
	begins      []time.Time // of the run, and each time that it went on
	paused      time.Duration
	first, last time.Time // of a step or an evaluation
}

// now is the last step.
type now struct {
	Step       int             `json:"step"` // from 1; 0: none yet
	Samples    int64           `json:"samples"`
	AtS        float64         `json:"at"`
	BusyS      []float64       `json:"busy,omitempty"`
	PeakBytes  []int64         `json:"peak,omitempty"`
	LiveBytes  []int64         `json:"live,omitempty"`
	Stragglers map[int]float64 `json:"stragglers,omitempty"`
	loss       float64
	left       []float64 // between how many seconds the run had left, as it said at a moment
	said       time.Time
}

// NewFollower follows a folder, which need not be there yet.
func NewFollower(dir string) *Follower {
	f := &Follower{dir: dir, files: map[string]*changing{}, wrong: map[string]string{}}
	f.metrics.path, f.events.path = f.path("metrics.jsonl"), f.path("events.jsonl")
	for _, name := range []string{"job.yaml", "plan.json", "profile.json", "predicted.json.gz", "timeline.json.gz",
		"step.json.gz", "error.json"} {
		f.files[name] = &changing{path: f.path(name)}
	}
	f.files["report"] = &changing{path: f.path("timeline.json.gz")}
	f.forget()
	return f
}

func (f *Follower) path(name string) string { return filepath.Join(f.dir, name) }

// beginnings numbers the times that files of runs began anew: a run that was gone and is back has another number.
var beginnings atomic.Int64

// forget begins with the metrics anew.
func (f *Follower) forget() {
	f.replaced = int(beginnings.Add(1))
	f.steps, f.evaluations = newSeries(mostSteps, len(stepColumns)), newSeries(mostEvaluations, len(evaluationColumns))
	f.now, f.recent, f.evaluated, f.bad[0] = now{}, nil, nil, 0
	f.clock, f.heard = clock{begins: f.clock.begins}, time.Time{}
	if n := len(f.happened); n > 0 {
		f.heard = f.happened[n-1].Time
	}
}

// look is Poll, except that a panic does not end the training that is watched: the page shows it.
func (f *Follower) look(steps bool) (more bool) {
	err := crash.Guard(func() error { more = f.Poll(steps); return nil })
	const cannot = "millrace cannot show all of this run: "
	if err != nil {
		f.say(cannot, fmt.Errorf("%s%w", cannot, err))
	}
	return more || err != nil
}

// Poll reads what is new, and says whether there was anything. With steps it reads those that are drawn, too.
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

// leftOut says that lines are not what they should be; nil: there are none.
func leftOut(name, of string, lines int) error {
	switch lines {
	case 0:
		return nil
	case 1:
		return fmt.Errorf("a line of %s is not of %s, and is left out", name, of)
	}
	return fmt.Errorf("%d lines of %s are not of %s, and are left out", lines, name, of)
}

// say notes what is wrong with a file, or that nothing is.
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

// event takes a line of events.jsonl.
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

// line takes a line of metrics.jsonl.
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

// at is how long the run has gone on when a step or an evaluation is done, in seconds. Evaluations and checkpoints
// count, as in what a report says that the run took.
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

// IsRun says whether a folder is one of a run, from what is in it.
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

// readSmall reads a file of a run that is a short text.
func readSmall(path string) ([]byte, error) { return document.Read(path, document.MaxBytes) }
