package run

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/engine/ref"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/check"
	"github.com/millrace-ml/millrace/schedule/programs"
	"github.com/millrace-ml/millrace/stage/optim"
	"github.com/millrace-ml/millrace/wire/shape"
)

// randomModel returns a DAG of dense layers, sums, and dropouts with skips over up to three layers. Some layers'
// outputs are not read, and in some models weights are tied.
func randomModel(t testing.TB, g *rand.Rand) *model.Model {
	width := 2 + g.IntN(3)
	var b strings.Builder
	fmt.Fprintf(&b, "name: random\ninputs:\n- {name: input, shape: [%d], dtype: float}\n- {name: target, shape: [], "+
		"dtype: int}\nlayers:\n", width)
	names := []string{"input"}
	pick := func() string { // mostly one of the last layers
		return names[max(0, len(names)-1-min(g.IntN(4), g.IntN(8)))]
	}
	dense := []string{}
	body := 2 + g.IntN(7)
	for i := range body {
		name := fmt.Sprintf("n%d", i)
		switch k := g.IntN(10); {
		case k < 6 || i == 0:
			fmt.Fprintf(&b, "- {name: %s, kind: dense, from: [%s], width: %d, activation: %s}\n", name, pick(), width,
				[]string{"relu", "none"}[g.IntN(2)])
			dense = append(dense, name)
		case k < 8:
			fmt.Fprintf(&b, "- {name: %s, kind: add, from: [%s, %s]}\n", name, pick(), pick())
		default:
			fmt.Fprintf(&b, "- {name: %s, kind: dropout, from: [%s], p: 0.25}\n", name, pick())
		}
		names = append(names, name)
	}
	fmt.Fprintf(&b, "- {name: head, kind: dense, from: [%s], width: 3}\n- {name: loss, kind: cross_entropy, from: "+
		"[head, target]}\n", names[len(names)-1])
	m, err := model.Parse(strings.NewReader(b.String()))
	if err != nil {
		t.Fatalf("%v\n%s", err, b.String())
	}
	if g.IntN(3) == 0 && len(dense) > 1 {
		owner := m.Index(dense[0])
		for _, d := range dense[1:] {
			if g.IntN(2) == 0 {
				m.Layers[m.Index(d)].Params[0].Tied = m.Layers[owner].Name + ".weight"
			}
		}
	}
	return m
}

func randomOptimizer(g *rand.Rand) optim.Settings {
	s := []optim.Settings{
		{Kind: optim.SGD}, {Kind: optim.SGD, Momentum: 0.9, WeightDecay: 0.01}, {Kind: optim.SGD, Momentum: 0.8,
			Nesterov: true},
		{Kind: optim.Adam, Beta1: 0.9, Beta2: 0.99, Epsilon: 1e-6, WeightDecay: 0.01}, {Kind: optim.AdamW, Beta1: 0.9,
			Beta2: 0.99, Epsilon: 1e-6, WeightDecay: 0.1},
		{Kind: optim.LARS, Momentum: 0.9, WeightDecay: 0.01, Trust: 0.1}, {Kind: optim.ASGD, AverageFrom: 2},
	}
	return s[g.IntN(len(s))]
}

// randomPlan cuts a model anywhere, with any valid warm-up depths.
func randomPlan(g *rand.Rand, m *model.Model) *plan.Plan {
	n := len(m.Layers)
	stages := 1 + g.IntN(min(6, n))
	cuts := g.Perm(n - 1)[:stages-1]
	slices.Sort(cuts)
	p := planOf(m, cuts, 1+g.IntN(3), 1+g.IntN(7), "1f1b")
	depth := 1 + g.IntN(p.MicroBatches)
	for i := range p.Stages {
		p.Stages[i].Warmup = depth
		p.Stages[i].Recompute = anyRecompute(g)
		depth = 1 + g.IntN(depth)
	}
	return p
}

// anyRecompute returns a random setting. In half of the cases it recomputes nothing.
func anyRecompute(g *rand.Rand) plan.Recompute {
	return []plan.Recompute{plan.KeepAll, plan.KeepAll, plan.KeepInput, plan.Every(1 + g.IntN(3))}[g.IntN(4)]
}

func randomConfig(t testing.TB, e engine.Engine, g *rand.Rand) Config {
	m := randomModel(t, g)
	c := basic(t, e, m, randomPlan(g, m), 3, 1+g.IntN(3))
	c.Data.Train = noise{model: m, classes: 3, rows: 1 << 20, seed: g.Uint64()}
	c.Train.Optimizer, c.Train.Seed, c.Keep.Steps = randomOptimizer(g), g.Uint64(), c.Train.Steps
	if g.IntN(2) == 0 {
		c.Train.Clip = []float64{0.01, 0.3, 10}[g.IntN(3)]
	}
	return c
}

// Cutting a model into stages and scheduling them in any order changes no bit of any weight. The executed
// instructions are those of the Program.
func TestAnyPipelineEqualsOneWorker(t *testing.T) {
	e := testEngine(t)
	eachSeed(t, 500, func(t *testing.T, seed uint64) {
		g := rand.New(rand.NewPCG(seed, 2))
		c := randomConfig(t, e, g)
		got := train(t, c)
		if err := equalCase(c, reference(t, c), got.Weights); err != nil {
			t.Fatalf("seed %d: %v\n%+v", seed, err, *c.Plan)
		}
		checkOrder(t, c, got)
	})
}

// Random delays of transfers and operators make workers overlap in varying ways. They change no bit.
func TestDelaysChangeNothing(t *testing.T) {
	e := testEngine(t)
	var could, did atomic.Int64
	seeds := cases(32, 60)
	eachSeed(t, seeds, func(t *testing.T, seed uint64) {
		g := rand.New(rand.NewPCG(seed, 3))
		c := randomConfig(t, e, g)
		want := reference(t, c)
		c.Engine = slowEngine{Engine: e, seed: seed}
		c.Wire.Carriers = shaped(func(from, to int) shape.Link {
			return shape.Link{Latency: time.Duration(g.IntN(400)) * time.Microsecond, BytesPerSecond: 1e6}
		})
		c.Machine.Cores = g.IntN(3)
		got := train(t, c)
		if err := equalCase(c, want, got.Weights); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		checkOrder(t, c, got)
		if len(c.Plan.Stages) > 1 && c.Plan.Stages[0].Warmup > 1 && c.Machine.Cores != 1 {
			could.Add(1)
			if overlapped(got) {
				did.Add(1)
			}
		}
		if c.Machine.Cores == 1 && overlapped(got) {
			t.Fatalf("seed %d: two workers computed at once on one core", seed)
		}
	})
	if could, did := could.Load(), did.Load(); could < int64(seeds/4) || did < could*9/10 {
		t.Errorf("workers overlapped in %d of the %d cases where they could", did, could)
	}
}

// checkOrder compares a run with its Program. Each worker must have computed its list's instructions in order, one at a
// time, and held as many micro-batches as Check counts. Each step must have a mark and a loss.
func checkOrder(t *testing.T, c Config, r *Result) {
	t.Helper()
	p, err := programs.Build(c.Plan, c.Model.TiedLayers(), c.Train.Clip > 0, c.Train.Steps)
	if err != nil {
		t.Fatal(err)
	}
	report, err := check.Check(p)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(report.PeakActivations, r.Timeline.PeakActivations) {
		t.Errorf("held %v micro-batches; the program says %v", r.Timeline.PeakActivations, report.PeakActivations)
	}
	for w := range p.Workers {
		var want, got []string
		p.Walk(w, func(in schedule.Instruction) bool {
			if in.Kind.IsCompute() {
				want = append(want, in.String())
			}
			return true
		})
		last := 0.0
		for _, ev := range r.Timeline.Events {
			if ev.Worker != w || ev.Lane != "compute" {
				continue
			}
			if ev.StartS < last {
				t.Errorf("%s begins before the worker is free", ev.Instruction)
			}
			last = ev.EndS
			got = append(got, ev.Instruction)
		}
		if !slices.Equal(want, got) {
			t.Fatalf("worker %d did\n%v; the program says\n%v", w, got, want)
		}
	}
	if len(r.Timeline.Steps) != c.Train.Steps || len(r.Timeline.Losses) != c.Train.Steps || r.Steps != c.Train.Steps {
		t.Errorf("%d steps marked, %d losses, %d done of %d", len(r.Timeline.Steps), len(r.Timeline.Losses), r.Steps,
			c.Train.Steps)
	}
}

// overlapped reports whether two workers computed at the same time.
func overlapped(r *Result) bool {
	for i, a := range r.Timeline.Events {
		for _, b := range r.Timeline.Events[i+1:] {
			if a.Lane == "compute" && b.Lane == "compute" && a.Worker != b.Worker && a.StartS < b.EndS && b.StartS < a.EndS {
				return true
			}
		}
	}
	return false
}

// slowEngine is an engine with random delays of backwards, linear operators and cross entropies.
type slowEngine struct {
	engine.Engine
	seed uint64
}

func (s slowEngine) Open(worker, threads int) (engine.Device, error) {
	d, err := s.Engine.Open(worker, threads)
	if err != nil {
		return nil, err
	}
	return &slowDevice{Device: d, random: rand.New(rand.NewPCG(s.seed, uint64(worker)))}, nil
}

type slowDevice struct {
	engine.Device
	random *rand.Rand
}

// View gives twins access to the memory.
func (d *slowDevice) View(t engine.Tensor) ([]byte, error) { return d.Device.(viewer).View(t) }

func (d *slowDevice) pause() {
	<-time.After(time.Duration(100+d.random.IntN(300)) * time.Microsecond)
}

func (d *slowDevice) Call(op string, args ...any) ([]engine.Tensor, error) {
	if op == "millrace::linear" || op == "aten::cross_entropy_loss" {
		d.pause()
	}
	return d.Device.Call(op, args...)
}

func (d *slowDevice) Backward(outputs, grads []engine.Tensor) error {
	d.pause()
	return d.Device.Backward(outputs, grads)
}

func testEngine(t testing.TB) engine.Engine {
	t.Helper()
	return ref.New()
}
