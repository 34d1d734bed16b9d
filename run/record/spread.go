package record

import "slices"

// spread chooses steps of a whole run whose length is not known. It chooses the multiples of a stride, called moments,
// and the steps beside each of them. If there are too many moments, it doubles the stride. So all processes of a run
// choose the same steps, without a message and without a clock.
type spread struct {
	most   int   // the most moments that are chosen
	stride int   // steps from one moment to the next
	steps  []int // chosen until now: the moments, and the steps beside each
}

// add offers a step. It returns the steps that are not chosen: this one, or earlier ones that are no longer chosen.
func (s *spread) add(step int) (gone []int) {
	s.steps = append(s.steps, step)
	for {
		moments := 0
		s.steps = slices.DeleteFunc(s.steps, func(n int) bool {
			if n%s.stride == 0 && s.most > 0 {
				moments++
			}
			far := s.most <= 0 || min(n%s.stride, s.stride-n%s.stride) > 1
			if far {
				gone = append(gone, n)
			}
			return far
		})
		if moments <= s.most {
			return gone
		}
		s.stride *= 2
	}
}
