package benchmarks

import (
	"fmt"
	"slices"
	"strings"

	"github.com/millrace-ml/millrace/lab/reproduce/tight"
)

// bounds is a table of how far plans are above their bounds, by model and cluster, and what is behind the large gaps.
func (p *page) bounds() string {
	r, h := named[tight.Results](p.files, "bound")
	if r == nil || len(r.Cases) == 0 {
		return "Plans of `auto` beside their bounds (`bench bound`): " + none + "."
	}
	var models, clusters []string
	of := map[[2]string]tight.Case{}
	loose := map[string]int{}
	worst := r.Cases[0]
	for _, c := range r.Cases {
		if !slices.Contains(models, c.Workload) {
			models = append(models, c.Workload)
		}
		if !slices.Contains(clusters, c.Cluster) {
			clusters = append(clusters, c.Cluster)
		}
		if of[[2]string{c.Workload, c.Cluster}] = c; c.Gap > worst.Gap {
			worst = c
		}
		if c.Small != nil {
			loose[c.Small.Loose]++
		}
	}
	text := fmt.Sprintf("Plans of `auto` are %s above a bound that no plan can beat in the mean of %d cases, at a batch "+
		"of %d (`bench bound`); %d are more than %.0f %%, and %s on %s is %.0f %%. By cases shrunken until all plans can be "+
		"simulated it is the proof that is loose in %d of these, the plan in %d, and both in %d.",
		p.marked(h, fmt.Sprintf("%.1f %%", 100*r.MeanGap)), len(r.Cases), r.Batch, r.Above, 100*tight.Large, worst.Workload,
		worst.Cluster, 100*worst.Gap, loose[tight.Proof], loose[tight.Plan], loose[tight.Both])
	rows := []string{"| gap, % | " + strings.Join(clusters, " | ") + " |",
		"|---|" + strings.Repeat("---:|", len(clusters))}
	for _, m := range models {
		row := "| " + m
		for _, on := range clusters {
			c, ok := of[[2]string{m, on}]
			switch {
			case !ok:
				row += " | " + none
			case c.Small == nil:
				row += fmt.Sprintf(" | %.1f", 100*c.Gap)
			default:
				row += fmt.Sprintf(" | %.1f (%s)", 100*c.Gap, c.Small.Loose)
			}
		}
		rows = append(rows, row+" |")
	}
	return text + "\n\n" + strings.Join(rows, "\n")
}
