package dapple

// stage is one stage, or the network between two, as DAPPLE's estimate sees it:
// seconds of one micro-batch's forward and backward, and of the all-reduce of its gradients.
type stage struct{ F, B, AR float64 }

// pivot is Algorithm 1 of DAPPLE §4.1: the stage Q with the fewest bubbles. It begins with
// the last stage; an earlier one takes over where its steady phase outlasts the pivot's
// and what lies between them, equation (3).
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

// latency is equations (1) and (2): L = Tw + Ts + Te, where
//
//	Tw = sum_{s=0..Q} F_s                       the first micro-batch's way to the pivot
//	Ts = (M-1)(F_Q + B_Q)                       the pivot without bubbles
//	Te = max_s AR_s + sum_{a=s..Q} B_a          for s <= Q
//	     max_s AR_s - sum_{a=Q..s} B_a          for s > Q, which was done that much earlier
//
// It ignores bubbles inside the pivot; the simulator is the judge of those.
//
// L >= M(F_s+B_s) for every stage s, which the search prunes by, beside leastLatency. L >= Ts +
// sum_{0..Q}(F+B) with all-reduces of 0 or more, so it holds for Q. For s < Q equation (3) left Q the pivot:
// (M-1)(F_s+B_s) <= Ts + sum_{s<a<Q}(F_a+B_a), and L holds that and s itself. Each s > Q has a steady phase
// no longer than some pivot's before Q took over, and so than Q's.
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
