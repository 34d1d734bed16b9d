package torch_test

import (
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/engine"
)

// threadCases lists operators of the shim, with sizes at which they use a second thread.
var threadCases = []struct {
	name   string
	shapes [][]int64 // shapes of the leaves
	yields func(d engine.Device, x []engine.Tensor) engine.Tensor
}{
	{"linear", [][]int64{{2, 130, 256}, {520, 256}, {520}}, func(d engine.Device, x []engine.Tensor) engine.Tensor {
		return call(d, "millrace::linear", x[0], x[1], x[2])
	}},
	{"linear with more rows than columns", [][]int64{{3, 300, 256}, {100, 256}},
		func(d engine.Device, x []engine.Tensor) engine.Tensor {
			return call(d, "millrace::linear", x[0], x[1], nil)
		}},
	{"linear and gelu", [][]int64{{2, 130, 256}, {520, 256}, {520}},
		func(d engine.Device, x []engine.Tensor) engine.Tensor {
			return call(d, "millrace::linear_gelu", x[0], x[1], x[2])
		}},
	{"linear and sum", [][]int64{{2, 130, 520}, {2, 130, 256}, {520, 256}, {520}},
		func(d engine.Device, x []engine.Tensor) engine.Tensor {
			return call(d, "millrace::linear_add", x[0], x[1], x[2], x[3])
		}},
	{"causal attention", [][]int64{{2, 100, 3 * 64}}, func(d engine.Device, x []engine.Tensor) engine.Tensor {
		return call(d, "millrace::causal_attention", x[0], int64(4), nil)
	}},
	{"layer norm", [][]int64{{5, 200, 256}, {256}, {256}}, func(d engine.Device, x []engine.Tensor) engine.Tensor {
		return call(d, "millrace::layer_norm", x[0], x[1], x[2], 1e-5)
	}},
	{"max pool", [][]int64{{4, 32, 28, 28}}, func(d engine.Device, x []engine.Tensor) engine.Tensor {
		return call(d, "millrace::max_pool", x[0], 2)
	}},
}

// A worker with two threads computes the same bits as a worker with one thread. For products this holds only with
// AVX-512.
func TestBitsDependOnNoNumberOfThreads(t *testing.T) {
	needsKernels(t)
	e := load(t)
	for _, c := range threadCases {
		t.Run(c.name, func(t *testing.T) {
			if strings.HasPrefix(c.name, "linear") {
				needsProducts(t)
			}
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			results := func(threads int) (all [][]float32) {
				d := must(e.Open(0, threads))
				defer d.Close()
				m := d.Begin()
				defer d.End(m)
				leaves := make([]engine.Tensor, len(c.shapes))
				for i, shape := range c.shapes {
					leaves[i] = must(d.Leaf(wave(d, shape, i+1), true))
				}
				y := c.yields(d, leaves)
				all = append(all, values(d, y))
				must(0, d.Backward([]engine.Tensor{y}, []engine.Tensor{wave(d, y.Shape(), 9)}))
				for _, l := range leaves {
					all = append(all, values(d, must(d.Grad(l))))
				}
				return all
			}
			one, two := results(1), results(2)
			for i := range one {
				if !slices.Equal(one[i], two[i]) {
					t.Errorf("output or gradient %d has other bits on two threads", i)
				}
			}
		})
	}
}
