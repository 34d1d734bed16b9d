package trace

import (
	"slices"

	"github.com/millrace-ml/millrace/internal/stats"
)

// Staleness is how many updates were made between the weights that gradients were computed with and the update by them:
// the median over all updates, and the most; nothing where Applied says nothing. All is updates from the training's
// first on, or those behind a checkpoint, whose first goes by the weights that were there.
func Staleness(all []Applied) (median float64, most int) {
	if len(all) == 0 {
		return 0, 0
	}
	first := slices.MinFunc(all, func(a, b Applied) int { return a.Step - b.Step }).Step
	var stale []float64
	for k, a := range all {
		by := first + k - a.Version
		stale, most = append(stale, float64(by)), max(most, by)
	}
	return stats.Median(stale), most
}

// Behind is how many steps the references that pipelines saw were behind their own: the median over all updates, and
// the most; nothing where Seen says nothing.
func Behind(all []Seen) (median float64, most int) {
	if len(all) == 0 {
		return 0, 0
	}
	var behind []float64
	for _, s := range all {
		behind, most = append(behind, float64(s.Step-s.Version)), max(most, s.Step-s.Version)
	}
	return stats.Median(behind), most
}
