package run

import (
	"fmt"
	"unsafe"

	"github.com/millrace-ml/millrace/data"
	"github.com/millrace-ml/millrace/engine"
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
		t, err := tensorOf(w.dev, w.job.engine.Float(), array)
		if err != nil {
			return fmt.Errorf("%s: %w", h.Graph.Name(v), err)
		}
		given[v] = t
	}
	return nil
}

// tensorOf copies an array into a tensor, floats as the engine's own type.
func tensorOf(dev engine.Device, float engine.DType, a data.Array) (engine.Tensor, error) {
	shape := make([]int64, len(a.Shape))
	for i, n := range a.Shape {
		shape[i] = int64(n)
	}
	switch {
	case a.Ints != nil:
		return dev.FromBytes(engine.Int64, shape, memory(a.Ints))
	case float == engine.Float64:
		wide := make([]float64, len(a.Floats))
		for i, x := range a.Floats {
			wide[i] = float64(x)
		}
		return dev.FromBytes(float, shape, memory(wide))
	}
	return dev.FromBytes(float, shape, memory(a.Floats))
}

// memory views numbers as the bytes they are.
func memory[T float32 | float64 | int64](xs []T) []byte {
	if len(xs) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&xs[0])), len(xs)*int(unsafe.Sizeof(xs[0])))
}
