package stage

import (
	"unsafe"

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
