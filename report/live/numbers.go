package live

import (
	"errors"
	"slices"

	"github.com/millrace-ml/millrace/report"
	"github.com/millrace-ml/millrace/report/folder"
	"github.com/millrace-ml/millrace/trace"
)

// numbers compares predictions with measurements. The measurements are those of a run's report, or, if there is no
// report, those of the run's last steps.
type numbers struct {
	rows []report.Comparison
	over string // names the steps that the rows cover
}

// inputs returns what the report of a run's folder shows. The numbers of a stream are from all steps of metrics.jsonl.
func inputs(dir string) (in report.Inputs, err error) {
	run, err := folder.ReadParts(dir)
	if err == nil {
		if t := run.Shown().Measured; t != nil && t.Stream {
			run, err = folder.Read(dir)
		}
	}
	if err != nil {
		return in, err
	}
	return run.Inputs(), nil
}

// reported returns the numbers in the report of a run's folder, computed by the report's own function.
func reported(dir string) (*numbers, error) {
	in, err := inputs(dir)
	if err != nil {
		return nil, err
	}
	rows, over, err := report.CompareOver(in)
	if err != nil {
		return nil, err
	}
	return &numbers{rows, over}, nil
}

// ofTheLastSteps returns the numbers over the last steps, for a run without a report.
func (f *Follower) ofTheLastSteps() numbers {
	in := report.Inputs{Plan: f.about.plan, Took: f.recent}
	if len(f.evaluations.parts) > 0 {
		in.Evaluations = []trace.Evaluation{{}} // so that the predicted memory includes evaluations
	}
	rows, over, err := report.CompareRecent(in)
	switch {
	case err != nil:
		return numbers{} // nothing is known yet
	case over != "":
		over += ", the last so far"
	}
	return numbers{rows, over}
}

// measured returns the numbers to show: the numbers of the report, or without a report the numbers over the last steps.
func (f *Follower) measured() *numbers {
	if f.about.ended != nil {
		return f.about.ended
	}
	return &f.soFar
}

// of returns a measured number of the whole pipeline by its name; nil if unknown.
func (n *numbers) of(name string) *float64 {
	for i := range n.rows {
		if c := &n.rows[i]; c.Worker < 0 && c.Name == name && c.Measured != nil {
			return finite(*c.Measured)
		}
	}
	return nil
}

// peak returns the highest measured peak memory of all workers; nil if none is known.
func (n *numbers) peak() (most *float64) {
	for _, m := range n.memory() {
		if m.Measured != nil && (most == nil || *m.Measured > *most) {
			most = m.Measured
		}
	}
	return most
}

// peaks is the peak memory of a worker. Predicted or Measured is nil if it is not known.
type peaks struct {
	Predicted *float64 `json:"predicted,omitempty"`
	Measured  *float64 `json:"measured,omitempty"`
}

// memory returns the peak memory of each worker.
func (n *numbers) memory() (all []peaks) {
	for i := range n.rows {
		if c := &n.rows[i]; c.Unit == report.UnitBytes {
			all = append(all, peaks{c.Predicted, c.Measured})
		}
	}
	return all
}

// shownNumbers is the numbers as a page shows them.
type shownNumbers struct {
	Over   string           `json:"over,omitempty"` // a sentence that names the steps
	Cards  []report.Card    `json:"cards"`
	Means  []report.Meaning `json:"means,omitempty"`  // meanings of the colours of differences
	Memory []peaks          `json:"memory,omitempty"` // by worker
}

func (n *numbers) shown() *shownNumbers {
	s := shownNumbers{Cards: report.Cards(n.rows), Memory: n.memory()}
	if slices.ContainsFunc(s.Cards, func(c report.Card) bool { return c.Difference != "" }) {
		s.Means = report.Meanings()
	}
	if n.over != "" {
		s.Over = "Measured numbers are " + n.over + "."
	}
	return &s
}

// drawMeasured draws the steps of the newest part, whose Timeline is t. If that part has only evaluated, it draws those
// of the newest part that has a complete step, as the report does. If no part has a step, it draws t.
func (f *Follower) drawMeasured(t *trace.Timeline) error {
	if len(t.Steps) > 0 && !t.Stream { // the Timeline has all that the report's choice of a step depends on
		return f.draw(1, &report.Inputs{Plan: f.about.plan, Measured: t})
	}
	in, err := inputs(f.dir)
	if err != nil {
		return errors.Join(err, f.draw(1, &report.Inputs{Plan: f.about.plan, Measured: t}))
	}
	if in.Plan == nil || in.Measured == nil || len(in.Measured.Steps) == 0 {
		return f.draw(1, &report.Inputs{Plan: f.about.plan, Measured: t})
	}
	if in.Simulated != nil {
		err = f.draw(0, &report.Inputs{Plan: in.Plan, Simulated: in.Simulated})
	}
	drawn := report.Inputs{Plan: in.Plan, Measured: in.Measured}
	if in.Measured.Stream {
		drawn.Took = in.Took
	}
	return errors.Join(err, f.draw(1, &drawn))
}
