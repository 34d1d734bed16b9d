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
	return fmt.Sprintf("Plans of `auto` are %s above their bounds in the mean of %d cases, %s in the median, %s at worst "+
		"(`bench bound`: %s on %s). Of %d over %s%s.", p.marked(h, percent(r.MeanGap)), len(r.Cases),
		percent(stats.Median(gaps)), percent(worst.Gap), worst.Workload, worst.Cluster, r.Above, percent(tight.Large),
		loose(r.Cases))
}

// loose says in how many cases a small version of the case shows what is loose: the proof of the bound, the plan, or
// both. It also says in how many cases this is undecided. Only cases with a large gap have a small version.
func loose(cases []tight.Case) string {
	number := map[string]int{}
	for _, c := range cases {
		if c.Small != nil {
			number[c.Small.Loose]++
		}
	}
	if len(number) == 0 {
		return " none was shrunken"
	}
	return fmt.Sprintf(", small cases show %d loose by proof, %d by plan, %d by both, %d undecided",
		number[tight.Proof], number[tight.Plan], number[tight.Both], number[tight.Undecided])
}
