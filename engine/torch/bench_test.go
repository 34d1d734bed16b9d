package torch_test

import (
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/millrace-ml/millrace/engine"
)

// BenchmarkCall measures the cost of a call, with operators that do almost nothing.
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

// BenchmarkSpeed measures the kernels of the operators in GFLOP/s per thread, on one locked thread and on two at once.
func BenchmarkSpeed(b *testing.B) {
	for _, k := range kernels {
		for _, threads := range []int{1, 2} {
			b.Run(fmt.Sprintf("%s/threads=%d", k.name, threads), func(b *testing.B) {
				k.together(b, threads)
			})
		}
	}
}

// together runs rounds of calls on several threads at once.
func (k kernel) together(b *testing.B, threads int) {
	const calls = 20 // calls of each thread between two synchronizations
	e := load(b)
	var ready, round, ended sync.WaitGroup
	ready.Add(threads)
	starts := make([]chan struct{}, threads)
	for w := range threads {
		starts[w] = make(chan struct{})
		ended.Go(func() {
			runtime.LockOSThread()
			d := must(e.Open(w, 1))
			defer d.Close()
			args := k.arguments(d)
			run := func() {
				for range calls {
					m := d.Begin()
					must(d.Call(k.op, args...))
					d.End(m)
				}
			}
			run()
			ready.Done()
			for range starts[w] {
				run()
				round.Done()
			}
		})
	}
	ready.Wait()
	for b.Loop() {
		round.Add(threads)
		for _, s := range starts {
			s <- struct{}{}
		}
		round.Wait()
	}
	b.ReportMetric(k.flops*calls*float64(b.N)/b.Elapsed().Seconds()*1e-9, "GFLOP/s")
	for _, s := range starts {
		close(s)
	}
	ended.Wait()
}

func (k kernel) arguments(d engine.Device) []any {
	var args []any
	for _, s := range k.shapes {
		args = append(args, must(d.Full(engine.Float32, s, 1)))
	}
	return append(args, k.rest...)
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
		[][]int64{{batch, in, side, side}, {out, in, 3, 3}}, []any{nil, 1, 1},
		float64(2 * batch * in * out * 9 * side * side)}
}

// kernels lists most matrix products of a GPT of width 256 with 4 x 128 tokens, and two convolutions of a small VGG.
var kernels = []kernel{
	linear(512, 1024, 256), linear(512, 256, 1024), linear(512, 768, 256),
	bmm(32, 128, 128, 32), bmm(32, 128, 32, 128),
	conv(32, 32, 32, 28), conv(32, 64, 64, 14),
}
