package bench

import (
	"errors"
	"fmt"
	"io"

	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/lab/race"
	"github.com/millrace-ml/millrace/lab/record"
	"github.com/millrace-ml/millrace/report"
)

// ImportedReport is the result of bench imported.
type ImportedReport struct {
	record.Head
	Torch   string           `json:"torch"`
	Modules []ImportedModule `json:"modules"`
}

// ImportedModule is the result for one module: its plans, whether the rival gets the same losses, and how fast both
// are.
type ImportedModule struct {
	Name      string         `json:"name"`
	Unit      race.Unit      `json:"unit"`
	Choice    string         `json:"choice"`   // millrace's plan for two workers
	Pipeline  string         `json:"pipeline"` // millrace's plan if data parallelism is excluded
	Own       string         `json:"own,omitempty"`
	Agreement race.Agreement `json:"agreement"` // agreement of the pipeline with the rival
	// Chosen is the agreement of the chosen plan with the rival, if that plan is not the pipeline.
	Chosen *race.Agreement `json:"chosen,omitempty"`
	Sweep  []race.Measured `json:"sweep"`
	Speeds []Speed         `json:"speeds"`
}

// Speed is a comparison with its target. If Least is above 0, the median ratio must be at least Least. If Least is 0,
// the interval must not lie wholly below 1.
type Speed struct {
	race.Result
	Least float64 `json:"least"`
}

// Verdict reports whether the comparison meets its target.
func (s *Speed) Verdict() (text string, good bool) {
	switch {
	case s.Least > 0 && s.MedianRatio >= s.Least:
		return fmt.Sprintf("reaches %.1f", s.Least), true
	case s.Least > 0:
		return fmt.Sprintf("below %.1f", s.Least), false
	case s.Hi < 1:
		return "broken", false
	}
	return "reported", true
}

// Missed returns an error for each comparison that misses its target; nil if there is none.
func (r *ImportedReport) Missed() (all error) {
	for _, m := range r.Modules {
		for i := range m.Speeds {
			s := &m.Speeds[i]
			if text, good := s.Verdict(); !good {
				all = errors.Join(all, fmt.Errorf("%s: %s has %.3f of the speed of %s (%.3f to %.3f): %s", m.Name, s.A.Name,
					s.MedianRatio, s.B.Name, s.Lo, s.Hi, text))
			}
		}
	}
	return all
}

// Kind returns the name of the benchmark, as in Head.Bench.
func (r *ImportedReport) Kind() string { return "imported" }

// Recount returns an error for numbers that do not follow from the pairs.
func (r *ImportedReport) Recount() (wrong error) {
	for _, m := range r.Modules {
		for _, s := range m.Speeds {
			wrong = errors.Join(wrong, recount(&r.Head, m.Name, &s.Result))
		}
	}
	return wrong
}

// Write writes the report as Markdown.
func (r *ImportedReport) Write(w io.Writer) error {
	fmt.Fprintf(w, "%s: PyTorch %s, on %s (%d cores), load %s, in %s.\n", r.What, r.Torch, r.Machine.Processor,
		r.Machine.Cores, r.Machine.Load, terminal.Duration(r.TookS))
	t := report.Table{Head: []string{"module", "A", "B", " A over B", " 95 % interval", " pairs", "verdict"}}
	for _, m := range r.Modules {
		for _, s := range m.Speeds {
			text, _ := s.Verdict()
			t.Add(m.Name, s.A.Name, s.B.Name, fmt.Sprintf("%.3f", s.MedianRatio), fmt.Sprintf("%.3f to %.3f", s.Lo, s.Hi),
				len(s.Ratios), text)
		}
	}
	fmt.Fprintln(w)
	if err := t.Markdown(w); err != nil {
		return err
	}
	for _, m := range r.Modules {
		fmt.Fprintf(w, "\n%s: losses of %d steps within %.2g of each other. Choice: %s. Pipeline: %s.\n", m.Name,
			len(m.Agreement.LossA), m.Agreement.Within, m.Choice, m.Pipeline)
		if m.Own != "" {
			fmt.Fprintf(w, "The built-in model's choice: %s.\n", m.Own)
		}
		fmt.Fprintln(w)
		if err := race.WriteSweep(w, m.Unit, m.Sweep); err != nil {
			return err
		}
	}
	return nil
}
