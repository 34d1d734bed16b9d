package nn_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"runtime"
	"testing"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/engine/ref"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/nn"
)

const probability = 0.25

// masked passes a tensor of ones through a dropout layer, and returns rows [first, first+rows) of 8. The function
// `change` changes the Context.
func masked(t *testing.T, change func(*nn.Context), first, rows int) []float64 {
	t.Helper()
	return maskedBy(t, probability, change, first, rows)
}

func maskedBy(t *testing.T, p float64, change func(*nn.Context), first, rows int) []float64 {
	t.Helper()
	d, err := ref.New().Open(0, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	m, err := model.Build("mlp", map[string]any{"inputs": 333, "hidden": []int{333}, "dropout": p})
	if err != nil {
		t.Fatal(err)
	}
	layers, err := nn.Build(m)
	if err != nil {
		t.Fatal(err)
	}
	at := m.Index("dropout0")
	x, err := d.Full(engine.Float64, []int64{int64(rows), 333}, 1)
	if err != nil {
		t.Fatal(err)
	}
	ctx := &nn.Context{Device: d, Training: true, Seed: 3, Layer: at, Step: 5, Micro: 2, FirstRow: first, Rows: 8}
	if change != nil {
		change(ctx)
	}
	out, err := layers[at].Forward(ctx, nn.Bundle{{Name: "x", Tensor: x}})
	if err != nil {
		t.Fatal(err)
	}
	return read(t, d, out[0].Tensor)
}

// TestAMaskOfNearlyAll: a probability close to 1 drops nearly all elements.
func TestAMaskOfNearlyAll(t *testing.T) {
	for _, p := range []float64{0.9999, 0.999999, math.Nextafter(1, 0)} {
		kept := 0
		for _, v := range maskedBy(t, p, nil, 0, 8) {
			if v != 0 {
				kept++
			}
		}
		if kept > 8 {
			t.Errorf("with probability %v %d of %d elements are kept", p, kept, 8*333)
		}
	}
}

// TestAMaskSlicedIsTheMask: a slice of a micro-batch gets the same mask as its rows in the whole micro-batch.
func TestAMaskSlicedIsTheMask(t *testing.T) {
	whole := masked(t, nil, 0, 8)
	for _, c := range [][2]int{{0, 3}, {3, 5}, {7, 1}} {
		part := masked(t, nil, c[0], c[1])
		for i, v := range part {
			if v != whole[c[0]*333+i] {
				t.Fatalf("rows %v: element %d is %v, in the whole %v", c, i, v, whole[c[0]*333+i])
			}
		}
	}
}

// TestMasksAreCounted: a mask's bits come from counters. A chain of SplitMix64's finalizer runs over the seed, the
// letter d for dropout, the layer, the mask's site in it, the step, the micro-batch, the row, and the group of four
// elements.
func TestMasksAreCounted(t *testing.T) {
	mix := func(z uint64) uint64 {
		z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		return z ^ z>>31
	}
	const golden = 0x9e3779b97f4a7c15
	layer := 0
	got := masked(t, func(c *nn.Context) { layer = c.Layer }, 3, 5)
	for i, v := range got {
		key := uint64(golden)
		for _, part := range []uint64{3, 'd', uint64(layer), 0, 5, 2, 3 + uint64(i/333)} {
			key = mix(key + golden*(part+1))
		}
		place := i % 333
		bits := uint16(mix(key+golden*uint64(place/4+1)) >> (16 * (place % 4)))
		if want := bits >= 1<<14; (v != 0) != want {
			t.Fatalf("element %d is %v; kept must be %v", i, v, want)
		}
	}
}

func TestMasksFollowTheirPlace(t *testing.T) {
	whole := masked(t, nil, 0, 8)
	dropped := 0
	for _, v := range whole {
		switch {
		case v == 0:
			dropped++
		case math.Abs(v-1/(1-probability)) > 1e-12:
			t.Fatalf("an element became %v", v)
		}
	}
	// There are 2664 draws, so five standard deviations of the dropped share are 0.042.
	if share := float64(dropped) / float64(len(whole)); math.Abs(share-probability) > 0.042 {
		t.Errorf("%.3f are dropped, want about %v", share, probability)
	}
	for name, change := range map[string]func(*nn.Context){
		"seed": func(c *nn.Context) { c.Seed++ }, "layer": func(c *nn.Context) { c.Layer++ },
		"step": func(c *nn.Context) { c.Step++ }, "micro-batch": func(c *nn.Context) { c.Micro++ },
	} {
		other, same := masked(t, change, 0, 8), 0
		for i := range other {
			if other[i] == whole[i] {
				same++
			}
		}
		// Two independent masks agree with probability p^2 + (1-p)^2 = 0.625.
		if share := float64(same) / float64(len(whole)); math.Abs(share-0.625) > 0.05 {
			t.Errorf("another %s: %.3f of the mask agrees, want about 0.625", name, share)
		}
	}
	again := masked(t, func(c *nn.Context) { c.Recomputing = true }, 0, 8)
	still := masked(t, func(c *nn.Context) { c.Training = false }, 0, 8)
	for i := range whole {
		if again[i] != whole[i] || still[i] != 1 {
			t.Fatalf("element %d: %v when recomputed, %v in evaluation", i, again[i], still[i])
		}
	}
}

// TestEnginesAgree: torch and the pure Go engine agree on the loss and every gradient of a network, up to float32
// rounding.
func TestEnginesAgree(t *testing.T) {
	m, err := model.Build("mlp", map[string]any{"inputs": 12, "hidden": []int{16, 8}, "activation": "gelu",
		"dropout": 0.25, "classes": 5})
	if err != nil {
		t.Fatal(err)
	}
	td := device(t)
	rd, err := ref.New().Open(0, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer rd.Close()
	got, want := slopes(t, td, engine.Float32, m), slopes(t, rd, engine.Float64, m)
	for name, w := range want {
		for i := range w {
			if math.Abs(got[name][i]-w[i]) > 1e-5 {
				t.Errorf("%s, element %d: torch says %v, ref %v", name, i, got[name][i], w[i])
			}
		}
	}
	runtime.UnlockOSThread()
}

// slopes returns the loss and the gradient of every parameter for six rows.
func slopes(t *testing.T, d engine.Device, float engine.DType, m *model.Model) map[string][]float64 {
	t.Helper()
	mark := d.Begin()
	defer d.End(mark)
	layers, err := nn.Build(m)
	if err != nil {
		t.Fatal(err)
	}
	const rows = 6
	input := make([]float64, rows*int(m.Inputs[0].Elements()))
	for i := range input {
		input[i] = math.Sin(float64(i))
	}
	target, err := d.FromBytes(engine.Int64, []int64{rows}, engine.Bytes([]int64{0, 4, 2, 2, 1, 3}))
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]nn.Bundle{
		"input":  {{Name: "input", Tensor: numbers(t, d, float, []int{rows, m.Inputs[0].Shape[0]}, input)}},
		"target": {{Name: "target", Tensor: target}},
	}
	leaves := map[string]engine.Tensor{}
	for i, l := range m.Layers {
		ctx := &nn.Context{Device: d, Training: true, Seed: 7, Layer: i, Rows: rows}
		for j, p := range l.Params {
			x, err := d.Leaf(numbers(t, d, float, p.Shape, nn.InitialValues(p, i, j, 7)), true)
			if err != nil {
				t.Fatal(err)
			}
			ctx.Params = append(ctx.Params, x)
			leaves[l.Name+"."+p.Name] = x
		}
		var in nn.Bundle
		for _, from := range l.From {
			in = append(in, have[from]...)
		}
		if have[l.Name], err = layers[i].Forward(ctx, in); err != nil {
			t.Fatal(err)
		}
	}
	loss := have["loss"][0].Tensor
	out := map[string][]float64{"loss": read(t, d, loss)}
	if err := d.Backward([]engine.Tensor{loss}, nil); err != nil {
		t.Fatal(err)
	}
	for name, leaf := range leaves {
		g, err := d.Grad(leaf)
		if err != nil || g == nil {
			t.Fatalf("%s has no gradient: %v", name, err)
		}
		out[name] = read(t, d, g)
	}
	return out
}

func numbers(t *testing.T, d engine.Device, float engine.DType, shape []int, values []float64) engine.Tensor {
	t.Helper()
	data := engine.Bytes(values)
	if float == engine.Float32 {
		narrow := make([]float32, len(values))
		for i, v := range values {
			narrow[i] = float32(v)
		}
		data = engine.Bytes(narrow)
	}
	long := make([]int64, len(shape))
	for i, n := range shape {
		long[i] = int64(n)
	}
	x, err := d.FromBytes(float, long, data)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// read returns a copy of a tensor's numbers.
func read(t *testing.T, d engine.Device, x engine.Tensor) []float64 {
	t.Helper()
	x, err := d.Contiguous(x)
	if err != nil {
		t.Fatal(err)
	}
	b, err := d.(viewer).View(x)
	if err != nil {
		t.Fatal(err)
	}
	out := make([]float64, len(b)/int(x.DType().Size()))
	for i := range out {
		if x.DType() == engine.Float32 {
			out[i] = float64(math.Float32frombits(binary.NativeEndian.Uint32(b[4*i:])))
		} else {
			out[i] = math.Float64frombits(binary.NativeEndian.Uint64(b[8*i:]))
		}
	}
	return out
}

func BenchmarkMask(b *testing.B) {
	for _, p := range []float64{0.1, 0.5} {
		b.Run(fmt.Sprint(p), func(b *testing.B) {
			m, err := model.Build("mlp", map[string]any{"inputs": 1 << 16, "hidden": []int{1}, "dropout": p})
			if err != nil {
				b.Fatal(err)
			}
			layers, err := nn.Build(m)
			if err != nil {
				b.Fatal(err)
			}
			d := device(b)
			x, err := d.Full(engine.Float32, []int64{4, 1 << 16}, 1)
			if err != nil {
				b.Fatal(err)
			}
			ctx := &nn.Context{Device: d, Training: true, Layer: 1, Rows: 4}
			for b.Loop() {
				mark := d.Begin()
				if _, err := layers[1].Forward(ctx, nn.Bundle{{Name: "x", Tensor: x}}); err != nil {
					b.Fatal(err)
				}
				d.End(mark)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/(4<<16), "ns/element")
			x.Free()
		})
	}
}

// viewer is a device whose tensors lie in host memory.
type viewer interface {
	View(t engine.Tensor) ([]byte, error)
}
