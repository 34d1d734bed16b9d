package torch_test

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/engine"
)

// BenchmarkCall is the cost of the door: operators that do next to nothing.
func BenchmarkCall(b *testing.B) {
	for _, c := range []struct {
		name string
		op   string
		args func(x engine.Tensor) []any
	}{
		{"add", "aten::add.Tensor", func(x engine.Tensor) []any { return []any{x, x} }},
		{"relu", "aten::relu", func(x engine.Tensor) []any { return []any{x} }},
		{"view", "aten::view", func(x engine.Tensor) []any { return []any{x, []int64{4}} }},
		{"detach", "aten::detach", func(x engine.Tensor) []any { return []any{x} }},
	} {
		b.Run(c.name, func(b *testing.B) {
			d := device(b, 0)
			x := must(d.Full(engine.Float32, []int64{2, 2}, 1))
			args := c.args(x)
			b.ReportAllocs()
			for b.Loop() {
				m := d.Begin()
				if _, err := d.Call(c.op, args...); err != nil {
					b.Fatal(err)
				}
				d.End(m)
			}
			x.Free()
		})
	}
}

// BenchmarkSpeed prints what the kernels under the operators reach, in GFLOP/s per
// thread, with one locked thread and with two at once.
func BenchmarkSpeed(b *testing.B) {
	for _, c := range kernels {
		for _, threads := range []int{1, 2} {
			b.Run(fmt.Sprintf("%s/threads=%d", c.name, threads), func(b *testing.B) {
				e := load(b)
				var all sync.WaitGroup
				seconds := make([]float64, threads)
				for w := range threads {
					all.Go(func() {
						runtime.LockOSThread()
						defer runtime.UnlockOSThread()
						d, err := e.Open(w, 1)
						if err != nil {
							b.Error(err)
							return
						}
						defer d.Close()
						seconds[w] = perCall(b, d, c)
					})
				}
				all.Wait()
				var slowest float64
				for _, s := range seconds {
					slowest = max(slowest, s)
				}
				for b.Loop() {
					// Timed above: the workers must run at the same time.
				}
				b.ReportMetric(c.flops/slowest*1e-9, "GFLOP/s")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// perCall runs the kernel for a quarter of a second and gives the mean time of a call.
func perCall(b *testing.B, d engine.Device, c kernel) float64 {
	args := make([]any, len(c.shapes), len(c.shapes)+len(c.rest))
	for i, s := range c.shapes {
		args[i] = must(d.Full(engine.Float32, s, 1))
	}
	args = append(args, c.rest...)
	run := func() {
		m := d.Begin()
		if _, err := d.Call(c.op, args...); err != nil {
			b.Error(err)
		}
		d.End(m)
	}
	for range 10 {
		run()
	}
	start, n := time.Now(), 0
	for time.Since(start) < 250*time.Millisecond {
		run()
		n++
	}
	return time.Since(start).Seconds() / float64(n)
}

type kernel struct {
	name   string
	op     string
	shapes [][]int64
	rest   []any
	flops  float64
}

func linear(m, n, k int64) kernel {
	return kernel{fmt.Sprintf("linear-%dx%dx%d", m, n, k), "aten::linear",
		[][]int64{{m, k}, {n, k}, {n}}, nil, float64(2 * m * n * k)}
}

func bmm(batch, m, n, k int64) kernel {
	return kernel{fmt.Sprintf("bmm-%dx%dx%dx%d", batch, m, n, k), "aten::bmm",
		[][]int64{{batch, m, k}, {batch, k, n}}, nil, float64(2 * batch * m * n * k)}
}

func conv(batch, in, out, side int64) kernel {
	return kernel{fmt.Sprintf("conv-%dx%dx%dx%d", batch, in, out, side), "aten::conv2d",
		[][]int64{{batch, in, side, side}, {out, in, 3, 3}}, []any{nil, 1, 1}, float64(2 * batch * in * out * 9 * side * side)}
}

// kernels are the products of a GPT of width 256 with 4 x 128 tokens, and the
// convolutions of a small VGG.
var kernels = []kernel{
	linear(512, 1024, 256), linear(512, 256, 1024), linear(512, 768, 256),
	bmm(32, 128, 128, 32), bmm(32, 128, 32, 128),
	conv(32, 32, 32, 28), conv(32, 64, 64, 14),
}
