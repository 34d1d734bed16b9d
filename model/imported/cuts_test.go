package imported_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"os"
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

// answers holds PyTorch's results for networks that several tests use, in a folder that TestMain removes.
var answers struct {
	folder string
	of     map[string]torchtest.Answer
}

func TestMain(m *testing.M) {
	folder, err := os.MkdirTemp("", "imported")
	if err != nil {
		panic(err)
	}
	answers.folder = folder
	code := m.Run()
	if err := os.RemoveAll(folder); err != nil {
		panic(err)
	}
	os.Exit(code)
}

// exported makes PyTorch export networks and compute their results without training. It reuses the results of networks
// that another test has asked for.
func exported(t *testing.T, requests ...torchtest.Request) []torchtest.Answer {
	t.Helper()
	if answers.of == nil {
		answers.of = map[string]torchtest.Answer{}
	}
	var missing []torchtest.Request
	for _, r := range requests {
		if _, there := answers.of[r.Name]; !there {
			r.Rate = 0
			missing = append(missing, r)
		}
	}
	if len(missing) > 0 {
		for _, a := range torchtest.RunIn(t, answers.folder, missing...) {
			answers.of[a.Name] = a
		}
	}
	var all []torchtest.Answer
	for _, r := range requests {
		all = append(all, answers.of[r.Name])
	}
	return all
}

// line holds the stages of a model on one device.
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

// step runs a batch forward and backward. It returns the loss, and the gradients and buffers by PyTorch's names.
func (l *line) step(batch map[string]torchtest.Tensor, prefix string) (float64, map[string][]byte) {
	l.t.Helper()
	loss := l.forward(0, batch, prefix)
	l.back(0, (*stage.Stage).Backward)
	return loss, l.found()
}

// evaluates compares the losses of two batches in evaluation with PyTorch's, and checks that buffers do not change.
func evaluates(t *testing.T, dev engine.Device, m *model.Model, want map[string]torchtest.Tensor,
	within float64) {
	t.Helper()
	l := newLine(t, dev, m, 0)
	defer l.close()
	before := l.found()
	for _, batch := range []string{"a", "b"} {
		expected := float64(math.Float32frombits(binary.LittleEndian.Uint32(want[batch+".evaluated"].Data)))
		if loss := l.evaluate(want, batch); math.Abs(loss-expected) > within*math.Abs(expected) {
			t.Errorf("batch %s: a loss of %v in evaluation; PyTorch's is %v", batch, loss, expected)
		}
	}
	for name, x := range l.found() {
		if !bytes.Equal(x, before[name]) {
			t.Errorf("evaluating changes %s", name)
		}
	}
}

// evaluate runs a batch in evaluation, and returns the loss.
func (l *line) evaluate(batch map[string]torchtest.Tensor, prefix string) float64 {
	l.t.Helper()
	var out stage.Tensors
	var scores stage.Scores
	for _, s := range l.stages {
		given := l.fed(s, batch, prefix)
		maps.Copy(given, out)
		var err error
		if out, scores, err = s.Evaluate(stage.Micro{Rows: l.rows(batch, prefix)}, given); err != nil {
			l.t.Fatal(err)
		}
	}
	value, err := l.dev.Item(scores.Loss)
	scores.Free()
	if err != nil {
		l.t.Fatal(err)
	}
	return value
}

// fed returns the tensors that a stage reads directly from a batch.
func (l *line) fed(s *stage.Stage, batch map[string]torchtest.Tensor, prefix string) stage.Tensors {
	l.t.Helper()
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
	return given
}

func (l *line) rows(batch map[string]torchtest.Tensor, prefix string) int {
	return int(batch[prefix+"/"+l.stages[0].Graph.Model.Inputs[0].Name].Shape[0])
}

// forward runs a batch forward as a micro-batch, and returns the loss.
func (l *line) forward(id int, batch map[string]torchtest.Tensor, prefix string) float64 {
	l.t.Helper()
	var out stage.Tensors
	var loss engine.Tensor
	for _, s := range l.stages {
		given := l.fed(s, batch, prefix)
		maps.Copy(given, out)
		var err error
		micro := stage.Micro{ID: id, Index: id, Rows: l.rows(batch, prefix)}
		if out, loss, err = s.Forward(micro, given); err != nil {
			l.t.Fatal(err)
		}
	}
	value, err := l.dev.Item(loss)
	loss.Free()
	if err != nil {
		l.t.Fatal(err)
	}
	return value
}

// back runs the backward through all stages. The function `how` computes a stage's whole backward, or only its input
// half.
func (l *line) back(id int, how func(s *stage.Stage, id int, given stage.Tensors, weight float64) (stage.Tensors,
	error)) {
	l.t.Helper()
	var grads stage.Tensors
	for _, s := range slices.Backward(l.stages) {
		var err error
		if grads, err = how(s, id, grads, 1); err != nil {
			l.t.Fatal(err)
		}
	}
}

// found returns the gradients and the buffers by PyTorch's names.
func (l *line) found() map[string][]byte {
	l.t.Helper()
	found := map[string][]byte{}
	for _, s := range l.stages {
		if err := s.Gradients.Gather(); err != nil {
			l.t.Fatal(err)
		}
		for _, p := range s.Params.Learned {
			if p.Owned && !p.Shared {
				found["grad/"+p.Name] = l.bytes(p.Gradient())
			}
		}
		for _, b := range s.Params.Buffers {
			found["buffer/"+b.Name] = l.bytes(b.Value)
		}
	}
	return found
}

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

// apart returns the norm of the difference of two lists, divided by the norm of `want` or by `least`, whichever is
// larger.
func apart(got, want []byte, least float64) float64 {
	if len(got) != len(want) {
		return math.Inf(1)
	}
	d := 0.0
	for at := 0; at < len(want); at += 4 {
		d = math.Hypot(d, float64(number(got[at:])-number(want[at:])))
	}
	return d / max(norm(want), least, 1e-15)
}

func number(b []byte) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(b)) }

func norm(of []byte) float64 {
	n := 0.0
	for at := 0; at < len(of); at += 4 {
		n = math.Hypot(n, float64(number(of[at:])))
	}
	return n
}

// The loss and the gradients are those of PyTorch, also for a batch with another number of rows. A model gives the same
// bits wherever it is cut.
func TestNetworksComputeWhatPyTorchDoes(t *testing.T) {
	for _, a := range exported(t, append(torchtest.Main(), torchtest.Request{Name: "between", File: "dropouts.py"})...) {
		t.Run(a.Name, func(t *testing.T) {
			if a.Code != 0 {
				t.Fatal(a.Said)
			}
			want := torchtest.Read(t, a.Numbers)
			t.Run("unfused", func(t *testing.T) { everyCut(t, opened(t, a.Model, imported.Off).Model, want, 1e-6, 0) })
			t.Run("fused", func(t *testing.T) { everyCut(t, opened(t, a.Model, imported.Fused).Model, want, 1e-4, 1e-3) })
		})
	}
}

func opened(t *testing.T, file, fuse string) *imported.Network {
	t.Helper()
	n, err := imported.Open(file, imported.Options{Fuse: fuse})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// everyCut compares a model with PyTorch, and each of its cuts with the uncut model. The difference of a gradient is
// divided by the gradient's norm. If that norm is less than `least` times the norm of all gradients, the difference is
// divided by this product instead. The reason is that a gradient that should cancel out is only rounding error, in
// PyTorch too.
func everyCut(t *testing.T, m *model.Model, want map[string]torchtest.Tensor, within, least float64) {
	t.Helper()
	dev := device(t)
	compare(t, dev, m, want, "b", within, least)
	loss, found := compare(t, dev, m, want, "a", within, least)
	evaluates(t, dev, m, want, within)
	for cut := 1; cut < len(m.Layers); cut++ {
		equalBits(t, fmt.Sprintf("cut in front of %s", m.Layers[cut].Name), dev, m, want, loss, found, 0, cut)
	}
	var all []int
	for cut := 1; cut < len(m.Layers); cut++ {
		all = append(all, cut)
	}
	equalBits(t, "cut everywhere", dev, m, want, loss, found, 0, all...)
	equalBits(t, "cut once, and recomputed", dev, m, want, loss, found, 2, len(m.Layers)/2)
}

// compare compares a step of the uncut model with PyTorch's, tensor by tensor.
func compare(t *testing.T, dev engine.Device, m *model.Model, want map[string]torchtest.Tensor, batch string,
	within, least float64) (float64, map[string][]byte) {
	t.Helper()
	whole := newLine(t, dev, m, 0)
	defer whole.close()
	loss, found := whole.step(want, batch)
	expected := float64(math.Float32frombits(binary.LittleEndian.Uint32(want[batch+".loss"].Data)))
	if math.Abs(loss-expected) > within*math.Abs(expected) {
		t.Errorf("batch %s: a loss of %v; PyTorch's is %v", batch, loss, expected)
	}
	gradients, length := 0, 0.0
	for name, x := range want {
		if strings.HasPrefix(name, batch+".grad/") {
			length = math.Hypot(length, norm(x.Data))
		}
	}
	for name, x := range want {
		short, is := strings.CutPrefix(name, batch+".")
		got, there := found[short]
		isGradient := strings.HasPrefix(short, "grad/")
		if is && isGradient {
			gradients++
		}
		if !is || !there && !isGradient {
			continue // an entry of another batch, an input, a reported number, or a buffer that does not change
		}
		if x.DType == "I64" {
			if !bytes.Equal(got, x.Data) {
				t.Errorf("batch %s: %s is %v, PyTorch's %v", batch, short, got, x.Data)
			}
		} else if d := apart(got, x.Data, least*length); d > within {
			t.Errorf("batch %s: %s is %.3g away from PyTorch's", batch, short, d)
		}
	}
	if gradients == 0 {
		t.Errorf("batch %s: PyTorch has no gradients", batch)
	}
	return loss, found
}

// equalBits compares a step of several stages with a step of the whole model. It leaves out parameters that are tied
// over several stages, because each stage has only a part of their gradient. Tests of runs cover these parameters.
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
