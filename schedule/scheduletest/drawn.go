package scheduletest

import (
	"pgregory.net/rapid"

	"github.com/millrace-ml/millrace/schedule"
)

// Drawn returns a Choose that uses rapid, which finds the simplest choices that fail.
func Drawn(t *rapid.T) Choose {
	return func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "choice") }
}

// Depths returns valid depths K_i: at most M, and never growing.
func Depths(choose Choose, stages, microBatches int) []int {
	k := make([]int, stages)
	limit := microBatches
	for i := range k {
		k[i] = 1 + choose(limit)
		limit = k[i]
	}
	return k
}

// Replicas places each stage on one to three workers. If replicas take micro-batches in turn, every stage has the same
// number of workers, since depths then apply to each chain of replicas. If replicas split micro-batches, the numbers
// may differ.
func Replicas(choose Choose, stages int) ([][]int, schedule.Replication) {
	how := []schedule.Replication{schedule.Split, schedule.RoundRobin}[choose(2)]
	n, worker := 1+choose(3), 0
	placement := make([][]int, stages)
	for s := range placement {
		for range n {
			placement[s] = append(placement[s], worker)
			worker++
		}
		if how == schedule.Split {
			n = 1 + choose(3)
		}
	}
	return placement, how
}
