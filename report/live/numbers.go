package live

import (
	"slices"

	"github.com/millrace-ml/millrace/report"
	"github.com/millrace-ml/millrace/report/folder"
	"github.com/millrace-ml/millrace/trace"
)

// numbers is predicted against measured: those of a report, or of the last steps of a run that has none.
type numbers struct {
	rows []report.Comparison
	over string // of which steps
}

// reported is the numbers that the report of a run's folder has, from the function that the report has them from.
func reported(dir string) (*numbers, error) {
	run, err := folder.ReadParts(dir)
	if err != nil {
		return nil, err
	}
	rows, over, err := report.CompareOver(run.Inputs())
	if err != nil {
		return nil, err
	}
	return &numbers{rows, over}, nil
}

// ofTheLastSteps is the numbers while there is no report.
func (f *Follower) ofTheLastSteps() numbers {
	in := report.Inputs{Plan: f.about.plan, Took: f.recent}
	if len(f.evaluations.parts) > 0 {
		in.Evaluations = []trace.Evaluation{{}} // their memory is predicted apart
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

// measured is the numbers that are shown.
func (f *Follower) measured() *numbers {
	if f.about.ended != nil {
		return f.about.ended
	}
	return &f.soFar
}

// of is a number of the whole pipeline, as it was measured; nil: it is not known.
func (n *numbers) of(name string) *float64 {
	for i := range n.rows {
		if c := &n.rows[i]; c.Worker < 0 && c.Name == name && c.Measured != nil {
			return finite(*c.Measured)
		}
	}
	return nil
}

// peak is what the fullest worker has held.
func (n *numbers) peak() (most *float64) {
	for _, m := range n.memory() {
		if m.Measured != nil && (most == nil || *m.Measured > *most) {
			most = m.Measured
		}
	}
	return most
}

// peaks is the memory of a worker at its fullest; a side that nobody knows is nil.
type peaks struct {
	Predicted *float64 `json:"predicted,omitempty"`
	Measured  *float64 `json:"measured,omitempty"`
}

// memory is that of each worker.
func (n *numbers) memory() (all []peaks) {
	for i := range n.rows {
		if c := &n.rows[i]; c.Unit == report.UnitBytes {
			all = append(all, peaks{c.Predicted, c.Measured})
		}
	}
	return all
}

// shownNumbers is what a page shows of them.
type shownNumbers struct {
	Over   string           `json:"over,omitempty"` // a sentence
	Cards  []report.Card    `json:"cards"`
	Means  []report.Meaning `json:"means,omitempty"`  // of the colours of their differences
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
