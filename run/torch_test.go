package run

import (
	"fmt"
	"testing"

	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/stage/optim"
)

// Cutting a model into stages does not change its trained weights by a single bit.
func TestTorchStagesAreBitEqual(t *testing.T) {
	e := torchEngine(t)
	for _, c := range []struct {
		family   string
		settings map[string]any
		classes  int
		micro    int
	}{
		{"mlp", map[string]any{"inputs": 20, "hidden": []int{32, 24, 16}, "dropout": 0.2}, 10, 4},
		{"convnet", map[string]any{"image": []int{1, 8, 8}, "widths": []int{4, 8}, "dense": []int{16}, "batch_norm": true},
			10, 3},
		{"gpt", map[string]any{"layers": 3, "width": 16, "heads": 2, "context": 8, "vocabulary": 30, "dropout": 0.1}, 30, 2},
		{"gpt", map[string]any{"layers": 2, "width": 16, "heads": 2, "context": 8, "vocabulary": 30, "tied": true}, 30, 2},
		{"llama", map[string]any{"layers": 3, "width": 16, "heads": 4, "kv_heads": 2, "hidden": 24, "context": 8,
			"vocabulary": 30}, 30, 2},
		{"llama", map[string]any{"layers": 2, "width": 16, "heads": 2, "kv_heads": 2, "hidden": 24, "context": 8,
			"vocabulary": 30, "tied": true}, 30, 2},
	} {
		m := build(t, c.family, c.settings)
		config := basic(t, e, m, planOf(m, nil, c.micro, 5, "1f1b"), c.classes, 3)
		config.Train.Optimizer = optim.Settings{Kind: optim.AdamW, Beta1: 0.9, Beta2: 0.99, Epsilon: 1e-8, WeightDecay: 0.1}
		config.Train.Rate.Base = 0.01
		config.Train.Clip = 0.5
		want := train(t, config)
		for stages := 2; stages <= 4; stages++ {
			t.Run(fmt.Sprintf("%s/%d", c.family, stages), func(t *testing.T) {
				config := config
				config.Plan = planOf(m, evenCuts(len(m.Layers), stages), c.micro, 5, "1f1b")
				config.Plan.Stages[0].Recompute = []plan.Recompute{plan.Every(2), plan.KeepInput, plan.KeepAll}[stages-2]
				got := train(t, config)
				if err := equalCase(config, want.Weights, got.Weights); err != nil {
					t.Error(err)
				}
				t.Log(losses(got.Timeline), got.Timeline.PeakActivations, got.PeakBytes)
			})
		}
	}
}
