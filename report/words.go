package report

import (
	"fmt"
	"strings"

	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/trace"
)

func Percent(x float64) string { return fmt.Sprintf("%.1f %%", 100*x) }

// Duration is a long time in the unit that suits it.
func Duration(s float64) string {
	switch {
	case s >= 2*24*3600:
		return fmt.Sprintf("%.3g days", s/24/3600)
	case s >= 2*3600:
		return fmt.Sprintf("%.3g h", s/3600)
	case s >= 120:
		return fmt.Sprintf("%.3g min", s/60)
	}
	return trace.Seconds(s)
}

// ShortPlan is a plan in a table's cell.
func ShortPlan(pl *plan.Plan) string {
	if len(pl.Stages) == 1 {
		return fmt.Sprintf("%d workers, %d x %d", len(pl.Stages[0].Devices), pl.MicroBatches, pl.MicroBatch)
	}
	var cuts []string
	again := ""
	for _, s := range pl.Stages[1:] {
		cuts = append(cuts, fmt.Sprint(s.FirstLayer))
	}
	if pl.Stages[0].Recompute.Again() {
		again = ", recompute " + pl.Stages[0].Recompute.String()
	}
	return fmt.Sprintf("%s, cut at %s, %d x %d%s", pl.Schedule, strings.Join(cuts, " "), pl.MicroBatches, pl.MicroBatch,
		again)
}
