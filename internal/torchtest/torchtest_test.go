package torchtest

import (
	"encoding/binary"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/internal/stats"
)

func floats(t *testing.T, x Tensor) []float64 {
	t.Helper()
	var all []float64
	for i := 0; i < len(x.Data); {
		switch x.DType {
		case "F32":
			all, i = append(all, float64(math.Float32frombits(binary.LittleEndian.Uint32(x.Data[i:])))), i+4
		case "F64":
			all, i = append(all, math.Float64frombits(binary.LittleEndian.Uint64(x.Data[i:]))), i+8
		default:
			t.Fatalf("a %s", x.DType)
		}
	}
	return all
}

// TestPyTorchTrainsTheNetworks checks PyTorch's results for all networks, because tests of other packages rely on them.
func TestPyTorchTrainsTheNetworks(t *testing.T) {
	for _, a := range Run(t, Main()...) {
		if a.Code != 0 || !a.Oracle {
			t.Errorf("%s: exit code %d, %s", a.Name, a.Code, a.Said)
			continue
		}
		all := Read(t, a.Numbers)
		for _, curve := range []string{"curve.1", "curve.2"} {
			c := floats(t, all[curve])
			if len(c) != 50 {
				t.Fatalf("%s: %s has %d steps", a.Name, curve, len(c))
			}
			// Means are compared, because single steps vary much: each has only two rows, and depends on the last bits
			// of a BLAS.
			head, tail := stats.Mean(c[:10]), stats.Mean(c[40:])
			if math.IsNaN(tail) || tail > 0.95*head {
				t.Errorf("%s: %s of %d steps goes from %g to %g", a.Name, curve, len(c), head, tail)
			}
		}
		if first, step := floats(t, all["a.loss"])[0], floats(t, all["b.loss"])[0]; first == step || first <= 0 {
			t.Errorf("%s: the losses of two batches are %g and %g", a.Name, first, step)
		}
		gradients := 0
		for name, x := range all {
			if !strings.HasPrefix(name, "a.grad/") {
				continue
			}
			gradients++
			if !slices.ContainsFunc(floats(t, x), func(g float64) bool { return g != 0 }) {
				t.Errorf("%s: %s is 0 everywhere", a.Name, name)
			}
		}
		if gradients == 0 {
			t.Errorf("%s has no gradients", a.Name)
		}
	}
}
