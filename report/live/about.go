package live

import (
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/millrace-ml/millrace/internal/document"
	"github.com/millrace-ml/millrace/internal/strictyaml"
	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/report"
	"github.com/millrace-ml/millrace/report/folder"
	"github.com/millrace-ml/millrace/report/metrics"
	"github.com/millrace-ml/millrace/trace"
)

// about describes a run without its steps.
type about struct {
	settings  map[string]string // by the key in the job's flat form
	total     int               // steps in all; 0: not known
	evalEvery int               // steps between evaluations; 0: not known
	plan      *plan.Plan
	layers    []string
	cause     string   // why the run failed, from error.json
	report    bool     // the run has ended and left its Timeline
	ended     *numbers // numbers of the run's report; nil: none
}

// readFiles reads the files that are replaced as a whole, and reports whether anything is new. If `steps` is set, it
// also reads the Timelines for drawing.
func (f *Follower) readFiles(steps bool) (more bool) {
	read := func(name string, forget func(), read func(path string) error) {
		if !steps && strings.HasSuffix(name, ".gz") {
			return
		}
		c := f.files[name]
		changed, there := c.changed()
		if !changed {
			return
		}
		more = true
		f.details++
		forget()
		if !there {
			f.say(name, nil)
			return
		}
		f.say(name, named(name, read(c.path)))
	}
	a := &f.about
	read("job.yaml", func() { a.settings, a.total, a.evalEvery = nil, 0, 0 }, f.readJob)
	read("plan.json", func() { a.plan, f.files["predicted.json.gz"].again = nil, true }, func(path string) (err error) {
		a.plan, err = plan.Read(path)
		return err
	})
	read("profile.json", func() { a.layers = nil }, a.readLayers)
	read(folder.ErrorName, func() { a.cause = "" }, func(path string) (err error) {
		a.cause, err = folder.Cause(filepath.Dir(path))
		return err
	})
	read("predicted.json.gz", func() { f.draw(0, nil) }, func(path string) error {
		t, err := trace.ReadFile(path)
		if err == nil {
			err = f.draw(0, &report.Inputs{Plan: a.plan, Simulated: t})
		}
		return err
	})
	if there := regular(f.path("timeline.json.gz")); there != a.report {
		a.report, more = there, true
		f.details++
	}
	read("timeline.json.gz", func() { f.draw(1, nil) }, func(path string) error {
		t, err := trace.ReadFile(path)
		if err == nil {
			err = f.drawMeasured(t)
		}
		return err
	})
	read("step.json.gz", func() {}, func(path string) error {
		t, err := trace.ReadFile(path)
		if whole := f.files["timeline.json.gz"].file; err == nil && (whole == nil ||
			whole.ModTime().Before(f.files["step.json.gz"].file.ModTime())) {
			err = f.draw(1, &report.Inputs{Plan: a.plan, Measured: t})
		}
		return err
	})
	return f.readReport() || more
}

// readReport reads the numbers of a run's report, and reports whether anything is new. The numbers come from several
// files, and are also shown in the table of runs.
func (f *Follower) readReport() (more bool) {
	if !regular(f.path("plan.json")) && f.about.ended == nil {
		return false
	}
	changed, there := f.files["report"].changed()
	if !changed {
		return false
	}
	f.about.ended = nil
	f.details++
	var err error
	if there {
		f.about.ended, err = reported(f.dir)
	}
	if len(f.wrong) > 0 {
		err = nil // already reported
	}
	f.say("report", err)
	return true
}

func (a *about) readLayers(path string) error {
	p, err := profile.Read(path)
	if err != nil {
		return err
	}
	for _, l := range p.Layers {
		a.layers = append(a.layers, l.Name)
	}
	return nil
}

// named adds a file's name to an error that lacks it.
func named(name string, err error) error {
	if err == nil || strings.Contains(err.Error(), name) {
		return err
	}
	return fmt.Errorf("%s: %w", name, err)
}

// draw makes the data for drawing the predicted steps (if `which` is 0) or the measured steps (1). There is none if
// `in` is nil.
func (f *Follower) draw(which int, in *report.Inputs) (err error) {
	var text []byte
	if in != nil {
		text, err = report.StepData(*in)
	}
	f.drawn[which].json = text
	f.drawn[which].shown++
	return err
}

func (f *Follower) readJob(path string) error {
	text, err := document.Read(path, strictyaml.MaxBytes)
	if err != nil {
		return err
	}
	said, err := job.Settings(text)
	if err != nil {
		return err
	}
	f.about.settings = map[string]string{}
	flat("", said, f.about.settings)
	_, _ = fmt.Sscan(f.about.settings["steps"], &f.about.total)
	_, _ = fmt.Sscan(f.about.settings["eval_every"], &f.about.evalEvery)
	return nil
}

// flat turns nested settings into single ones with keys such as rate.base. It leaves out empty settings.
func flat(within string, keys map[string]any, into map[string]string) {
	for name, value := range keys {
		if below, is := value.(map[string]any); is {
			flat(within+name+".", below, into)
			continue
		}
		text, err := json.Marshal(value)
		if s, is := value.(string); is || err != nil {
			text = []byte(s)
		}
		if len(text) > 0 {
			into[within+name] = string(text)
		}
	}
}

// States of a run.
const (
	waits    = "waits" // the run has written nothing yet: no step, evaluation or event
	begun    = "begun" // the run has begun, and has done no step yet
	goesOn   = "going"
	silent   = "silent" // nothing new for much longer than steps take
	finished = "finished"
	stopped  = "stopped"
	failed   = "failed"
)

// A running run counts as silent if nothing is new for the longer of two times: silentAfter, and the time of
// silentSteps steps.
const (
	silentAfter = 30 * time.Second
	silentSteps = 20
)

func (f *Follower) state(now time.Time) string {
	for i := len(f.happened) - 1; i >= 0; i-- {
		switch f.happened[i].Kind {
		case metrics.Finished:
			return finished
		case metrics.Stopped:
			return stopped
		case metrics.Failed:
			return failed
		case metrics.Begun:
			i = 0
		}
	}
	switch {
	case f.about.cause != "":
		return failed
	case len(f.happened) == 0 && f.about.report:
		return finished // a run of an older millrace, which wrote no events
	case f.heard.IsZero():
		return waits
	case now.Sub(f.heard) > max(silentAfter, f.usual(silentSteps)):
		return silent
	case f.now.Step == 0:
		return begun
	}
	return goesOn
}

// These constants name what a running run does after its newest step, if it does not begin the next step.
const (
	evaluates = "evaluating"
	ends      = "ends" // the run evaluates, saves and writes its report
)

// due returns what a run does after its newest step, according to its job: an evaluation, or its end. It returns "" if
// the next step follows.
func (f *Follower) due() string {
	switch step := f.now.Step; {
	case step == 0 || f.evaluated != nil && step == f.evaluated.Step:
	case f.about.evalEvery > 0 && step%f.about.evalEvery == 0:
		return evaluates
	}
	if f.about.total > 0 && f.now.Step == f.about.total {
		return ends
	}
	return ""
}

// usual returns how long a number of steps usually takes, or 0 if that is unknown.
func (f *Follower) usual(steps int) time.Duration {
	s := f.soFar.of("step time")
	if s == nil {
		return 0
	}
	return time.Duration(float64(steps) * min(*s, 24*3600) * float64(time.Second))
}

// summary is a row of the table of runs. Its fields are what the page's script reads of a row.
type summary struct {
	ID    string  `json:"id"`
	Name  string  `json:"name"`
	State string  `json:"state"`
	Heard float64 `json:"heard,omitempty"` // when the run last wrote anything, as Unix time in seconds
	Step  int     `json:"step"`            // steps done
	Total int     `json:"total,omitempty"`
	Due   string  `json:"due,omitempty"` // what the run does now instead of a step
	// Left holds the least and the most remaining seconds as the run reported them, and the Unix time of that report in
	// seconds.
	Left     []float64 `json:"left,omitempty"`
	Samples  int64     `json:"samples,omitempty"`
	AtS      float64   `json:"at"`
	Loss     *float64  `json:"loss,omitempty"` // loss of the last step
	Held     *float64  `json:"held,omitempty"` // loss of the last evaluation
	Accuracy *float64  `json:"accuracy,omitempty"`
	// Reported holds the model's own values at the last evaluation, by name.
	Reported map[string]*float64 `json:"reported,omitempty"`
	Rate     *float64            `json:"rate,omitempty"` // samples per second
	StepS    *float64            `json:"step_s,omitempty"`
	Bubble   *float64            `json:"bubble,omitempty"`
	Peak     *float64            `json:"peak,omitempty"` // bytes
	Model    string              `json:"model,omitempty"`
	Schedule string              `json:"schedule,omitempty"`
	Workers  int                 `json:"workers,omitempty"`
	Wrong    int                 `json:"wrong,omitempty"` // number of faulty files
}

func (f *Follower) summary(id, name string, at time.Time) summary {
	s := summary{ID: id, Name: name, State: f.state(at), Step: f.done(), Total: f.about.total,
		Samples: f.now.Samples, AtS: f.now.AtS, Wrong: len(f.wrong)}
	if s.State == goesOn || s.State == silent {
		s.Due = f.due()
	}
	if left := f.now.left; s.State == goesOn && len(left) == 2 && left[0] > 0 && left[1] >= left[0] {
		s.Left = []float64{round(left[0]), round(left[1]), float64(f.now.said.UnixMilli()) / 1000}
	}
	if !f.heard.IsZero() {
		s.Heard = float64(f.heard.UnixMilli()) / 1000
	}
	if f.now.Step > 0 {
		s.Loss = finite(f.now.loss)
	}
	if e := f.evaluated; e != nil {
		s.Held, s.Accuracy, s.Reported = finite(e.Loss), e.Accuracy, e.Reported
	}
	n := f.measured()
	s.StepS, s.Rate, s.Bubble, s.Peak = n.of("step time"), n.of("samples per second"), n.of("bubble"), n.peak()
	if s.Workers = len(f.now.PeakBytes); f.about.plan != nil {
		s.Model, s.Schedule, s.Workers = f.about.plan.Model, f.about.plan.Schedule, len(f.about.plan.Devices())
	}
	return s
}

// done returns how many steps are done. Before a start's first step, the start's event says how many were done earlier.
func (f *Follower) done() int {
	step := f.now.Step
	for i := len(f.happened) - 1; step == 0 && i >= 0; i-- {
		if f.happened[i].Kind == metrics.Begun {
			return f.happened[i].Step
		}
	}
	return step
}

// finite returns a pointer to a number, or nil if the number is not finite.
func finite(x float64) *float64 {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return nil
	}
	return new(x)
}

// round rounds a number to five digits.
func round(x float64) float64 {
	if x == 0 {
		return 0
	}
	scale := math.Pow(10, 5-math.Ceil(math.Log10(math.Abs(x))))
	if r := math.Round(x*scale) / scale; !math.IsNaN(r) && !math.IsInf(r, 0) {
		return r
	}
	return x
}

// details is what a page shows of a run besides its steps.
type details struct {
	ID        string            `json:"id"`
	Path      string            `json:"path"`
	Settings  map[string]string `json:"settings,omitempty"`
	Plan      *planned          `json:"plan,omitempty"`
	Events    []metrics.Event   `json:"events,omitempty"`
	Cause     string            `json:"cause,omitempty"`
	Wrong     []string          `json:"wrong,omitempty"`
	Report    bool              `json:"report,omitempty"`
	Predicted *plan.Predicted   `json:"predicted,omitempty"`
}

// planned is a plan as a page draws it.
type planned struct {
	Layers       []string     `json:"layers,omitempty"`
	Stages       []plan.Stage `json:"stages"`
	Schedule     string       `json:"schedule"`
	Weights      string       `json:"weights"`
	MicroBatch   int          `json:"micro_batch"`
	MicroBatches int          `json:"micro_batches"`
	Replication  string       `json:"replication,omitempty"`
	Pipelines    int          `json:"pipelines,omitempty"`
	Planner      string       `json:"planner"`
	Why          []string     `json:"why,omitempty"`
	BoundS       float64      `json:"bound_s,omitempty"`
}

func (f *Follower) detail(id string) details {
	d := details{ID: id, Path: f.dir, Settings: f.about.settings, Events: slices.Clone(f.happened),
		Cause: f.about.cause, Report: f.about.report}
	for _, name := range sortedNames(f.wrong) {
		d.Wrong = append(d.Wrong, f.wrong[name])
	}
	if p := f.about.plan; p != nil {
		d.Plan = &planned{Layers: f.about.layers, Stages: p.Stages, Schedule: p.Schedule, Weights: p.Weights,
			MicroBatch: p.MicroBatch, MicroBatches: p.MicroBatches, Replication: p.Replication, Planner: p.Planner, Why: p.Why}
		if n := p.Together(); n > 1 {
			d.Plan.Pipelines = n
		}
		if p.LowerBound != nil {
			d.Plan.BoundS = p.LowerBound.StepS
		}
		d.Predicted = p.Predicted
	}
	return d
}
