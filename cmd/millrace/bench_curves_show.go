package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/millrace-ml/millrace/bench"
	"github.com/millrace-ml/millrace/report"
)

// show prints what was found.
func (f *curvesFlags) show(c *cobra.Command, l *learning, trained map[string][]bench.Training) error {
	metric := bench.Metric(f.metric)
	target := f.target
	if target == 0 {
		var sync [][]bench.Point
		for _, t := range trained["sync"] {
			sync = append(sync, t.Points)
		}
		var err error
		if target, err = metric.ReachedBy(sync, 2./3); err != nil {
			return badInput(fmt.Errorf("%w; give a --target, or let it learn first", err))
		}
	}
	t := report.Table{Head: []string{"method", " lr", " epochs to target", " least", " most", " of sync's", " missed", " diverged", " best " + f.metric}}
	sync := metric.Efficiency(trained["sync"], target)
	for _, m := range l.methods {
		e := metric.Efficiency(trained[m.Name], target)
		row := []any{m.Name, fmt.Sprintf("%.3g", l.job.Rate.Base*m.lr)}
		if len(e.Epochs) > 0 {
			row = append(row, fmt.Sprintf("%.3f", e.Mean), fmt.Sprintf("%.3f", e.Lo), fmt.Sprintf("%.3f", e.Hi), fmt.Sprintf("%.3f", e.Mean/sync.Mean))
		} else {
			row = append(row, "–", "–", "–", "–")
		}
		t.Add(append(row, fmt.Sprintf("%d of %d", e.Missed, len(trained[m.Name])), e.Diverged, fmt.Sprintf("%.4f", e.Best))...)
	}
	fmt.Fprintf(c.OutOrStdout(), "%s of %.4g\n\n", f.metric, target)
	return t.Markdown(c.OutOrStdout())
}
