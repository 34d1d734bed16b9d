package stage

import (
	"fmt"
	"maps"
	"slices"

	"github.com/millrace-ml/millrace/data"
	"github.com/millrace-ml/millrace/engine"
)

// TensorOf copies a batch's array for an input into a tensor. It converts floating-point numbers to the given type.
func TensorOf(dev engine.Device, float engine.DType, b data.Batch, input string) (engine.Tensor, error) {
	a, ok := b[input]
	if !ok {
		return nil, fmt.Errorf("the model reads %q, and the data has %q", input, slices.Sorted(maps.Keys(b)))
	}
	shape := make([]int64, len(a.Shape))
	for i, n := range a.Shape {
		shape[i] = int64(n)
	}
	switch {
	case a.Ints != nil:
		return dev.FromBytes(engine.Int64, shape, engine.Bytes(a.Ints))
	case a.Bools != nil:
		bytes := make([]byte, len(a.Bools))
		for i, set := range a.Bools {
			if set {
				bytes[i] = 1
			}
		}
		return dev.FromBytes(engine.Bool, shape, bytes)
	case float == engine.Float64:
		wide := make([]float64, len(a.Floats))
		for i, x := range a.Floats {
			wide[i] = float64(x)
		}
		return dev.FromBytes(float, shape, engine.Bytes(wide))
	}
	return dev.FromBytes(float, shape, engine.Bytes(a.Floats))
}
