package run

import (
	"fmt"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/internal/packing"
	"github.com/millrace-ml/millrace/internal/torchtest"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/model/imported"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/sim"
	"github.com/millrace-ml/millrace/stage/optim"
)

// On torch, divided dense and convolutional layers train like whole ones. Their weights differ by at most 1e-5 of the
// parameter's largest number. Batch norm and activation are applied to the whole product, on the stage with the layer's
// last part. Each border is crossed, in both directions, by as many bytes as the simulator counts.
func TestTorchDividedLayers(t *testing.T) {
	e := torchEngine(t)
	for _, x := range []struct {
		family   string
		settings map[string]any
		at       []string
	}{
		{"mlp", map[string]any{"inputs": 20, "hidden": []int{24, 20, 16}, "activation": "gelu"},
			[]string{"dense0", "dense2"}},
		{"mlp", map[string]any{"inputs": 20, "hidden": []int{24, 20}}, []string{"dense1", "head"}},
		{"convnet", map[string]any{"image": []int{1, 8, 8}, "widths": []int{6, 8}, "dense": []int{12}, "batch_norm": true},
			[]string{"conv0.0", "conv1.0"}},
		{"convnet", map[string]any{"image": []int{2, 8, 8}, "widths": []int{5}, "dense": []int{12}},
			[]string{"conv0.1", "dense0"}},
	} {
		m := build(t, x.family, x.settings)
		for _, family := range []string{"1f1b", "afab", "zb-h1"} {
			config := basic(t, e, m, planOf(m, evenCuts(len(m.Layers), 3), 4, 4, family), 10, 4)
			config.Train.Optimizer.Momentum, config.Train.Rate.Base, config.Train.Clip = 0.9, 0.05, 1
			want := train(t, config)
			var at []border
			for i, name := range x.at {
				l := m.Index(name)
				f, can := m.Features(l)
				if !can {
					t.Fatal(name)
				}
				at = append(at, border{l, float64(f.Count/3+i) / float64(f.Count)})
			}
			divide(config.Plan, len(m.Layers), at...)
			for s := range config.Plan.Stages {
				config.Plan.Stages[s].Recompute = map[bool]plan.Recompute{true: plan.KeepInput}[family == "afab"]
			}
			got := train(t, config)
			if err := nearWeights(got.Weights, want.Weights, 1e-5); err != nil {
				t.Errorf("%s, %v in parts, %s: %v", m.Name, x.at, family, err)
			}
			formats := []packing.Format{"", packing.F16, packing.I8}
			if family != "1f1b" {
				formats = formats[:1]
			}
			for _, format := range formats {
				if config.Plan.Boundary = format; format.Packs() {
					got = train(t, config)
				}
				if err := sendsWhatIsCounted(config, got); err != nil {
					t.Errorf("%s, %v in parts, %s, boundary %s: %v", m.Name, x.at, family, format, err)
				}
			}
		}
	}
}

// sendsWhatIsCounted compares the bytes that each of three stages sent to its neighbours with the bytes that the
// simulator counts. The run has 4 steps of 4 micro-batches of 4 samples.
func sendsWhatIsCounted(c Config, got *Result) error {
	p, err := profile.Analytic(c.Model, map[string]cluster.DeviceType{"cpu": {PeakFLOPS: 1e9,
		MemoryBandwidthBytesPerSecond: 1e9}}, []int{4}, "sgd", 1)
	if err != nil {
		return err
	}
	costs, err := sim.CostsOf(p, cluster.Local("cpu", 3, 0, 0, 1e-5, 1e10, 1e9), c.Plan)
	if err != nil {
		return err
	}
	sent := map[schedule.Kind]int{}
	for _, ev := range got.Timeline.Events {
		for _, kind := range []schedule.Kind{schedule.SF, schedule.SB} {
			if ev.Kind != kind.String() {
				continue
			}
			if want := costs.Stages[ev.Worker][0].Sends(kind); ev.Bytes != want {
				return fmt.Errorf("%s sends %d bytes; the simulator counts %d", ev.Instruction, ev.Bytes, want)
			}
			sent[kind]++
		}
	}
	if sent[schedule.SF] != 2*4*4 || sent[schedule.SB] != 2*4*4 {
		return fmt.Errorf("sent %v", sent)
	}
	return nil
}

// Plans that divide a layer in an invalid way are refused. The message names the fault and says what would be valid.
func TestWhatDividesNoLayer(t *testing.T) {
	m := build(t, "convnet", map[string]any{"image": []int{1, 8, 8}, "widths": []int{6, 8}, "dense": []int{12}})
	tied := tiedChain().model(t)
	for _, x := range []struct {
		what   string
		m      *model.Model
		at     border
		change func(*Config)
		want   string
	}{
		{"a pooling layer", m, border{2, 0.5}, nil, `layer "pool0" cannot be divided between stages: it is of kind ` +
			"max_pool; layers of 2 features or more can be, of kinds conv2d and dense, and of imported networks one linear or " +
			"one convolution; plan without that"},
		{"a part of less than half a feature", m, border{1, 0.05}, nil, `layer "conv0.1" cannot be divided between stages: ` +
			"part 1 of [0.05 0.95] is none of its 6 features"},
		{"a weight that layers share", tied, border{2, 0.5}, nil, `layer "n2" cannot be divided between stages: layers n0 ` +
			"and n2 share n0.weight, of which each stage would have rows"},
		{"lars", m, border{1, 0.5}, func(c *Config) { c.Train.Optimizer = optim.Settings{Kind: optim.LARS, Trust: 0.1} },
			"lars steps a weight by its norm, and stages 0 and 1 have rows of that of layer conv0.1 each; take another " +
				"optimizer, or plan without divided layers, for the bapipe planner with --set fractions=off"},
		{"stages that step at different times", m, border{1, 0.5}, func(c *Config) {
			c.Plan.Schedule, c.Plan.Weights, c.Plan.MicroBatches = "1f1b-rr", "stash", 1
			on(c.Plan, 2, 1)
		}, "stages 0 and 1 divide layer conv0.1, and have 2 and 1 replicas that take minibatches in turn"},
		{"parts that are not all", m, border{1, 0.5}, func(c *Config) { c.Plan.Stages[1].FirstFraction = 0.25 },
			"compute 0.75 of layer 1 together"},
	} {
		c := basic(t, testEngine(t), x.m, planOf(x.m, []int{1}, 2, 4, "1f1b"), 3, 1)
		divide(c.Plan, len(x.m.Layers), x.at)
		if x.change != nil {
			x.change(&c)
		}
		if err := c.Check(); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v", x.what, err)
		}
	}
}

// In an imported network, a layer that is one linear or one convolution can be divided. Training begins with the
// module's own weights.
func TestImportedLayersAreDivided(t *testing.T) {
	e := torchEngine(t)
	of, models := networks(t, imported.Fused, true, "branches")
	for i, m := range models {
		divided, numbers := 0, torchtest.Read(t, of[i].Numbers)
		batch := int(numbers["a/"+m.Inputs[0].Name].Shape[0])
		for l := 1; l < len(m.Layers)-1; l++ {
			f, can := m.Features(l)
			if !can || divided == 4 {
				continue
			}
			config := basic(t, e, m, planOf(m, []int{l - 1}, batch/2, 2, "1f1b"), 0, 3)
			config.Data.Train, config.Train.Rate.Base = recorded{m, numbers}, 0.01
			want := train(t, config)
			divide(config.Plan, len(m.Layers), border{l, float64(max(1, f.Count/3)) / float64(f.Count)})
			if err := nearWeights(train(t, config).Weights, want.Weights, 1e-5); err != nil {
				t.Errorf("%s, layer %s of %d features: %v", m.Name, m.Layers[l].Name, f.Count, err)
			}
			if !strings.Contains(m.Layers[l].Kind, "aten") {
				t.Errorf("layer %s is of kind %s", m.Layers[l].Name, m.Layers[l].Kind)
			}
			divided++
		}
		if divided == 0 {
			t.Errorf("%s has no layer that can be divided", m.Name)
		}
	}
}
