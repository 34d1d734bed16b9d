package stage

import (
	"github.com/millrace-ml/millrace/data"
	"github.com/millrace-ml/millrace/engine"
)

// TensorOf copies an array into a tensor, floats as the engine's own type.
func TensorOf(dev engine.Device, float engine.DType, a data.Array) (engine.Tensor, error) {
	shape := make([]int64, len(a.Shape))
	for i, n := range a.Shape {
		shape[i] = int64(n)
	}
	switch {
	case a.Ints != nil:
		return dev.FromBytes(engine.Int64, shape, engine.Bytes(a.Ints))
	case float == engine.Float64:
		wide := make([]float64, len(a.Floats))
		for i, x := range a.Floats {
			wide[i] = float64(x)
		}
		return dev.FromBytes(float, shape, engine.Bytes(wide))
	}
	return dev.FromBytes(float, shape, engine.Bytes(a.Floats))
}
