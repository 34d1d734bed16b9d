package dapple

import "math"

// sameBound is how much less, relatively, a time must be to count as less in a bound, where rounding would
// decide.
const sameBound = 1e-12

// behind has lower bounds on the stages behind some place of a pipeline. They include the networks between and before
// those stages, and hold whatever the stages are.
type behind struct {
	// steady is (M-1)(F+B) of the pivot among them and F+B of those before it: what a stage
	// before them must outlast to be the pivot itself, equation (3).
	steady float64
	// through is F+B of those before that pivot and M(F+B) of it.
	through float64
	// late is L of them alone.
	late float64
	// over is the most AR of one of them less B of all of them up to that one.
	over float64
}

// nowhere is the bound of stages that cannot exist.
var nowhere = behind{math.Inf(1), math.Inf(1), math.Inf(1), math.Inf(1)}

// either is what is known where it is one or the other.
func (h behind) either(o behind) behind {
	return behind{min(h.steady, o.steady), min(h.through, o.through), min(h.late, o.late), min(h.over, o.over)}
}

// step is one more stage or network, with lower bounds on F, B and AR and upper bounds on B and F+B. Where the
// bounds are equal it is known exactly.
type step struct {
	stage
	mostB, mostR float64
}

// before is what is known with one more stage before those behind: equations (1) to (3)
// from the last stage to the first. With R = F+B of it, and the pivot behind it,
//
//	where (M-1) R > steady it is the pivot, else that behind it stays
//		steady  = (M-1) R                           R + steady
//		through = M R                               R + through
//		late    = F + (M-1) R + max(AR+B, over-B)   F + max(AR+B + through, late)
//	and in both cases
//		over    = max(AR, over) - B
//
// Here through stands for F, the steady phase and B up to the pivot, to which Te adds AR and B
// of an earlier stage, and late - F... for Te by one of those behind. Where bounds alone are known it
// may be either, and the less of both counts: as pivot R is steady/(M-1) at least, and where
// that behind stays both of its numbers are (M-1) R at least.
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

// last bounds a last stage.
func (s *step) last(M int) behind {
	R := s.F + s.B
	steady := float64(M-1) * R
	return behind{steady: steady, through: steady + R, late: s.F + steady + s.AR + s.B, over: s.AR - s.mostB}
}

// leastLatency is L, at least, of a pipeline that begins with some stages: before, of one after
// the other, whose times are known exactly.
func leastLatency(stages []stage, behind *behind, M int) float64 {
	h, more := *behind, float64(M-1)
	for i := len(stages) - 1; i >= 0; i-- {
		s := &stages[i]
		R := s.F + s.B
		if more*R*(1+sameBound) > h.steady { // where rounding decides, the one that gives less
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
