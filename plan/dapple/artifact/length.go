package artifact

import "fmt"

// Length is when the last backward of one synchronous iteration ends in a strict 1F1B order. It is the double
// recursion of DAPPLE's published planner (oracles' HPGO script; §3.2's schedule). Stage x, network stages counted
// as stages, has warmup[x] forwards before its first backward. Forward i there waits for forward i of the stage
// before, its own forward i-1 and its own backward i-warmup[x]; backward i for backward i of the stage behind, its
// own backward i-1 and its own forward i+warmup[x]-1.
//
// forward and backward are seconds of one micro-batch by stage; the result is seconds,
// without all-reduces. Warm-ups must not rise from one stage to the next, or forwards and
// backwards would wait for each other: that, lengths that differ and counts below 1 are
// refused. Time: O(stages x microBatches).
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

// pipelineEnds is when each stage ends its last forward and backward. inOrder false leaves
// out that a backward waits for the one before it on its stage once no forward stands
// between them, as DAPPLE's sync_pipeline_speedup_recursive does.
func pipelineEnds(forward, backward []float64, M int, warmup []int, inOrder bool) (forwards, backwards []float64) {
	S := len(forward)
	// Forwards run ahead of the backward that they wait for by a warm-up, and what a stage reads of the one
	// before it by the difference of two: of so many micro-batches f is kept, of b the one before.
	ring := 1
	for _, k := range warmup {
		ring = max(ring, min(k, M)+1)
	}
	f, b := make([][]float64, ring), [2][]float64{make([]float64, S), make([]float64, S)}
	for i := range f {
		f[i] = make([]float64, S)
	}
	// What f and b of micro-batch i wait for has been worked out when, for every stage,
	// forwards up to i+warmup-1 are: those wait for backwards below i alone.
	done := make([]int, S) // forwards worked out, by stage
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
				if n >= warmup[x] { // backward n-warmup is i-1
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
