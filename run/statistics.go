package run

import (
	"fmt"

	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/stage"
)

// summed is the buffers of a stage as its replicas sum them for an update to come, and how many
// forwards had been made when they were taken.
type summed struct {
	vectors  []stage.Vector
	forwards int
}

func (s *summed) free() {
	for _, v := range s.vectors {
		v.Tensor.Free()
	}
}

// statistics is the buffers for the replicas to sum with the gradients of an update. Where the sum goes
// on beside the next minibatch, whose forwards write to them, they are copies.
func (w *worker) statistics(h *holding) ([]stage.Vector, error) {
	all := h.Statistics()
	if !w.x.program.DeferUpdates {
		return all, nil
	}
	copies := summed{forwards: h.forwards}
	for _, v := range all {
		c, err := stage.Copy(w.dev, v.Tensor)
		if err != nil {
			copies.free()
			return nil, fmt.Errorf("%s: %w", v.Name, err)
		}
		copies.vectors = append(copies.vectors, stage.Vector{Name: v.Name, Tensor: c})
	}
	h.summed = append(h.summed, copies)
	return copies.vectors, nil
}

// averageStatistics makes the replicas' buffers agree. Where updates are deferred that waits until no
// forward has come between the sum and the update, at the end of the stream: statistics are linear in
// what they have seen, so the mean at the end is the mean of every step.
func (w *worker) averageStatistics(h *holding, in schedule.Instruction) error {
	n := len(w.x.program.Placement[in.Pipeline][in.Stage])
	if n == 1 {
		return nil
	}
	if w.x.program.DeferUpdates {
		sum := h.summed[0]
		h.summed = h.summed[1:]
		defer sum.free()
		if sum.forwards != h.forwards {
			return nil
		}
		if err := h.SetStatistics(sum.vectors); err != nil {
			return err
		}
	}
	return h.AverageStatistics(n)
}
