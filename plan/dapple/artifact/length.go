package artifact

import "fmt"

// Length returns when the last backward of one synchronous iteration ends in a strict 1F1B order. It is the double
// recursion of DAPPLE's published planner (oracles' HPGO script; §3.2's schedule). Stage x has warmup[x] forwards
// before its first backward; network stages count as stages. Forward i waits for forward i of the previous stage, and
// for its own forward i-1 and backward i-warmup[x]. Backward i waits for backward i of the next stage, and for its own
// backward i-1 and forward i+warmup[x]-1.
//
// forward and backward have the seconds of one micro-batch by stage. The result is in seconds, without all-reduces. It
// returns an error if warm-ups rise from one stage to the next, because forwards and backwards would then wait for each
// other. Lists of different lengths and counts below 1 are errors too. Time: O(stages x microBatches).
func Length(forward, backward []float64, microBatches int, warmup []int) (float64, error) {
	if len(forward) == 0 || len(backward) != len(forward) || len(warmup) != len(forward) || microBatches < 1 {
		return 0, fmt.Errorf("plan: pipeline of %d forwards, %d backwards and %d warm-ups with %d micro-batches; it "+
			"needs one of each by stage, and a micro-batch", len(forward), len(backward), len(warmup), microBatches)
	}
	for x, k := range warmup {
		if k < 1 || x > 0 && k > warmup[x-1] {
			return 0, fmt.Errorf("plan: stage %d of the pipeline warms up with %d micro-batches; it is 1 or more, "+
				"and no more than the stage before", x, k)
		}
	}
	_, ends := pipelineEnds(forward, backward, microBatches, warmup, true)
	length := 0.0
	for _, end := range ends {
		length = max(length, end)
	}
	return length, nil
}

// pipelineEnds returns when each stage ends its last forward and backward. With inOrder false, a backward does not wait
// for the stage's previous backward if no forward comes between the two. The published sync_pipeline_speedup_recursive
// works like that.
func pipelineEnds(forward, backward []float64, M int, warmup []int, inOrder bool) (forwards, backwards []float64) {
	S := len(forward)
	// f keeps the times of the last forwards, and b those of the last two backwards. Forwards that are still read are
	// at most one warm-up behind the newest forward of their stage. So f keeps as many forwards as the largest warm-up,
	// plus one.
	ring := 1
	for _, k := range warmup {
		ring = max(ring, min(k, M)+1)
	}
	f, b := make([][]float64, ring), [2][]float64{make([]float64, S), make([]float64, S)}
	for i := range f {
		f[i] = make([]float64, S)
	}
	// In round i, all stages first compute their forwards up to i+warmup-1, which wait only for backwards before i.
	// After that, everything that the backwards of micro-batch i wait for is known.
	done := make([]int, S) // number of computed forwards, by stage
	for i := range M {
		for x := range S {
			for last := min(M, i+warmup[x]); done[x] < last; done[x]++ {
				n := done[x]
				at := 0.0
				if x > 0 {
					at = f[n%ring][x-1]
				}
				if n > 0 {
					at = max(at, f[(n-1)%ring][x])
				}
				if n >= warmup[x] { // forward n waits for backward n-warmup[x], which is backward i-1
					at = max(at, b[(i+1)%2][x])
				}
				f[n%ring][x] = at + forward[x]
			}
		}
		for x := S - 1; x >= 0; x-- {
			at := 0.0
			if x < S-1 {
				at = b[i%2][x+1]
			}
			if n := i + warmup[x] - 1; n < M {
				at = max(at, f[n%ring][x])
			} else if inOrder {
				at = max(at, f[(M-1)%ring][x])
			}
			if inOrder && i > 0 {
				at = max(at, b[(i+1)%2][x])
			}
			b[i%2][x] = at + backward[x]
		}
	}
	return f[(M-1)%ring], b[(M-1)%2]
}
