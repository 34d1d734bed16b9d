package schedule

import "slices"

// Replicated places each of n stages on r workers: stage s on workers s*r to s*r + r-1.
func Replicated(n, r int) [][]int { return Replicas(slices.Repeat([]int{r}, n)) }

// Replicas places stage s on workers[s] workers, in order. For instance, 2, 1 places stage 0 on workers 0 and 1, and
// stage 1 on worker 2 (PipeDream's configuration 2-1).
func Replicas(workers []int) [][]int {
	on := make([][]int, len(workers))
	next := 0
	for stage, n := range workers {
		for range n {
			on[stage] = append(on[stage], next)
			next++
		}
	}
	return on
}

// Wrap places v chunks on each of n workers, round robin: virtual stage s on worker s mod n (interleaved 1F1B, looped
// BFS).
func Wrap(n, v int) [][]int {
	on := make([][]int, n*v)
	for s := range on {
		on[s] = []int{s % n}
	}
	return on
}

// Vee places two chunks on each of n workers, there and back: worker i holds virtual stages i and 2n-1-i. So no message
// is needed where the V turns (ZB-V, V-Half, V-Min).
func Vee(n int) [][]int {
	on := make([][]int, 2*n)
	for s := range on {
		on[s] = []int{min(s, 2*n-1-s)}
	}
	return on
}

// Bidirectional places stage s of n on workers s and n-1-s: two replicas that take micro-batches in turn. One half of
// the micro-batches goes down the workers and the other half up (Chimera).
func Bidirectional(n int) [][]int {
	on := make([][]int, n)
	for s := range on {
		on[s] = []int{s, n - 1 - s}
	}
	return on
}
