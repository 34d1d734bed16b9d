package trace

import (
	"slices"

	"github.com/millrace-ml/millrace/internal/stats"
)

// Staleness returns the median and the greatest staleness over all updates; both are 0 if there are none. An update's
// staleness is the number of updates that were made before it, but after the weights with which its gradients were
// computed. `all` must hold every update in order, from the first of the training or the first after a checkpoint.
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

// Behind returns how many steps late the reference was when a pipeline was pulled towards it: the median and the
// largest number over all records. Both are 0 if there are none.
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
