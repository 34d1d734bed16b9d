package benchmarks

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/millrace-ml/millrace/internal/stats"
	"github.com/millrace-ml/millrace/lab/reproduce/tight"
)

// bounds says how much slower plans are than their bounds.
func (p *page) bounds() string {
	r, h := named[tight.Results](p.files, "bound")
	if r == nil || len(r.Cases) == 0 {
		return "How far plans are above their bounds (`bench bound`): " + none + "."
	}
	var gaps []float64
	for _, c := range r.Cases {
		gaps = append(gaps, c.Gap)
	}
	worst := slices.MaxFunc(r.Cases, func(a, b tight.Case) int { return cmp.Compare(a.Gap, b.Gap) })
	return fmt.Sprintf("Plans of `auto` are %s above a step that no plan can beat in the mean of %d cases, %s in the "+
		"median (`bench bound`, batch %d); %d are over %s, and %s on %s is %s.%s", p.marked(h, percent(r.MeanGap)),
		len(r.Cases), percent(stats.Median(gaps)), r.Batch, r.Above, percent(tight.Large), worst.Workload, worst.Cluster,
		percent(worst.Gap), loose(r.Cases))
}

// loose says for how many cases with a large gap a small case like it shows what is loose.
func loose(cases []tight.Case) string {
	number := map[string]int{}
	for _, c := range cases {
		if c.Small != nil {
			number[c.Small.Loose]++
		}
	}
	if len(number) == 0 {
		return ""
	}
	return fmt.Sprintf(" Small cases like these show that of %d the proof is loose, of %d the plan, and of %d both; %d "+
		"are undecided.", number[tight.Proof], number[tight.Plan], number[tight.Both], number[tight.Undecided])
}
