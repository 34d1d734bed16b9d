package run

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/programs"
)

// freezeSome freezes random parameters of a model: those of some first layers, single parameters of later layers, or
// both.
func freezeSome(g *rand.Rand, m *model.Model) {
	var patterns []string
	last := g.IntN(len(m.Layers) - 1) // the layer after the frozen beginning
	for l := range m.Layers {
		if len(m.Layers[l].Params) == 0 || m.Layers[l].Name == "head" {
			continue
		}
		switch k := g.IntN(6); {
		case l < last:
			patterns = append(patterns, m.Layers[l].Name)
		case k == 0:
			patterns = append(patterns, m.Layers[l].Name+".weight")
		case k == 1:
			patterns = append(patterns, m.Layers[l].Name+".b*")
		}
	}
	if err := m.Freeze(patterns); err != nil {
		panic(err)
	}
}

// learnsOnly compares a training's weights with the initial ones: frozen parameters must not have changed.
func learnsOnly(t *testing.T, c Config, got *Result) error {
	t.Helper()
	still := undivided(c)
	still.Train.Steps, still.Keep.Steps = 1, 0
	still.Plan.Schedule = "1f1b"
	still.Train.Rate.Base = 1e-30
	still.Train.Optimizer.WeightDecay = 0
	start := train(t, still).Weights
	for _, l := range c.Model.Layers {
		for k, p := range l.Params {
			if name := l.ParamName(k); p.Frozen && p.Tied == "" && string(start[name].Data) != string(got.Weights[name].Data) {
				return fmt.Errorf("%s is frozen and has changed", name)
			}
		}
	}
	return nil
}

// Random models with frozen layers, cut anywhere, train to the same bits as one worker in a sequential program. The
// frozen layers are at the beginning or in the middle. Frozen parameters keep their initial bits.
func TestFrozenPipelinesEqualOneWorker(t *testing.T) {
	e := testEngine(t)
	eachSeed(t, 200, func(t *testing.T, seed uint64) {
		g := rand.New(rand.NewPCG(seed, 18))
		c := randomConfig(t, e, g)
		freezeSome(g, c.Model)
		c.Plan.ModelID = c.Model.ID()
		got := train(t, c)
		err := equalCase(c, reference(t, c), got.Weights)
		if err == nil {
			err = learnsOnly(t, c, got)
		}
		if err != nil {
			t.Fatalf("seed %d: %v\n%+v", seed, err, *c.Plan)
		}
	})
}

// With a wholly frozen first stage, every synchronous order ends with the same bits as one worker, also with replicas.
func TestAFrozenFirstStageUnderEveryOrder(t *testing.T) {
	e := testEngine(t)
	for _, family := range []string{"afab", "1f1b", "zb-h1", "zb-h2", "zb-v", "v-half", "interleaved", "bfs", "chimera",
		"dp"} {
		for seed := range uint64(4) {
			m := randomModel(t, rand.New(rand.NewPCG(seed, 5)))
			pl := twoWorkers(m, family, schedule.Sync)
			var patterns []string
			for l := range m.Layers {
				if first := m.Layers[l]; l <= max(pl.Stages[0].LastLayer, 1) && len(first.Params) > 0 && first.Name != "head" {
					patterns = append(patterns, first.Name)
				}
			}
			patterns = slices.Compact(patterns)
			if err := m.Freeze(patterns); err != nil {
				t.Fatal(err)
			}
			pl.ModelID = m.ID()
			c := basic(t, e, m, pl, 3, 2)
			c.Train.Clip = float64(seed % 2)
			got := train(t, c)
			if err := equalCase(c, reference(t, c), got.Weights); err != nil {
				t.Errorf("%s, seed %d: %v", family, seed, err)
			}
			if err := learnsOnly(t, c, got); err != nil {
				t.Errorf("%s, seed %d: %v", family, seed, err)
			}
		}
	}
}

// On libtorch too, a transformer and a convnet with frozen layers before and after others train to the same bits as one
// worker. Some backwards are split, and some stages recompute.
func TestFrozenLayersOnTorch(t *testing.T) {
	e := torchEngine(t)
	for name, c := range map[string]struct {
		settings map[string]any
		patterns []string
		classes  int
	}{
		"gpt": {map[string]any{"layers": 2, "width": 16, "heads": 2, "context": 8, "vocabulary": 20},
			[]string{"block0.*", "*.bias"}, 20},
		"convnet": {map[string]any{"image": []int{1, 8, 8}, "widths": []int{4, 8}, "dense": []int{16}, "batch_norm": true},
			[]string{"conv1"}, 10},
	} {
		m := build(t, name, c.settings)
		if err := m.Freeze(c.patterns); err != nil {
			t.Fatal(err)
		}
		for _, family := range []string{"1f1b", "zb-h2"} {
			for _, again := range []plan.Recompute{plan.KeepAll, plan.Every(2)} {
				pl := twoWorkers(m, family, schedule.Sync)
				for s := range pl.Stages {
					pl.Stages[s].Recompute = again
				}
				run := basic(t, e, m, pl, c.classes, 2)
				got := train(t, run)
				err := equalCase(run, reference(t, run), got.Weights)
				if err == nil && name == "gpt" {
					err = learnsOnly(t, run, got)
				}
				if err != nil {
					t.Errorf("%s %s, recompute %v: %v", name, family, again, err)
				}
			}
		}
	}
}

// The statistics of frozen first layers are those of the sequential program, in a stream and with replicas. Replicas
// see different micro-batches, so a frozen stage has to sum statistics and nothing else.
func TestFrozenLayersGatherStatistics(t *testing.T) {
	e := torchEngine(t)
	m := build(t, "convnet", map[string]any{"image": []int{1, 8, 8}, "widths": []int{4, 8}, "dense": []int{16},
		"batch_norm": true})
	if err := m.Freeze([]string{"conv*"}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		family string
		policy schedule.Policy
		micros int
		cuts   []int
		on     [][]int
	}{
		{"dp", schedule.Sync, 4, nil, [][]int{{0, 1}}},
		{"dp-overlap", schedule.Sync, 4, nil, [][]int{{0, 1}}},
		{"1f1b", schedule.Sync, 4, []int{m.Index("flatten")}, [][]int{{0, 1}, {2}}},
		{"zb-h2", schedule.Sync, 4, []int{m.Index("flatten")}, [][]int{{0}, {1, 2}}},
		{"1f1b-rr", schedule.Stash, 1, []int{m.Index("flatten")}, [][]int{{0}, {1}}},
		{"1f1b-rr", schedule.DoubleBuffered, 1, []int{m.Index("flatten")}, [][]int{{0}, {1}}},
	} {
		pl := planOf(m, c.cuts, 2, c.micros, c.family)
		pl.Weights = string(c.policy)
		for s := range pl.Stages {
			pl.Stages[s].Devices = c.on[s]
		}
		config := basic(t, e, m, pl, 10, 4)
		p, err := programs.Build(pl, m.TiedLayers(), false, config.Train.Steps)
		if err != nil {
			t.Fatal(err)
		}
		got := train(t, config)
		err = equalCase(config, sequential(t, config, versionsOf(p)), got.Weights)
		if err == nil {
			err = learnsOnly(t, config, got)
		}
		if err != nil {
			t.Errorf("%s %s on %v: %v", c.family, c.policy, c.on, err)
		}
	}
}
