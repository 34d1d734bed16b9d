package dapple

import "math"

// sameBound is how much less, relatively, a time must be to count as less in a bound, where rounding would
// decide.
const sameBound = 1e-12

// leastLatency is L, at least, of a pipeline that begins with some stages, networks included, one after the
// other, and goes on with any others of which one has F+B of left at least; 0 where none follow.
//
// It follows equations (1) to (3) from the last known stage to the first. Of what is behind a stage it knows
//
//	steady   (M-1)(F+B) of the pivot among it and F+B of what is before that, which the pivot must outlast
//	through  F+B of what is before that pivot, and M(F+B) of it
//	late     L of it alone
//	over     the most AR of one of it, less B of all of it up to that one
//
// each at least: of the others, behind which nothing is known, (M-1) left, M left, M left and nothing, since
// the pivot outlasts every stage behind it, and what is between. With R = F+B of one more stage,
//
//	where (M-1) R > steady it is the pivot, else that behind it stays
//		steady  = (M-1) R                           R + steady
//		through = M R                               R + through
//		late    = F + (M-1) R + max(AR+B, over-B)   F + max(AR+B + through, late)
//	and in both cases
//		over    = max(AR, over) - B
func leastLatency(stages []stage, left float64, M int) float64 {
	more := float64(M - 1)
	steady, through, late, over := more*left, more*left+left, more*left+left, math.Inf(-1)
	for i := len(stages) - 1; i >= 0; i-- {
		s := &stages[i]
		R := s.F + s.B
		if more*R*(1+sameBound) > steady { // where rounding decides, the one that gives less
			late = s.F + more*R + max(s.AR+s.B, over-s.B)
			steady, through = more*R, more*R+R
		} else {
			late = s.F + max(s.AR+s.B+through, late)
			steady, through = R+steady, R+through
		}
		over = max(s.AR, over) - s.B
	}
	return late
}

// left is F+B that the slowest stage has at least of those behind a layer, on so many devices: all of them
// computing without pause, each layer on the type that is fastest at it.
func (d *costs) left(from, devices int) float64 { return d.fastest[from] / float64(devices) }
