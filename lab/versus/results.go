package versus

import (
	"errors"
	"fmt"
	"io"

	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/lab/record"
	"github.com/millrace-ml/millrace/report"
)

// Results is the result of a comparison, in the form of its file in lab/results.
type Results struct {
	record.Head
	Old    *Build   `json:"old"`
	New    *Build   `json:"new"`
	Rows   []Row    `json:"rows,omitempty"`
	Splits []Splits `json:"splits,omitempty"`
}

// Kind returns the Head's Bench, which is the same for all comparisons of builds.
func (r *Results) Kind() string { return Kind }

// Kind is the Head's Bench of every comparison of builds.
const Kind = "versus"

// Recount refuses speeds and intervals that do not follow from the pairs. It also refuses errors and correlations of
// predictions that do not follow from the plans.
func (r *Results) Recount() error {
	var wrong error
	for _, row := range r.Rows {
		ratios, err := row.ratios()
		wrong = errors.Join(wrong, err, r.Median(row.Name+": speed", ratios, row.Speed, row.Interval))
	}
	for _, s := range r.Splits {
		if len(s.Plans) == 0 {
			wrong = errors.Join(wrong, fmt.Errorf("%s, %s has no plans", s.Model, s.Build))
			continue
		}
		counted := s
		counted.count()
		name := s.Model + ", " + s.Build
		wrong = errors.Join(wrong, r.Value(name+": off_median", s.OffMedian, counted.OffMedian),
			r.Value(name+": off_worst", s.OffWorst, counted.OffWorst),
			r.Value(name+": correlation", s.Correlation, counted.Correlation))
	}
	return wrong
}

// Markdown writes the results in the form of BENCHMARKS.md.
func (r *Results) Markdown(w io.Writer) error {
	fmt.Fprintf(w, "%s, on %s (%d cores), load %s, in %s.\n", r.What, r.Machine.Processor, r.Machine.Cores, r.Machine.Load,
		terminal.Duration(r.TookS))
	if len(r.Rows) > 0 {
		t := report.Table{Head: []string{"what", " pairs", " " + r.Old.called("old"), " " + r.New.called("new"),
			fmt.Sprintf(" speed of %s over %s", r.New.called("new"), r.Old.called("old")), " 95 % interval",
			"slower than allowed"}}
		for _, row := range r.Rows {
			slower := "stated only"
			if row.Limit > 0 {
				slower = fmt.Sprintf("no (%.2f)", row.Limit)
			}
			if row.Slower {
				slower = fmt.Sprintf("yes (%.2f)", row.Limit)
			}
			t.Add(row.Name, len(row.OldS), terminal.Duration(row.OldMedianS), terminal.Duration(row.NewMedianS),
				fmt.Sprintf("%.3f", row.Speed), fmt.Sprintf("%.3f to %.3f", row.Interval.Lo, row.Interval.Hi), slower)
		}
		fmt.Fprintln(w)
		if err := t.Markdown(w); err != nil {
			return err
		}
	}
	if len(r.Splits) == 0 {
		return nil
	}
	t := report.Table{Head: []string{"model", "build", " splits", " measured over predicted", " quartiles",
		" step off: median", " worst", " correlation"}}
	for _, s := range r.Splits {
		t.Add(s.Model, s.Build, len(s.Plans), fmt.Sprintf("%.3f", s.Ratio), fmt.Sprintf("%.3f to %.3f", s.Lower, s.Upper),
			fmt.Sprintf("%.1f %%", 100*s.OffMedian), fmt.Sprintf("%.1f %%", 100*s.OffWorst), fmt.Sprintf("%.3f", s.Correlation))
	}
	fmt.Fprintln(w)
	return t.Markdown(w)
}
