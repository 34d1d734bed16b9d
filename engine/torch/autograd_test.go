package torch_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/millrace-ml/millrace/engine"
)

func TestLeafGradAndAccumulation(t *testing.T) {
	d := device(t, 0)
	m := d.Begin()
	defer d.End(m)
	w := must(d.Leaf(f32(d, []int64{2}, 3, 5), true))
	if g := must(d.Grad(w)); g != nil {
		t.Fatalf("a fresh leaf has the gradient %v", values(d, g))
	}
	square := func() engine.Tensor { return call(d, "aten::sum", call(d, "aten::mul.Tensor", w, w)) }
	for i, want := range [][]float32{{6, 10}, {12, 20}} {
		if err := d.Backward([]engine.Tensor{square()}, nil); err != nil {
			t.Fatal(err)
		}
		same(t, d, fmt.Sprintf("after backward %d", i+1), must(d.Grad(w)), want...)
	}

	y := square()
	if err := d.Backward([]engine.Tensor{y}, []engine.Tensor{nil}); err != nil {
		t.Fatal(err)
	}
	same(t, d, "after the third backward", must(d.Grad(w)), 18, 30)
	if err := d.Backward([]engine.Tensor{y}, nil); err == nil || !strings.Contains(err.Error(), "second time") {
		t.Errorf("a second backward through a freed graph: %v", err)
	}

	if err := d.SetGrad(w, f32(d, []int64{2}, 1, 2)); err != nil {
		t.Fatal(err)
	}
	same(t, d, "a gradient set by hand", must(d.Grad(w)), 1, 2)
	if err := d.SetGrad(w, f32(d, []int64{1}, 1)); err == nil {
		t.Error("a gradient of another shape was taken")
	}
	if err := d.SetGrad(y, nil); err == nil {
		t.Error("a gradient was set on a tensor inside a graph")
	}
	if err := d.SetGrad(w, nil); err != nil || must(d.Grad(w)) != nil {
		t.Errorf("the gradient was not cleared: %v", err)
	}
	if err := d.Backward([]engine.Tensor{call(d, "aten::mul.Tensor", w, w)}, nil); err == nil {
		t.Error("backward from two elements without a gradient was accepted")
	}
	if err := d.Backward([]engine.Tensor{y}, []engine.Tensor{}); err == nil ||
		!strings.Contains(err.Error(), "0 gradients for 1 outputs") {
		t.Errorf("too few gradients: %v", err)
	}
	if err := d.Backward(nil, nil); err == nil {
		t.Error("backward from nothing was accepted")
	}
}

func TestNoGradUpdatesInPlace(t *testing.T) {
	d := device(t, 0)
	m := d.Begin()
	defer d.End(m)
	w := must(d.Leaf(f32(d, []int64{2}, 3, 5), true))
	g := f32(d, []int64{2}, 1, 2)
	if _, err := d.Call("aten::sub_.Tensor", w, g, 0.5); err == nil {
		t.Error("a leaf was changed in place under autograd")
	}
	errMine := errors.New("mine")
	err := d.NoGrad(func() error {
		inner := d.NoGrad(func() error { return errMine })
		if !errors.Is(inner, errMine) {
			t.Errorf("the inner error is %v", inner)
		}
		_, err := d.Call("aten::sub_.Tensor", w, g, 0.5)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	same(t, d, "the updated leaf", w, 2.5, 4)

	// Autograd is on again, and the leaf is still a leaf.
	y := call(d, "aten::sum", call(d, "aten::mul.Tensor", w, w))
	if err := d.Backward([]engine.Tensor{y}, nil); err != nil {
		t.Fatal(err)
	}
	same(t, d, "its gradient", must(d.Grad(w)), 5, 8)
}

// Here a graph has saved a tensor, which is then overwritten. Autograd notices a write through a Leaf of the tensor,
// but not a write through aten::data. After a write through aten::data, the graph's backward uses the new value.
func TestAliasWritesUnseen(t *testing.T) {
	d := device(t, 0)
	m := d.Begin()
	defer d.End(m)
	for _, c := range []struct {
		name  string
		door  func(engine.Tensor) (engine.Tensor, error)
		seen  bool
		grads []float32
	}{
		{"leaf", func(w engine.Tensor) (engine.Tensor, error) { return d.Leaf(w, false) }, true, nil},
		{"data", func(w engine.Tensor) (engine.Tensor, error) { return call(d, "aten::data", w), nil }, false,
			[]float32{200}},
	} {
		w := must(d.Leaf(f32(d, []int64{1}, 3), true))
		y := call(d, "aten::mul.Tensor", w, w)
		call(d, "aten::fill_.Scalar", must(c.door(w)), 100)
		err := d.Backward([]engine.Tensor{y}, nil)
		if seen := err != nil && strings.Contains(err.Error(), "modified by an inplace operation"); seen != c.seen {
			t.Errorf("%s: %v", c.name, err)
		}
		if c.grads != nil {
			same(t, d, c.name, must(d.Grad(w)), c.grads...)
		}
	}
}

// stage is half of a small network: layer norm, linear, GELU.
type stage struct{ gain, shift, weight, bias engine.Tensor }

const width, rows, micros = 48, 12, 8

func newStage(d engine.Device, seed uint64) stage {
	r := rand.New(rand.NewPCG(seed, 1))
	random := func(shape ...int64) engine.Tensor {
		n := int64(1)
		for _, s := range shape {
			n *= s
		}
		v := make([]float32, n)
		for i := range v {
			v[i] = float32(r.NormFloat64()) * 0.3
		}
		raw := f32(d, shape, v...)
		defer raw.Free()
		return d.Disown(must(d.Leaf(raw, true)))
	}
	return stage{random(width), random(width), random(width, width), random(width)}
}

func (s stage) parameters() []engine.Tensor {
	return []engine.Tensor{s.gain, s.shift, s.weight, s.bias}
}

func (s stage) forward(d engine.Device, x engine.Tensor) engine.Tensor {
	x = call(d, "aten::layer_norm", x, []int64{width}, s.gain, s.shift)
	return call(d, "aten::gelu", call(d, "aten::linear", x, s.weight, s.bias))
}

// takeGrads returns the gradients and frees the stage.
func (s stage) takeGrads(d engine.Device) [][]float32 {
	var out [][]float32
	for _, p := range s.parameters() {
		g := must(d.Grad(p))
		out = append(out, values(d, g))
		p.Free()
	}
	return out
}

func input(d engine.Device, micro int) engine.Tensor {
	r := rand.New(rand.NewPCG(uint64(micro), 2))
	v := make([]float32, rows*width)
	for i := range v {
		v[i] = float32(r.NormFloat64())
	}
	return f32(d, []int64{rows, width}, v...)
}

func loss(d engine.Device, y engine.Tensor) engine.Tensor {
	return call(d, "aten::mean", call(d, "aten::mul.Tensor", y, y))
}

// Two stages on two locked threads exchange detached tensors. The gradients have the same bits as on one thread.
func TestStageBoundaryIsTransparent(t *testing.T) {
	e := load(t)
	var want [][]float32
	onThread(t, e, 0, func(d engine.Device) {
		a, b := newStage(d, 1), newStage(d, 2)
		for i := range micros {
			m := d.Begin()
			y := loss(d, b.forward(d, a.forward(d, input(d, i))))
			if err := d.Backward([]engine.Tensor{y}, nil); err != nil {
				t.Error(err)
			}
			d.End(m)
		}
		m := d.Begin()
		want = append(a.takeGrads(d), b.takeGrads(d)...)
		d.End(m)
	})

	activations, errorsBack := make(chan engine.Tensor, micros), make(chan engine.Tensor, micros)
	var first, second [][]float32
	var all sync.WaitGroup
	received := make(chan struct{}) // the second device closes after its gradients are adopted
	all.Go(func() {
		onThread(t, e, 0, func(d engine.Device) {
			s := newStage(d, 1)
			var waiting []engine.Tensor
			backward := func() {
				m := d.Begin()
				g := must(d.Adopt(<-errorsBack))
				if err := d.Backward(waiting[:1], []engine.Tensor{g}); err != nil {
					t.Error(err)
				}
				waiting[0].Free()
				waiting = waiting[1:]
				d.End(m)
			}
			for i := range micros {
				m := d.Begin()
				y := d.Disown(s.forward(d, input(d, i)))
				waiting = append(waiting, y)
				activations <- d.Disown(must(d.Leaf(y, false)))
				d.End(m)
				if len(waiting) == 2 {
					backward()
				}
			}
			for len(waiting) > 0 {
				backward()
			}
			close(received)
			m := d.Begin()
			first = s.takeGrads(d)
			d.End(m)
		})
	})
	all.Go(func() {
		onThread(t, e, 1, func(d engine.Device) {
			s := newStage(d, 2)
			for range micros {
				m := d.Begin()
				x := must(d.Leaf(must(d.Adopt(<-activations)), true))
				if err := d.Backward([]engine.Tensor{loss(d, s.forward(d, x))}, nil); err != nil {
					t.Error(err)
				}
				errorsBack <- d.Disown(must(d.Grad(x)))
				d.End(m)
			}
			m := d.Begin()
			second = s.takeGrads(d)
			d.End(m)
			<-received
		})
	})
	all.Wait()
	for i, got := range append(first, second...) {
		if !slices.Equal(got, want[i]) {
			t.Errorf("gradient %d differs: %v ... against %v ...", i, got[:4], want[i][:4])
		}
	}
}

// Four threads each train a stage at the same time, and get the same gradients as a single thread.
func TestFourThreadsAtOnce(t *testing.T) {
	e := load(t)
	train := func(d engine.Device) [][]float32 {
		s := newStage(d, 3)
		for i := range 40 {
			m := d.Begin()
			if err := d.Backward([]engine.Tensor{loss(d, s.forward(d, input(d, i)))}, nil); err != nil {
				t.Error(err)
			}
			if _, err := d.Call("aten::mm", s.gain, s.gain); err == nil {
				t.Error("no error where one is due")
			}
			d.End(m)
		}
		m := d.Begin()
		defer d.End(m)
		return s.takeGrads(d)
	}
	var want [][]float32
	onThread(t, e, 0, func(d engine.Device) { want = train(d) })
	var all sync.WaitGroup
	for w := range 4 {
		all.Go(func() {
			onThread(t, e, w, func(d engine.Device) {
				for i, got := range train(d) {
					if !slices.Equal(got, want[i]) {
						t.Errorf("worker %d: gradient %d differs", w, i)
					}
				}
			})
		})
	}
	all.Wait()
}

// onThread runs f with a device on a thread of its own and reports leaks.
func onThread(t *testing.T, e engine.Engine, worker int, f func(engine.Device)) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		d, err := e.Open(worker, 1)
		if err != nil {
			t.Error(err)
			return
		}
		f(d)
		if n := d.Close(); n != 0 {
			t.Errorf("worker %d left %d handles open", worker, n)
		}
	}()
	<-done
}
