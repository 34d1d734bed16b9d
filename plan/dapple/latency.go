package dapple

// stage is a stage, or the network between two, in DAPPLE's estimate. It has the seconds of one micro-batch's
// forward and backward, and of the all-reduce of its gradients.
type stage struct{ F, B, AR float64 }

// pivot returns the stage Q with the fewest bubbles, by Algorithm 1 of DAPPLE §4.1. It begins with the last stage and
// goes to earlier ones. A stage replaces the pivot if its steady phase takes longer than the sum of two times (equation
// 3): the pivot's steady phase, and one micro-batch in the stages between this stage and the pivot.
func pivot(stages []stage, M int) int {
	Q, between := len(stages)-1, 0.0
	for s := Q - 1; s >= 0; s-- {
		steady := float64(M-1) * (stages[s].F + stages[s].B)
		if steady > float64(M-1)*(stages[Q].F+stages[Q].B)+between {
			Q, between = s, 0
		} else {
			between += stages[s].F + stages[s].B
		}
	}
	return Q
}

// latency returns L of equations (1) and (2): L = Tw + Ts + Te, with
//
//	Tw = sum_{s=0..Q} F_s                       the first micro-batch's way to the pivot
//	Ts = (M-1)(F_Q + B_Q)                       the pivot without bubbles
//	Te = max_s AR_s + sum_{a=s..Q} B_a          for s <= Q
//	     max_s AR_s - sum_{a=Q..s} B_a          for s > Q, which ended that much earlier
//
// It ignores bubbles inside the pivot; the simulator counts them.
//
// The search prunes by L >= M(F_s+B_s) for every stage s, besides leastLatency. Proof: L >= Ts + sum_{0..Q}(F+B)
// because all-reduces take 0 or more, so the claim holds for Q. For s < Q, Q remained the pivot by equation (3):
// (M-1)(F_s+B_s) <= Ts + sum_{s<a<Q}(F_a+B_a). L is at least this right side plus F_s+B_s. Each s > Q has a steady
// phase at most as long as that of some earlier pivot, and so at most as long as Q's.
func latency(stages []stage, M int) float64 {
	Q := pivot(stages, M)
	warm, end, back := 0.0, stages[Q].AR+stages[Q].B, stages[Q].B
	for s := Q - 1; s >= 0; s-- {
		back += stages[s].B
		end = max(end, stages[s].AR+back)
	}
	for _, s := range stages[:Q+1] {
		warm += s.F
	}
	back = stages[Q].B
	for _, s := range stages[Q+1:] {
		back += s.B
		end = max(end, s.AR-back)
	}
	return warm + float64(M-1)*(stages[Q].F+stages[Q].B) + end
}
