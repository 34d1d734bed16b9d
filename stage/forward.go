package stage

import (
	"github.com/millrace-ml/millrace/engine"
)

// Forward computes a micro-batch of training. The argument `given` holds the values of In and Feeds; they belong to the
// stage from now on, even after an error. The result `out` holds copies of the values of Out. On the last stage, loss
// is the mean loss of the micro-batch. The results belong to the caller.
//
// The outputs are copies because the stage keeps its own for its backward, and each worker is charged for the memory it
// would need on a device of its own.
func (s *Stage) Forward(micro Micro, given Tensors) (out Tensors, loss engine.Tensor, err error) {
	f := s.layers.newFlight(micro, given)
	err = s.open.mayStart(micro.ID)
	if err == nil {
		err = s.wires.check(given)
	}
	if err == nil {
		f.params, err = s.Versions.leaves(micro.Version)
	}
	if err != nil {
		given.Free()
		return nil, nil, err
	}
	if s.Segment > 0 {
		err = s.Device.NoGrad(func() error {
			var scores Scores
			out, scores, err = f.pass(true)
			loss = scores.Loss
			return err
		})
	} else {
		out, loss, err = f.recordAll()
	}
	if err != nil {
		f.free()
		out.Free()
		free(loss)
		return nil, nil, err
	}
	f.dropFeeds()
	s.open.start(f)
	return out, loss, nil
}

// recordAll is a forward without recompute: it keeps all that backwards need.
func (f *flight) recordAll() (out Tensors, loss engine.Tensor, err error) {
	last := f.y.c.Last
	if err := f.record(f.y.c.First, last, false); err != nil {
		return nil, nil, err
	}
	out, err = f.y.copies(f.value)
	if err == nil && f.y.wires.makesLoss(last) {
		loss, err = f.y.apart(f.made[f.at(last)][0].Tensor)
	}
	if err == nil {
		for _, v := range f.y.wires.out { // the next stage gets copies, so these values are not needed
			f.dropMade(v)
		}
	}
	return out, loss, err
}

// Evaluate computes a micro-batch without training: it makes no gradients and keeps nothing. The argument `given`
// belongs to the stage from now on. If Shown names a state, layers read that state in place of every parameter that has
// been updated. The result `out` is as in Forward. On the last stage, Evaluate also returns the micro-batch's Scores,
// which belong to the caller.
func (s *Stage) Evaluate(micro Micro, given Tensors) (out Tensors, scores Scores, err error) {
	defer given.Free()
	if err := s.wires.check(given); err != nil {
		return nil, Scores{}, err
	}
	err = s.Device.NoGrad(func() error {
		f := &flight{y: s.layers, micro: micro, given: given, params: s.Versions.shown()}
		out, scores, err = f.pass(false)
		return err
	})
	if err != nil {
		out.Free()
		scores.Free()
		return nil, Scores{}, err
	}
	return out, scores, nil
}
