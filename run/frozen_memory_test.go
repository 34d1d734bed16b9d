package run

import (
	"testing"

	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/stage/optim"
)

// frozenModels are sizedModels with frozen parameters. In the transformer, the embedding, a block and all biases are
// frozen. In the convnet, conv1 is frozen.
func frozenModels(t *testing.T) []sizedModel {
	t.Helper()
	return sizedModels(t, []string{"embed", "block0.*", "*.bias"}, []string{"conv1"})
}

// With frozen layers too, each worker holds at most as many bytes as the simulator says. If every message had to wait,
// it holds exactly as many. Frozen layers have no gradients and no states, and keep nothing for a backward. No
// gradients cross the cuts between them. So the memory is less than without frozen layers, and replicas sum fewer
// bytes.
func TestMemoryOfFrozenLayersIsAsPredicted(t *testing.T) {
	learning := sizedModels(t)
	for i, sized := range frozenModels(t) {
		m := sized.model
		for _, family := range []string{"1f1b", "zb-h2", "interleaved", "dp"} {
			for _, again := range []plan.Recompute{plan.KeepAll, plan.Every(2)} {
				pl := twoWorkers(m, family, schedule.Sync)
				for s := range pl.Stages {
					pl.Stages[s].Recompute = again
				}
				got, most, costs := sized.asPredicted(t, pl, 3, 0)
				if family != "dp" {
					continue
				}
				all := *pl
				all.ModelID = learning[i].model.ID()
				before, said, _, unfrozen := learning[i].held(t, &all, 3, 0)
				if most[0] >= said[0] || got.PeakBytes[0] >= before.PeakBytes[0] {
					t.Errorf("%s: %d bytes are said and %d held; where nothing is frozen %d and %d", m.Name, most[0], got.PeakBytes[0],
						said[0], before.PeakBytes[0])
				}
				one, other := costs.Stages[0][0], unfrozen.Stages[0][0]
				if one.ParameterBytes >= other.ParameterBytes || one.AllReduceS >= other.AllReduceS {
					t.Errorf("%s: %d bytes are summed in %g s; where nothing is frozen %d in %g s", m.Name, one.ParameterBytes,
						one.AllReduceS, other.ParameterBytes, other.AllReduceS)
				}
			}
		}
	}
}

// The memory of a frozen embedding that the head shares is predicted, over two and three stages. The stages of the
// embedding and of the head each have a copy. No copy has a gradient, a state or an older version, and no gradient of
// the embedding is exchanged.
func TestMemoryOfAFrozenTie(t *testing.T) {
	adam, err := optim.Default(optim.Adam)
	if err != nil {
		t.Fatal(err)
	}
	sized := sizedModel{classes: 2000, optimizer: adam, model: build(t, "gpt", map[string]any{"layers": 3, "width": 64,
		"heads": 2, "context": 32, "vocabulary": 2000, "tied": true})}
	if err := sized.model.Freeze([]string{"embed"}); err != nil {
		t.Fatal(err)
	}
	sized.measure(t)
	const shared = 2000 * 64 * 4
	for _, stages := range []int{2, 3} {
		for _, c := range []struct {
			family  string
			policy  schedule.Policy
			later   bool
			elastic int
		}{
			{"1f1b", schedule.Sync, false, 0}, {"zb-h1", schedule.Sync, true, 0}, {"1f1b-rr", schedule.Stash, false, 0},
			{"elastic", schedule.Elastic, false, 2},
		} {
			pl := planOf(sized.model, evenCuts(len(sized.model.Layers), stages), sizedMicro, 4, c.family)
			pl.Weights, pl.PostValidate = string(c.policy), c.later
			if c.policy == schedule.Stash {
				pl.MicroBatches = 1
			}
			if c.elastic > 0 {
				pl.Elastic = plan.NewElastic(c.elastic)
			}
			for s := range pl.Stages {
				pl.Stages[s].Devices = []int{s}
			}
			got, _, costs := sized.asPredicted(t, pl, 4, map[bool]float64{true: 1e9}[c.later])
			for s, replicas := range costs.Stages {
				has := replicas[0].FrozenBytes >= shared
				if ends := s == 0 || s == stages-1; has != ends || replicas[0].TiedS != 0 {
					t.Errorf("%s: stage %d of %d has %d frozen bytes, exchanges gradients for %g s", c.family, s, stages,
						replicas[0].FrozenBytes, replicas[0].TiedS)
				}
			}
			if got.PeakBytes[stages-1] < shared {
				t.Errorf("%s: the last of %d holds %d bytes, and its frozen copy is %d", c.family, stages,
					got.PeakBytes[stages-1], shared)
			}
		}
	}
}
