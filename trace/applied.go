package trace

import (
	"slices"

	"github.com/millrace-ml/millrace/internal/stats"
)

// Staleness returns the median and the greatest staleness over all updates, or 0 if Applied is empty. An update's
// staleness is the number of updates between the weights with which its gradients were computed and itself. all
// begins with the training's first update, or with the first after a checkpoint, which uses the checkpoint's
// weights.
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

// Behind returns by how many steps the references that pipelines saw were behind: the median and the most over all
// updates. It is 0 if Seen is empty.
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
