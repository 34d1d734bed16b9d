package defaults

import (
	"fmt"
	"strings"

	"github.com/millrace-ml/millrace/report"
)

// Table returns the results as a table.
func (r *Results) Table() *report.Table {
	t := &report.Table{Head: []string{"training", "optimizer", " rate", " warm-up", " batch", " first loss", " highest",
		" reached", " steps", " accuracy", "--set"}}
	for _, one := range r.Results {
		accuracy := "-"
		if one.Accuracy != nil {
			accuracy = fmt.Sprintf("%.1f %%", 100**one.Accuracy)
		}
		settings := []string{}
		for _, setting := range one.Settings {
			settings = append(settings, "`"+setting+"`")
		}
		t.Add(one.Name, one.Training.Optimizer, one.Training.Rate, one.Training.Warmup, one.Batch,
			fmt.Sprintf("%.3f", one.First), fmt.Sprintf("%.3f", one.Highest), fmt.Sprintf("%.3f", one.Reached), one.Steps,
			accuracy, strings.Join(settings, " "))
	}
	return t
}
