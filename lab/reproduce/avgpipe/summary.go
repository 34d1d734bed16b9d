package avgpipe

import (
	"fmt"
	"maps"
	"slices"

	"github.com/millrace-ml/millrace/internal/stats"
	"github.com/millrace-ml/millrace/lab/reproduce/table"
)

// summary has counts over all trainings, for each assumption.
type summary struct{ by map[string]*counts }

// counts are over all trainings under one assumption. `overDP` and `over` are AvgPipe's speedups over data parallelism
// and over pipelines. `of` is the number of comparisons, and the text prints the degrees for `printed` of them. AvgPipe
// has several pipelines in `several` of all comparisons, and in `printedSeveral` of the printed ones.
type counts struct {
	trainings                            int
	overDP, over                         []float64
	printed, printedSeveral, several, of int
}

func (m *summary) add(w compared, o switched) {
	s := m.by[o.what]
	if s == nil {
		s = &counts{}
		m.by[o.what] = s
	}
	s.trainings++
	for _, r := range o.rows {
		if !r.Fits || r.AvgPipe == nil {
			continue
		}
		if r.Name == dataParallelism {
			s.overDP = append(s.overDP, r.Speedup())
		} else {
			s.over = append(s.over, r.Speedup())
		}
		s.of++
		if r.AvgPipe.At.Pipelines > 1 {
			s.several++
		}
		if w.Degrees[r.Name] != "" {
			s.printed++
			if r.AvgPipe.At.Pipelines > 1 {
				s.printedSeveral++
			}
		}
	}
}

// rows adds the counts, under every assumption that applies to all trainings.
func (m *summary) rows(t *table.Table, trainings int) {
	base := m.by[asDescribed]
	row := func(what string, paper float64, format string, ratio bool, value func(*counts) float64) {
		r := t.Number(what, paper, value(base), format, "")
		if ratio {
			r.Ratio()
		}
		for _, other := range slices.Sorted(maps.Keys(m.by)) {
			if s := m.by[other]; other != asDescribed && s.trainings == trainings {
				r.Ablate(other, value(s), format)
			}
		}
	}
	row("comparisons that several pipelines win, of those whose degrees the text prints", float64(base.printed), "%.0f",
		false, func(s *counts) float64 { return float64(s.printedSeveral) })
	row(fmt.Sprintf("comparisons that several pipelines win, of all %d", base.of), 0, "%.0f", false,
		func(s *counts) float64 { return float64(s.several) })
	row("mean speedup over data parallelism", 4.7, "%.2fx", true, func(s *counts) float64 { return stats.Mean(s.overDP) })
	row("mean speedup over pipelines", 1.7, "%.2fx", true, func(s *counts) float64 { return stats.Mean(s.over) })
}
