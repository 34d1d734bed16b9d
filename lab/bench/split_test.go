package bench

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// Every split has a stage for each worker, or for each layer if there are fewer layers. Among 400 random splits, all
// choices and all cuts occur.
func TestRandomSplits(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 7))
	seen := map[any]int{}
	for range 400 {
		s := RandomSplit(rng, 6, 3, []int{4, 8})
		if len(s.Cuts) != 2 || s.Cuts[0] < 1 || s.Cuts[1] > 5 || s.Cuts[0] >= s.Cuts[1] {
			t.Fatalf("cuts %v of 6 layers", s.Cuts)
		}
		seen[s.Schedule], seen[s.Recompute], seen[s.MicroBatch] = 1, 1, 1
		seen[[2]int(s.Cuts)] = 1
	}
	if len(seen) != 3+3+2+10 {
		t.Errorf("%d choices came up: %v", len(seen), seen)
	}
	if s := RandomSplit(rng, 3, 9, nil); !slices.Equal(s.Cuts, []int{1, 2}) || s.MicroBatch != 0 {
		t.Errorf("3 layers for 9 workers: %+v", s)
	}
	for range 20 {
		if s := RandomSplit(rng, 5, 1, nil); len(s.Cuts) != 0 || s.Schedule != "" || s.Recompute != "" {
			t.Errorf("one worker: %+v", s)
		}
	}
}
