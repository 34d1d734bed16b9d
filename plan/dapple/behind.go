package dapple

import "math"

// sameBound is the relative difference below which two times in a bound count as equal, so that rounding decides
// nothing.
const sameBound = 1e-12

// behind holds lower bounds on the times of the stages after some point of a pipeline. The bounds hold for every
// division of the remaining layers into stages. The transfers before and between these stages count as stages. F, B and
// AR are as in stage, M is the number of micro-batches, and L the latency.
type behind struct {
	// steady is (M-1)(F+B) of the pivot among these stages, plus F+B of the stages before the pivot. An earlier stage
	// becomes the pivot only if its own (M-1)(F+B) is larger, equation (3).
	steady float64
	// through is M(F+B) of the pivot among these stages, plus F+B of the stages before the pivot.
	through float64
	// late is L of these stages only.
	late float64
	// over is the maximum, over these stages s, of AR minus the sum of B from the first of these stages to s.
	over float64
}

// nowhere is the bound of stages that cannot exist.
var nowhere = behind{math.Inf(1), math.Inf(1), math.Inf(1), math.Inf(1)}

// either returns the bound that holds for both h and o.
func (h behind) either(o behind) behind {
	return behind{min(h.steady, o.steady), min(h.through, o.through), min(h.late, o.late), min(h.over, o.over)}
}

// step is one more stage or network, with lower bounds on F, B and AR and upper bounds on B and F+B. If the bounds
// are equal, its times are exact.
type step struct {
	stage
	mostB, mostR float64
}

// before returns the bound with one more stage before the others: equations (1) to (3) from the last stage to the
// first. Let R = F+B of the new stage, and compare it with the later pivot.
//
//	if (M-1) R > steady it is the pivot         otherwise the later pivot stays
//		steady  = (M-1) R                           R + steady
//		through = M R                               R + through
//		late    = F + (M-1) R + max(AR+B, over-B)   F + max(AR+B + through, late)
//	and in both cases
//		over    = max(AR, over) - B
//
// Here `through` is the sum of the F up to the pivot, the steady phase, and the B up to the pivot. For an earlier
// stage, Te adds this stage's AR and B to `through`. For a later stage, `late` contains Te. If only bounds are known,
// both cases may apply, and the smaller result counts. If the new stage is the pivot, R is at least steady/(M-1). If
// the later pivot stays, `steady` and `through` are both at least (M-1) R.
func (h behind) before(s *step, M int) behind {
	more, R := float64(M-1), s.F+s.B
	out := nowhere
	out.over = max(s.AR, h.over) - s.mostB
	if more*s.mostR*(1+sameBound) > h.steady {
		least := max(R, min(h.steady/more, s.mostR))
		out.steady, out.through = more*least, more*least+least
		out.late = s.F + more*least + max(s.AR+s.B, h.over-s.mostB)
	}
	if s.mostR > R || more*R <= h.steady*(1+sameBound) {
		out.steady = min(out.steady, R+max(h.steady, more*R))
		through := max(h.through, more*R)
		out.through = min(out.through, R+through)
		out.late = min(out.late, s.F+max(s.AR+s.B+through, h.late))
	}
	return out
}

// last returns the bound of a last stage.
func (s *step) last(M int) behind {
	R := s.F + s.B
	steady := float64(M-1) * R
	return behind{steady: steady, through: steady + R, late: s.F + steady + s.AR + s.B, over: s.AR - s.mostB}
}

// leastLatency returns a lower bound on L of a pipeline that begins with the stages in `stages`, whose times are exact.
// `behind` bounds the stages after them.
func leastLatency(stages []stage, behind *behind, M int) float64 {
	h, more := *behind, float64(M-1)
	for i := len(stages) - 1; i >= 0; i-- {
		s := &stages[i]
		R := s.F + s.B
		if more*R*(1+sameBound) > h.steady { // if rounding decides, take the smaller result
			h.late = s.F + more*R + max(s.AR+s.B, h.over-s.B)
			h.steady, h.through = more*R, more*R+R
		} else {
			h.late = s.F + max(s.AR+s.B+h.through, h.late)
			h.steady, h.through = R+h.steady, R+h.through
		}
		h.over = max(s.AR, h.over) - s.B
	}
	return h.late
}
