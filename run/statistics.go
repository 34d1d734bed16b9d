package run

import (
	"bytes"

	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/stage"
)

// summed is the buffers of a stage as its replicas sum them for an update to come, and how many
// forwards had been made when they were taken.
type summed struct {
	vectors  []stage.Vector
	forwards int
}

// statistics is the buffers for the replicas to sum with the gradients of an update. Where the sum goes
// on beside the next minibatch, whose forwards write to them, they are copies.
func (w *worker) statistics(h *holding) ([]stage.Vector, error) {
	all, err := h.Statistics()
	if err != nil || !w.x.program.DeferUpdates {
		return all, err
	}
	for i := range all {
		all[i].Data = bytes.Clone(all[i].Data)
	}
	h.summed = append(h.summed, summed{all, h.forwards})
	return all, nil
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
		if sum.forwards != h.forwards {
			return nil
		}
		now, err := h.Statistics()
		if err != nil {
			return err
		}
		for i, v := range now {
			copy(v.Data, sum.vectors[i].Data)
		}
	}
	return h.AverageStatistics(n)
}
