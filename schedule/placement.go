package schedule

import "fmt"

// Replicated places each of n stages on r workers of its own: stage s on workers s r to s r + r-1.
func Replicated(n, r int) [][]int {
	on := make([][]int, n)
	for w := range n * r {
		on[w/r] = append(on[w/r], w)
	}
	return on
}

// Placement is where the family's stages lie on so many workers: one stage on each, or as the
// order needs. chunks is how many each worker holds, where that can be chosen (Chunks < 0).
func (f Family) Placement(workers, chunks int) [][]int {
	if f.Place == nil {
		return Replicated(workers, 1)
	}
	return f.Place(workers, chunks)
}

// Wrap places v chunks on each of n workers in turn: virtual stage s on worker s mod n
// (interleaved 1F1B, looped BFS).
func Wrap(n, v int) [][]int {
	on := make([][]int, n*v)
	for s := range on {
		on[s] = []int{s % n}
	}
	return on
}

// Vee places two chunks on each of n workers, there and back: worker i holds virtual stages
// i and 2n-1-i, so that the turn is local (ZB-V, V-Half, V-Min).
func Vee(n int) [][]int {
	on := make([][]int, 2*n)
	for s := range on {
		on[s] = []int{min(s, 2*n-1-s)}
	}
	return on
}

// Bidirectional places stage s of n on workers s and n-1-s: two replicas that take
// micro-batches in turn, so that one half of them runs down the workers and the other up (Chimera).
func Bidirectional(n int) [][]int {
	on := make([][]int, n)
	for s := range on {
		on[s] = []int{s, n - 1 - s}
	}
	return on
}

// placed refuses settings whose stages do not lie as the family needs, or fewer micro-batches
// than one for each worker where some are needed.
func (s Settings) placed(want [][]int, how string) error {
	if len(s.Placement) != len(want) {
		return fmt.Errorf("%d virtual stages; %s", len(s.Placement), how)
	}
	for i, on := range s.Placement {
		if len(on) != len(want[i]) {
			return fmt.Errorf("stage %d is on workers %v; %s", i, on, how)
		}
		for r := range on {
			if on[r] != want[i][r] {
				return fmt.Errorf("stage %d is on workers %v; %s", i, on, how)
			}
		}
	}
	if s.Warmup != nil {
		return fmt.Errorf("warm-up depths %v; this order has its own", s.Warmup)
	}
	return nil
}

// workers is how many workers a placement uses.
func (s Settings) workers() int {
	n := 0
	for _, on := range s.Placement {
		for _, w := range on {
			n = max(n, w+1)
		}
	}
	return n
}
