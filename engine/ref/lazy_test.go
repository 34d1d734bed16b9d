package ref

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/engine"
)

// late opens a device that delays all its work.
func late(t *testing.T, worker int, most time.Duration) *Device {
	t.Helper()
	d, err := Lazy(Lateness{Seed: 1, OneIn: 1, Most: most}).Open(worker, 1)
	if err != nil {
		t.Fatal(err)
	}
	return d.(*Device)
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// floatsOf reads a tensor and waits for it first.
func floatsOf(t *testing.T, d *Device, x engine.Tensor) []float64 {
	t.Helper()
	h := must(d.ToHost(x))
	defer h.Free()
	if err := h.Ready().Wait(); err != nil {
		t.Fatal(err)
	}
	return slices.Clone(engine.Numbers[float64](h.Bytes()))
}

// network trains a small model for two steps, with more than half of this engine's operators. It runs one backward in
// halves, and uses w and shift twice, so that their gradients are summed. It returns the losses and counts, and after
// each step the weights and the squared norms of the gradients.
func network(t *testing.T, d *Device) (all []float64) {
	r := rand.New(rand.NewPCG(7, 7))
	random := func(shape ...int64) engine.Tensor {
		values := make([]float64, count(shape))
		for i := range values {
			values[i] = r.NormFloat64() / 2
		}
		return must(d.FromBytes(engine.Float64, shape, engine.Bytes(values)))
	}
	leaf := func(x engine.Tensor) engine.Tensor { return d.Disown(must(d.Leaf(x, true))) }
	m := d.Begin()
	table, w, gain, shift := leaf(random(5, 4)), leaf(random(4, 4)), leaf(random(4)), leaf(random(4))
	input, state, bias := leaf(random(8, 4)), leaf(random(8, 2)), leaf(random(16))
	params := []engine.Tensor{table, w, gain, shift, input, state, bias}
	d.End(m)
	call := func(op string, args ...any) engine.Tensor { return must(d.Call(op, args...))[0] }
	for step := range 2 {
		m := d.Begin()
		ids := must(d.FromBytes(engine.Int64, []int64{2, 3}, engine.Bytes([]int64{0, 4, 2, 2, int64(step), 3})))
		target := must(d.FromBytes(engine.Int64, []int64{6}, engine.Bytes([]int64{0, 1, 0, 1, 1, 0})))
		x := call("millrace::layer_norm", call("millrace::embedding", table, ids), gain, shift, 1e-5)
		x = call("aten::mul.Tensor", x, must(engine.Mask(d, x, []int64{2, 1, 4}, 99, int64(step), 1<<14, 4.0/3)))
		x = call("aten::add.Tensor", call("aten::gelu", call("millrace::linear", x, w, shift)),
			call("aten::tanh", call("millrace::linear", x, w)))
		cut := must(engine.Cat(d, []engine.Tensor{must(engine.Narrow(d, x, 0, 1, 1)), must(engine.Narrow(d, x, 0, 0, 1))}, 0))
		behind := must(d.Leaf(must(engine.Copy(d, cut)), true))
		h := call("millrace::lstm", call("aten::relu", behind), input, state, bias, step == 1)
		loss := call("aten::cross_entropy_loss", call("aten::reshape", h, []int64{6, 2}), target)
		work := must(d.BackwardInput([]engine.Tensor{loss}, nil))
		if err := d.Backward([]engine.Tensor{x}, []engine.Tensor{must(d.Grad(behind))}); err != nil {
			t.Fatal(err)
		}
		if err := work.Run(); err != nil {
			t.Fatal(err)
		}
		right := call("aten::sum", call("aten::eq.Tensor", call("aten::argmax", h),
			must(d.FromBytes(engine.Int64, []int64{2, 3}, engine.Bytes([]int64{0, 1, 0, 1, 1, 0})))))
		all = append(all, must(d.Item(loss)), must(d.Item(right)))
		for _, p := range params {
			g := must(d.Grad(p))
			all = append(all, must(d.Item(must(engine.SquareSum(d, g)))))
			if err := engine.AddInto(d, must(d.Leaf(p, false)), g, -0.1); err != nil {
				t.Fatal(err)
			}
			all = append(all, floatsOf(t, d, p)...)
			if err := d.SetGrad(p, nil); err != nil {
				t.Fatal(err)
			}
		}
		d.End(m)
	}
	for _, p := range params {
		p.Free()
	}
	return all
}

// A lazy device computes the same bits as one that is not lazy, and holds as many bytes.
func TestLazyHasTheSameBits(t *testing.T) {
	prompt := open(t)
	want := network(t, prompt)
	for seed := range uint64(3) {
		d := must(Lazy(Lateness{Seed: seed, OneIn: 20, Most: 200 * time.Microsecond}).Open(0, 1)).(*Device)
		if got := network(t, d); !slices.Equal(got, want) {
			t.Errorf("seed %d: it computes\n%v, not\n%v", seed, got, want)
		}
		if got := d.Memory(); got != prompt.Memory() {
			t.Errorf("seed %d: it holds %+v, the prompt one %+v", seed, got, prompt.Memory())
		}
		if n := d.Close(); n != 0 {
			t.Errorf("seed %d: %d handles left", seed, n)
		}
	}
}

// A reader that does not wait finds no valid numbers.
func TestLazyShowsAMissingWait(t *testing.T) {
	d := late(t, 0, 20*time.Millisecond)
	defer d.Close()
	m := d.Begin()
	defer d.End(m)
	x := must(d.Full(engine.Float64, []int64{2}, 3))
	if _, err := d.View(x); err == nil || !strings.Contains(err.Error(), "ToHost") {
		t.Errorf("its memory is viewed: %v", err)
	}
	h := must(d.ToHost(x))
	defer h.Free()
	if h.Ready().Done() || !math.IsNaN(engine.Numbers[float64](h.Bytes())[0]) {
		t.Error("host memory has numbers at once")
	}
	if err := h.Ready().Wait(); err != nil || engine.Numbers[float64](h.Bytes())[0] != 3 || !h.Ready().Done() {
		t.Errorf("host memory has %v, %v behind its event", h.Bytes(), err)
	}
	if before := d.Record(); before.At().Before(h.Ready().At()) {
		t.Error("an event recorded later is set earlier")
	}
	if got := must(d.Item(must(d.Full(engine.Float64, nil, 5)))); got != 5 {
		t.Errorf("an item is %v", got)
	}
}

// A tensor may be freed while work reads it; later work finds no valid numbers.
func TestLazyShowsUseAfterFree(t *testing.T) {
	d := late(t, 0, time.Millisecond)
	defer d.Close()
	m := d.Begin()
	defer d.End(m)
	x := must(d.Full(engine.Float64, []int64{2}, 3))
	y := must(engine.Copy(d, x))
	numbers := x.(*Tensor).value
	x.Free()
	stale := d.handle(value{shape: numbers.shape, dtype: numbers.dtype, floats: numbers.floats,
		storage: numbers.storage.retain()}, nil)
	z := must(engine.Copy(d, stale))
	if got := floatsOf(t, d, y); !slices.Equal(got, []float64{3, 3}) {
		t.Errorf("issued before the free: %v", got)
	}
	if got := floatsOf(t, d, z); !math.IsNaN(got[0]) {
		t.Errorf("issued after the free: %v", got)
	}
}

// A device that has awaited another device's event reads that device's result. Without the wait it reads no valid
// numbers.
func TestLazyDevicesAwaitEachOther(t *testing.T) {
	for _, waits := range []bool{true, false} {
		a, b := late(t, 0, 20*time.Millisecond), late(t, 1, time.Microsecond)
		x := a.Disown(must(a.Full(engine.Float64, []int64{2}, 3)))
		e := a.Record()
		if waits {
			if err := b.Await(e); err != nil {
				t.Fatal(err)
			}
		}
		mine := must(b.Adopt(x))
		c := must(engine.Copy(b, mine))
		if got := floatsOf(t, b, c); (got[0] == 3) != waits {
			t.Errorf("waiting is %v: %v", waits, got)
		}
		mine.Free()
		c.Free()
		if n := a.Close() + b.Close(); n != 0 {
			t.Errorf("%d handles left", n)
		}
	}
}

// FromHost issues work that copies the host's bytes back to the tensor. Until FromHost is called, writes to these bytes
// do not change the tensor. FromHost accepts only the tensor's own host memory.
func TestLazyFromHost(t *testing.T) {
	d := late(t, 0, time.Millisecond)
	m := d.Begin()
	x := must(d.Full(engine.Float64, []int64{2}, 3))
	h := must(d.ToHost(x))
	if err := h.Ready().Wait(); err != nil {
		t.Fatal(err)
	}
	engine.Numbers[float64](h.Bytes())[1] = 8
	if got := floatsOf(t, d, x); got[1] != 3 {
		t.Errorf("before its bytes are given back: %v", got)
	}
	if err := d.FromHost(x, h); err != nil {
		t.Fatal(err)
	}
	h.Free()
	if got := floatsOf(t, d, x); got[1] != 8 {
		t.Errorf("its bytes given back: %v", got)
	}
	if err := d.FromHost(must(d.Full(engine.Float64, []int64{2}, 3)), h); err == nil {
		t.Error("the bytes of another tensor are taken")
	}
	d.End(m)
	must(d.ToHost(must(d.Full(engine.Float64, nil, 1))))
	if n := d.Close(); n != 2 {
		t.Errorf("%d left open: a tensor and its host memory are 2", n)
	}
}

// An operator that fails late makes all work issued after it fail, and the error names the operator.
func TestLazyFailsLate(t *testing.T) {
	d := late(t, 0, time.Microsecond)
	defer d.Close()
	m := d.Begin()
	defer d.End(m)
	ids := must(d.Full(engine.Int64, []int64{1}, 9))
	y, err := d.Call("millrace::embedding", must(d.Full(engine.Float64, []int64{2, 2}, 1)), ids)
	if err != nil {
		t.Fatalf("at once: %v", err)
	}
	e := d.Record()
	if err := e.Wait(); err == nil ||
		!strings.Contains(err.Error(), "millrace::embedding: place 9; the table has rows 0 to 1") {
		t.Errorf("its event says %v", err)
	}
	if _, err := d.Item(must(d.Full(engine.Float64, nil, 1))); err == nil {
		t.Error("work behind it is done")
	}
	h := must(d.ToHost(y[0]))
	defer h.Free()
	if h.Ready().Wait() == nil {
		t.Error("its result is copied to the host")
	}
}
