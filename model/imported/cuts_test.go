package imported_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/engine/torch"
	"github.com/millrace-ml/millrace/internal/torchtest"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/model/imported"
	"github.com/millrace-ml/millrace/nn"
	"github.com/millrace-ml/millrace/stage"
)

// line is the stages of a model on one device.
type line struct {
	t      *testing.T
	dev    engine.Device
	stages []*stage.Stage
}

func newLine(t *testing.T, dev engine.Device, m *model.Model, segment int, cuts ...int) *line {
	t.Helper()
	g, err := stage.NewGraph(m)
	if err != nil {
		t.Fatal(err)
	}
	layers, err := nn.Build(m)
	if err != nil {
		t.Fatal(err)
	}
	l := &line{t: t, dev: dev}
	first := 0
	for _, last := range append(cuts, len(layers)) {
		s, err := stage.New(stage.Config{Device: dev, Float: engine.Float32, Graph: g, First: first, Last: last - 1,
			Layers: layers, Seed: 5, Segment: segment})
		if err != nil {
			t.Fatal(err)
		}
		l.stages = append(l.stages, s)
		first = last
	}
	return l
}

func (l *line) close() {
	for _, s := range l.stages {
		s.Close()
	}
}

// step passes a batch forward and back, and returns the loss and what there is behind it, by PyTorch's names.
func (l *line) step(batch map[string]torchtest.Tensor, prefix string) (float64, map[string][]byte) {
	l.t.Helper()
	var out stage.Tensors
	var loss engine.Tensor
	for _, s := range l.stages {
		given := stage.Tensors{}
		for _, v := range s.Feeds() {
			x := batch[prefix+"/"+s.Graph.Name(v)]
			m := l.dev.Begin()
			one, err := l.dev.FromBytes(engine.DTypeNamed(x.DType), x.Shape, x.Data)
			l.dev.End(m, one)
			if err != nil {
				l.t.Fatal(s.Graph.Name(v), err)
			}
			given[v] = one
		}
		maps.Copy(given, out)
		var err error
		if out, loss, err = s.Forward(stage.Micro{Rows: int(batch[prefix+"/"+l.input()].Shape[0])}, given); err != nil {
			l.t.Fatal(err)
		}
	}
	value, err := l.dev.Item(loss)
	loss.Free()
	var grads stage.Tensors
	for _, s := range slices.Backward(l.stages) {
		if err == nil {
			grads, err = s.Backward(0, grads, 1)
		}
	}
	if err != nil {
		l.t.Fatal(err)
	}
	found := map[string][]byte{}
	for _, s := range l.stages {
		if err := s.Gather(); err != nil {
			l.t.Fatal(err)
		}
		for _, p := range s.Params() {
			if s.Owns(p) && !p.Shared {
				found["grad/"+p.Name] = l.bytes(p.Gradient())
			}
		}
		for _, b := range s.Buffers() {
			found["buffer/"+b.Name] = l.bytes(b.Value)
		}
	}
	return value, found
}

func (l *line) input() string { return l.stages[0].Graph.Model.Inputs[0].Name }

func (l *line) bytes(t engine.Tensor) []byte {
	l.t.Helper()
	h, err := l.dev.ToHost(t)
	if err != nil {
		l.t.Fatal(err)
	}
	defer h.Free()
	return slices.Clone(h.Bytes())
}

func device(t *testing.T) engine.Device {
	t.Helper()
	runtime.LockOSThread()
	e, err := torch.Open()
	if err != nil {
		t.Fatal(err)
	}
	dev, err := e.Open(0, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if n := dev.Close(); n != 0 {
			t.Errorf("%d handles leaked", n)
		}
	})
	return dev
}

// apart is how far numbers are from others, relative to the length of those.
func apart(got, want []byte) float64 {
	if len(got) != len(want) {
		return math.Inf(1)
	}
	var d, n float64
	for at := 0; at < len(want); at += 4 {
		g := float64(math.Float32frombits(binary.LittleEndian.Uint32(got[at:])))
		w := float64(math.Float32frombits(binary.LittleEndian.Uint32(want[at:])))
		d, n = d+(g-w)*(g-w), n+w*w
	}
	return math.Sqrt(d / max(n, 1e-30))
}

// Loss and gradients are PyTorch's, also of a batch of other rows; every cut leaves the bits that none leaves.
func TestNetworksComputeWhatPyTorchDoes(t *testing.T) {
	requests := torchtest.Main()
	for i := range requests {
		requests[i].Rate = 0
	}
	for _, a := range torchtest.Run(t, requests...) {
		t.Run(a.Name, func(t *testing.T) {
			if a.Code != 0 {
				t.Fatal(a.Said)
			}
			m, err := imported.Load(a.Model)
			if err != nil {
				t.Fatal(err)
			}
			want := torchtest.Read(t, a.Numbers)
			dev := device(t)
			compare(t, dev, m, want, "b")
			loss, found := compare(t, dev, m, want, "a")
			for cut := 1; cut < len(m.Layers); cut++ {
				equalBits(t, fmt.Sprintf("cut in front of %s", m.Layers[cut].Name), dev, m, want, loss, found, 0, cut)
			}
			var all []int
			for cut := 1; cut < len(m.Layers); cut++ {
				all = append(all, cut)
			}
			equalBits(t, "cut everywhere", dev, m, want, loss, found, 0, all...)
			equalBits(t, "cut once, and recomputed", dev, m, want, loss, found, 2, len(m.Layers)/2)
		})
	}
}

// compare holds a step of the uncut model against PyTorch's, norm by norm.
func compare(t *testing.T, dev engine.Device, m *model.Model, want map[string]torchtest.Tensor, batch string) (float64,
	map[string][]byte) {
	t.Helper()
	whole := newLine(t, dev, m, 0)
	defer whole.close()
	loss, found := whole.step(want, batch)
	expected := float64(math.Float32frombits(binary.LittleEndian.Uint32(want[batch+".loss"].Data)))
	if math.Abs(loss-expected) > 1e-6*math.Abs(expected) {
		t.Errorf("batch %s: a loss of %v; PyTorch's is %v", batch, loss, expected)
	}
	gradients := 0
	for name, x := range want {
		short, is := strings.CutPrefix(name, batch+".")
		got, there := found[short]
		isGradient := strings.HasPrefix(short, "grad/")
		if is && isGradient {
			gradients++
		}
		if !is || !there && !isGradient {
			continue // an input, a number to report, or a buffer that nobody changes
		}
		if x.DType == "I64" {
			if !bytes.Equal(got, x.Data) {
				t.Errorf("batch %s: %s is %v, PyTorch's %v", batch, short, got, x.Data)
			}
		} else if d := apart(got, x.Data); d > 1e-6 {
			t.Errorf("batch %s: %s is %.3g away from PyTorch's", batch, short, d)
		}
	}
	if gradients == 0 {
		t.Errorf("batch %s: PyTorch has no gradients", batch)
	}
	return loss, found
}

// equalBits holds a step of stages against one of the whole model; tied parameters, which several stages have a part of
// the gradient of, are left to tests of runs.
func equalBits(t *testing.T, what string, dev engine.Device, m *model.Model, batch map[string]torchtest.Tensor,
	loss float64, whole map[string][]byte, segment int, cuts ...int) {
	t.Helper()
	l := newLine(t, dev, m, segment, cuts...)
	defer l.close()
	got, found := l.step(batch, "a")
	if got != loss {
		t.Errorf("%s: a loss of %v instead of %v", what, got, loss)
	}
	shared := 0
	for name, x := range whole {
		y, there := found[name]
		if !there && strings.HasPrefix(name, "grad/") {
			shared++
			continue
		}
		if !bytes.Equal(x, y) {
			t.Errorf("%s: %s has other bits", what, name)
		}
	}
	if shared > 2 || len(found) == 0 {
		t.Errorf("%s: %d parameters are missing, %d compared", what, shared, len(found))
	}
}
