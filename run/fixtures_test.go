package run

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/millrace-ml/millrace/data"
	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/engine/torch"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/run/process"
	"github.com/millrace-ml/millrace/stage/optim"
	"github.com/millrace-ml/millrace/trace"
)

// noise is a data set for a model. Its rows are random numbers that depend only on the seed, the step and the row.
type noise struct {
	model   *model.Model
	classes int
	rows    int
	seed    uint64
}

func (n noise) Len() int { return n.rows }

func (n noise) Batch(step, batchSize, firstRow, rows int) (data.Batch, error) {
	if firstRow < 0 || firstRow+rows > batchSize {
		return nil, fmt.Errorf("rows %d to %d of %d", firstRow, firstRow+rows, batchSize)
	}
	b := data.Batch{}
	for i, in := range n.model.Inputs {
		a := data.Array{Shape: append([]int{rows}, in.Shape...)}
		per := int(in.Elements())
		for r := range rows {
			g := rand.New(rand.NewPCG(n.seed+uint64(i), uint64(step)<<32|uint64(firstRow+r)))
			for range per {
				if in.DType == model.Int {
					a.Ints = append(a.Ints, int64(g.IntN(n.classes)))
				} else {
					a.Floats = append(a.Floats, float32(g.NormFloat64()))
				}
			}
		}
		b[in.Name] = a
	}
	return b, nil
}

func build(t testing.TB, family string, settings map[string]any) *model.Model {
	t.Helper()
	m, err := model.Build(family, settings)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// eachSeed tries a case for seeds from 0 on, as many in parallel as there are processors, and returns after the
// last.
func eachSeed(t *testing.T, seeds uint64, try func(t *testing.T, seed uint64)) {
	t.Helper()
	lanes := uint64(runtime.GOMAXPROCS(0))
	t.Run("seeds", func(t *testing.T) {
		for lane := range lanes {
			t.Run(fmt.Sprint(lane), func(t *testing.T) {
				t.Parallel()
				for seed := lane; seed < seeds; seed += lanes {
					try(t, seed)
				}
			})
		}
	})
}

// planOf cuts a model after the layers in `cuts`, with one worker per stage.
func planOf(m *model.Model, cuts []int, micro, micros int, schedule string) *plan.Plan {
	p := &plan.Plan{
		Version: plan.Version, Model: m.Name, ModelID: m.ID(), Replication: "round_robin", MicroBatch: micro,
		MicroBatches: micros,
		Schedule:     schedule, Weights: "sync",
	}
	first := 0
	for i, last := range append(slices.Clone(cuts), len(m.Layers)-1) {
		p.Stages = append(p.Stages, plan.Stage{FirstLayer: first, LastLayer: last, Devices: []int{i}})
		first = last + 1
	}
	return p
}

// evenCuts cuts n layers into stages of almost equal numbers of layers.
func evenCuts(n, stages int) []int {
	var cuts []int
	for s := 1; s < stages; s++ {
		cuts = append(cuts, n*s/stages-1)
	}
	return cuts
}

var openTorch = sync.OnceValues(func() (engine.Engine, error) { return torch.Open() })

func torchEngine(t testing.TB) engine.Engine {
	t.Helper()
	e, err := openTorch()
	if err != nil {
		t.Skip("libtorch is not installed: ", err)
	}
	return e
}

func basic(t testing.TB, e engine.Engine, m *model.Model, p *plan.Plan, classes, steps int) Config {
	t.Helper()
	return Config{
		Model: m, Plan: p, Engine: e, Data: Data{Train: noise{model: m, classes: classes, rows: 1 << 20, seed: 7}},
		Train: Training{Optimizer: optim.Settings{Kind: optim.SGD}, Rate: optim.Rate{Kind: optim.Constant,
			Base: 0.1}, Seed: 1, Steps: steps}, Keep: Keeping{Weights: true},
	}
}

func train(t testing.TB, c Config) *Result {
	t.Helper()
	res, err := Train(t.Context(), late(t, c))
	if err != nil {
		t.Fatal(err)
	}
	if res.Leaked != 0 {
		t.Errorf("%d handles leaked", res.Leaked)
	}
	if err := res.Timeline.Validate(); err != nil {
		t.Error(err)
	}
	return res
}

// sameWeights returns an error that names a parameter whose bits differ, if there is one.
func sameWeights(a, b map[string]process.Weight) error {
	if len(a) != len(b) || len(a) == 0 {
		return fmt.Errorf("%d weights and %d", len(a), len(b))
	}
	for name, w := range a {
		if string(w.Data) != string(b[name].Data) {
			return fmt.Errorf("%s differs", name)
		}
	}
	return nil
}

func losses(t trace.Timeline) []float64 {
	var out []float64
	for _, l := range t.Losses {
		out = append(out, l.Value)
	}
	return out
}
