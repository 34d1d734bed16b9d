package run

import (
	"fmt"

	"github.com/millrace-ml/millrace/data"
	"github.com/millrace-ml/millrace/stage"
)

// feed adds to given the model inputs that a stage reads.
func (w *worker) feed(h *holding, given stage.Tensors, split data.Split, step, batch, first, rows int) error {
	feeds := h.Feeds()
	if len(feeds) == 0 {
		return nil
	}
	b, err := split.Batch(step, batch, first, rows)
	if err != nil {
		return err
	}
	for _, v := range feeds {
		array := b.Input
		if h.Graph.Name(v) == "target" {
			array = b.Target
		}
		t, err := stage.TensorOf(w.dev, w.job.engine.Float(), array)
		if err != nil {
			return fmt.Errorf("%s: %w", h.Graph.Name(v), err)
		}
		given[v] = t
	}
	return nil
}
