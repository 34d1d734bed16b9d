package process

import (
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/run/checkpoint"
)

// TestAverageOfStates compares an average with numbers computed by hand. It also expects errors for states that cannot
// be averaged: tensors of different shapes, and whole numbers.
func TestAverageOfStates(t *testing.T) {
	narrow := func(name string, x ...float32) checkpoint.Tensor {
		t := checkpoint.Tensor{Name: name, DType: engine.Float32, Shape: []int64{int64(len(x))}, Data: make([]byte, 4*len(x))}
		copy(engine.Numbers[float32](t.Data), x)
		return t
	}
	got, err := average([]checkpoint.Tensor{narrow("a", 1, -2), narrow("b", 2, 4), narrow("c", 6, 1)})
	if err != nil || engine.Numbers[float32](got.Data)[0] != 3 || engine.Numbers[float32](got.Data)[1] != 1 {
		t.Errorf("%v, %v; want 3 and 1", got, err)
	}
	if _, err := average([]checkpoint.Tensor{narrow("a", 1), narrow("b", 1, 2)}); err == nil ||
		!strings.Contains(err.Error(), "alike") {
		t.Errorf("other shapes: %v", err)
	}
	whole := checkpoint.Tensor{Name: "n", DType: engine.Int64, Data: make([]byte, 8)}
	if _, err := average([]checkpoint.Tensor{whole, whole}); err == nil || !strings.Contains(err.Error(), "floats alone") {
		t.Errorf("whole numbers: %v", err)
	}
}
