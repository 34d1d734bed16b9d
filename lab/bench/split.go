package bench

import (
	"math/rand/v2"
	"slices"
)

// Split is a random way to cut a model. Schedule and Recompute are empty if there is only one stage.
type Split struct {
	Cuts       []int // first layers of stages 1, 2, ...
	Schedule   string
	Recompute  string
	MicroBatch int // one of the given sizes; 0 if none were given
}

// RandomSplit cuts the layers at random places into one stage for each worker, or into fewer if there are not enough
// layers.
func RandomSplit(rng *rand.Rand, layers, workers int, sizes []int) Split {
	cuts := rng.Perm(layers - 1)[:min(workers, layers)-1]
	for i := range cuts {
		cuts[i]++
	}
	slices.Sort(cuts)
	s := Split{
		Cuts: cuts, Schedule: []string{"1f1b", "afab", "pb"}[rng.IntN(3)],
		Recompute: []string{"none", "none", "all", "every:2"}[rng.IntN(4)],
	}
	if len(sizes) > 0 {
		s.MicroBatch = sizes[rng.IntN(len(sizes))]
	}
	if len(cuts) == 0 {
		s.Schedule, s.Recompute = "", ""
	}
	return s
}
