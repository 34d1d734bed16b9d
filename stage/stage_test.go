package stage

import (
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/engine/ref"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/nn"
)

// skips is a model whose tensors cross cuts, skip stages, and are read by several layers. Layer c reads one tensor
// twice, and one weight is used three times.
const skips = `
name: skips
inputs:
- {name: input, shape: [3], dtype: float}
- {name: target, shape: [], dtype: int}
layers:
- {name: a, kind: dense, from: [input], width: 3, activation: tanh}
- {name: b, kind: dense, from: [a], width: 3, activation: tanh}
- {name: c, kind: add, from: [a, b, a]}
- {name: d, kind: dense, from: [c], width: 3}
- {name: unread, kind: dense, from: [b], width: 2}
- {name: e, kind: add, from: [d, a]}
- {name: f, kind: dense, from: [e], width: 3, activation: tanh}
- {name: head, kind: dense, from: [f], width: 3}
- {name: loss, kind: cross_entropy, from: [head, target]}
`

func parse(t *testing.T) *model.Model {
	t.Helper()
	m, err := model.Parse(strings.NewReader(skips))
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range []string{"b", "f"} {
		m.Layers[m.Index(l)].Params[0].Tied = "a.weight"
	}
	return m
}

// lab holds a model on one device, divided into stages before the given layers.
type lab struct {
	t      *testing.T
	engine engine.Engine
	dev    engine.Device
	stages []*Stage
}

func newLab(t *testing.T, e engine.Engine, segment int, cuts ...int) *lab {
	t.Helper()
	runtime.LockOSThread()
	dev, err := e.Open(0, 1)
	if err != nil {
		t.Fatal(err)
	}
	m := parse(t)
	g, err := NewGraph(m)
	if err != nil {
		t.Fatal(err)
	}
	layers, err := nn.Build(m)
	if err != nil {
		t.Fatal(err)
	}
	b := &lab{t: t, engine: e, dev: dev}
	first := 0
	for _, last := range append(cuts, len(layers)) {
		s, err := New(Config{Device: dev, Float: e.Float(), Graph: g, First: first, Last: last - 1, Layers: layers, Seed: 5,
			Segment: segment})
		if err != nil {
			t.Fatal(err)
		}
		b.stages = append(b.stages, s)
		first = last
	}
	return b
}

func (b *lab) close() {
	b.t.Helper()
	for _, s := range b.stages {
		s.Close()
	}
	if n := b.dev.Close(); n != 0 {
		b.t.Errorf("%d handles leaked", n)
	}
}

func (b *lab) feeds(s *Stage, rows int, seed uint64) Tensors {
	g := rand.New(rand.NewPCG(seed, 1))
	x, y := make([]float64, 3*rows), make([]int64, rows)
	for i := range x {
		x[i] = g.NormFloat64()
	}
	for i := range y {
		y[i] = int64(g.IntN(3))
	}
	given := Tensors{}
	for _, v := range s.Feeds() {
		var err error
		m := b.dev.Begin()
		if s.Graph.Name(v) == "target" {
			given[v], err = b.dev.FromBytes(engine.Int64, []int64{int64(rows)}, engine.Bytes(y))
		} else {
			given[v], err = (&maker{c: &s.Config}).floats([]int64{int64(rows), 3}, x)
		}
		b.dev.End(m, given[v])
		if err != nil {
			b.t.Fatal(err)
		}
	}
	return given
}

// forward passes a micro-batch through all stages and returns its loss.
func (b *lab) forward(id, rows int, seed uint64) (loss float64) {
	b.t.Helper()
	var out Tensors
	var last engine.Tensor
	var err error
	for _, s := range b.stages {
		given := b.feeds(s, rows, seed)
		for v, x := range out {
			given[v] = x
		}
		if out, last, err = s.Forward(Micro{ID: id, Rows: rows}, given); err != nil {
			b.t.Fatal(err)
		}
	}
	defer last.Free()
	return must(b.dev.Item(last))
}

func (b *lab) backward(id int, weight float64) {
	b.t.Helper()
	var grads Tensors
	var err error
	for _, s := range slices.Backward(b.stages) {
		if grads, err = s.Backward(id, grads, weight); err != nil {
			b.t.Fatal(err)
		}
	}
	if len(grads) != 0 {
		b.t.Error("a gradient leaves the first stage")
	}
}

// The gradient of every weight equals the slope of the loss, measured by central differences.
func TestGradientsAreSlopes(t *testing.T) {
	b := newLab(t, doubles(t), 0)
	defer b.close()
	s := b.stages[0]
	b.forward(0, 4, 9)
	b.backward(0, 1)
	gradients, err := gradientsOf(s)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Gradients.Gather(); err != nil {
		t.Fatal(err)
	}
	slopes := 0
	for i, at := 0, 0; i < len(s.Params.Learned); i++ {
		p := s.Params.Learned[i]
		values, err := b.dev.(*ref.Device).View(p.Value)
		if err != nil {
			t.Fatal(err)
		}
		loss := func(k int, x float64) float64 {
			w := engine.Numbers[float64](values)
			was := w[k]
			w[k] = was + x
			defer func() { w[k] = was }()
			l := b.forward(1, 4, 9)
			b.stages[0].Abandon()
			return l
		}
		for k, g := range must(Values(b.dev, gradients[at].Tensor)) {
			const h = 1e-5
			slope := (loss(k, h) - loss(k, -h)) / (2 * h)
			if math.Abs(slope-g) > 1e-7 {
				t.Errorf("%s[%d]: gradient %v; the slope is %v", p.Name, k, g, slope)
			}
			slopes++
		}
		at += len(p.Uses)
	}
	if slopes != 9+3+3+9+3+6+2+3+9+3 {
		t.Errorf("%d weights were checked", slopes)
	}
}

// Gradients have the same bits for all cuts, with and without recompute, also on a lazy device.
func TestCutsChangeNoGradient(t *testing.T) {
	collect := func(e engine.Engine, segment int, cuts ...int) map[string]string {
		b := newLab(t, e, segment, cuts...)
		defer b.close()
		for id := range 3 {
			b.forward(id, 2, uint64(id))
			if id > 0 {
				b.backward(id-1, 1./3)
			}
		}
		b.backward(2, 1./3)
		all := map[string]string{}
		for _, s := range b.stages {
			gradients, err := gradientsOf(s)
			if err != nil {
				t.Fatal(err)
			}
			at := 0
			for _, p := range s.Params.Learned {
				for _, u := range p.Uses {
					name := s.Graph.Model.Layers[u.Layer].Name + " " + p.Name
					all[name] = string(engine.Bytes(must(Values(b.dev, gradients[at].Tensor))))
					at++
				}
			}
			if s.Open() != 0 || s.Peak() != 2 {
				t.Errorf("open %d, peak %d", s.Open(), s.Peak())
			}
		}
		return all
	}
	prompt := doubles(t)
	want := collect(prompt, 0)
	if len(want) != 6*2 {
		t.Errorf("%d gradients", len(want))
	}
	for _, segment := range []int{0, 1, 2, 3, 9} {
		for one := 1; one < 9; one++ {
			for two := one + 1; two < 9; two++ {
				e := prompt
				if (one+two)%7 == 0 {
					e = ref.Lazy(ref.Lateness{Seed: uint64(one), OneIn: 100, Most: 50 * time.Microsecond})
				}
				got := collect(e, segment, one, two)
				for name := range want {
					if got[name] != want[name] {
						t.Fatalf("cut in front of layers %d and %d, segments of %d: %s differs", one, two, segment, name)
					}
				}
			}
		}
	}
}

func TestWhatCrossesACut(t *testing.T) {
	g, err := NewGraph(parse(t))
	if err != nil {
		t.Fatal(err)
	}
	for layer, want := range []string{"", "a.out", "a.out b.out", "a.out b.out c.out", "a.out b.out d.out", "a.out d.out",
		"e.out", "f.out", "head.out"} {
		var names []string
		for _, v := range g.cut(layer) {
			names = append(names, g.Name(v))
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("in front of layer %d: %q; want %q", layer, got, want)
		}
	}
	if g.Find("e.out") < 0 || g.Find("nobody") >= 0 {
		t.Error("values are not found by name")
	}
}

// A stage without a micro-batch has gradients of zero, and can be updated with them.
func TestAStageWithoutAMicroBatchHasZeroGradients(t *testing.T) {
	b := newLab(t, doubles(t), 0)
	defer b.close()
	s := b.stages[0]
	gradients, err := gradientsOf(s)
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range gradients {
		for _, x := range must(Values(b.dev, g.Tensor)) {
			if x != 0 {
				t.Errorf("%s is not zero", g.Name)
			}
		}
	}
	if err := s.Renew(Replace); err != nil {
		t.Error(err)
	}
	if err := s.EachLayer(s.Gradients.Forget); err != nil {
		t.Error(err)
	}
}

// Norms returns the squares of the gradients that the update uses. Tied uses are added up, and a tied parameter is
// counted once.
func TestNormsAreOfTheFinalGradients(t *testing.T) {
	b := newLab(t, doubles(t), 0)
	defer b.close()
	s := b.stages[0]
	b.forward(0, 4, 9)
	b.backward(0, 1)
	gradients, err := gradientsOf(s)
	if err != nil {
		t.Fatal(err)
	}
	var want []float64
	at := 0
	for _, p := range s.Params.Learned {
		total := slices.Clone(must(Values(b.dev, gradients[at].Tensor)))
		for at++; at < len(gradients) && gradients[at].Name == p.Name; at++ {
			for i, x := range must(Values(b.dev, gradients[at].Tensor)) {
				total[i] += x
			}
		}
		square := 0.0
		for _, x := range total {
			square += x * x
		}
		want = append(want, square)
	}
	norms, err := s.Gradients.Norms()
	if err != nil {
		t.Fatal(err)
	}
	defer norms.Free()
	got := must(Values(b.dev, norms))
	if len(got) != len(want) {
		t.Fatalf("%d squares of %d parameters", len(got), len(want))
	}
	for i := range got {
		if math.Abs(got[i]-want[i]) > 1e-12*want[i] {
			t.Errorf("%s: %v; its squares add up to %v", s.Params.Learned[i].Name, got[i], want[i])
		}
	}
}

// gradientsOf returns the gradients of all uses of all parameters, in model order.
func gradientsOf(s *Stage) (all []Vector, err error) {
	if err := s.Gradients.hold(); err != nil {
		return nil, err
	}
	for _, p := range s.Params.Learned {
		for _, u := range p.Uses {
			all = append(all, Vector{p.Name, u.grad})
		}
	}
	return all, nil
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
