package run

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/engine/ref"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/run/checkpoint"
	"github.com/millrace-ml/millrace/stage/optim"
)

// settingsOf returns settings of every optimizer. SGD is there twice, with and without momentum.
func settingsOf(t testing.TB) []optim.Settings {
	t.Helper()
	all := []optim.Settings{{Kind: optim.SGD}, {Kind: optim.SGD, Momentum: 0.9, Nesterov: true, WeightDecay: 0.01}}
	for _, kind := range []string{optim.Adam, optim.AdamW, optim.LARS, optim.ASGD} {
		s, err := optim.Default(kind)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
	return all
}

// pipelinesConfig returns a run of n pipelines. If n is 1, the run is plain 1F1B.
func pipelinesConfig(t testing.TB, n, steps int, o optim.Settings) Config {
	c := small(t, 2, steps)
	c.Engine, c.Train.Optimizer = ref.New(), o
	if n > 1 {
		c.Plan.Schedule, c.Plan.Weights, c.Plan.Elastic = "elastic", "elastic", plan.NewElastic(n)
	}
	c.Checkpoint = Checkpointing{Dir: t.TempDir()}
	return c
}

// TestElasticGoesOnWithAnotherNumber: a run changes from N to N' pipelines, also from or to one, with every optimizer.
// It ends with the same bits as a sequential program that makes the same change. This also holds if the run is resumed
// once more.
func TestElasticGoesOnWithAnotherNumber(t *testing.T) {
	for _, o := range settingsOf(t) {
		for _, n := range [][2]int{{1, 3}, {3, 1}, {2, 3}, {4, 2}} {
			t.Run(fmt.Sprintf("%s%v from %d to %d", o.Kind, o.Momentum, n[0], n[1]), func(t *testing.T) {
				first := pipelinesConfig(t, n[0], 3, o)
				half := train(t, first)

				again := pipelinesConfig(t, n[1], 8, o)
				again.Resume.At = half.Checkpoint
				if _, err := Train(context.Background(), again); err == nil ||
					!strings.Contains(err.Error(), fmt.Sprintf("pipelines side by side is %d; this run has %d", n[0], n[1])) {
					t.Fatalf("unasked: %v", err)
				}
				again.Resume.Averaged = true
				got := train(t, again)

				twin := first
				twin.Plan.Elastic = plan.NewElastic(n[0])
				if err := sameWeights(got.Weights, averagedWeights(t, twin, leg{plan.NewElastic(n[1]), 5})); err != nil {
					t.Error(err)
				}

				part := pipelinesConfig(t, n[1], 5, o)
				part.Resume.At, part.Resume.Averaged = half.Checkpoint, true
				rest := pipelinesConfig(t, n[1], 8, o)
				rest.Resume.At = train(t, part).Checkpoint
				if err := sameWeights(got.Weights, train(t, rest).Weights); err != nil {
					t.Errorf("resumed once more: %v", err)
				}
			})
		}
	}
}

// TestElasticCheckpointHoldsAllModels: a checkpoint has the pipelines' models with their optimizer states, and the
// reference without optimizer states. It has one file for each stage of each model. The reference is the average of the
// pipelines.
func TestElasticCheckpointHoldsAllModels(t *testing.T) {
	for _, o := range settingsOf(t) {
		c := pipelinesConfig(t, 3, 2, o)
		r := train(t, c)
		from, err := checkpoint.Open(r.Checkpoint)
		if err != nil {
			t.Fatal(err)
		}
		defer from.Close()
		if files := len(from.Manifest.Files); files != 4*len(c.Plan.Stages) {
			t.Errorf("%s: %d files for %d stages of 3 pipelines and the reference", o.Kind, files, len(c.Plan.Stages))
		}
		for name, w := range r.Weights {
			z, err := from.Tensor(name)
			if err != nil || string(z.Data) != string(w.Data) {
				t.Fatalf("%s: %s in the checkpoint is not the run's: %v", o.Kind, name, err)
			}
			mean := make([]float64, len(engine.Numbers[float64](z.Data)))
			for p := range 3 {
				x, err := from.Tensor(fmt.Sprintf("pipeline-%d/%s", p, name))
				if err != nil {
					t.Fatal(err)
				}
				for k, v := range engine.Numbers[float64](x.Data) {
					mean[k] += v / 3
				}
				for _, state := range o.States() {
					s, saved := name+"#"+state, from.Names()
					if !slices.Contains(saved, fmt.Sprintf("pipeline-%d/%s", p, s)) || slices.Contains(saved, s) {
						t.Errorf("%s: state %s is to be each pipeline's and not the reference's", o.Kind, s)
					}
				}
			}
			for k, v := range engine.Numbers[float64](z.Data) {
				if d := v - mean[k]; d > 1e-12 || d < -1e-12 {
					t.Fatalf("%s: %s[%d] of the reference is %v, the average %v", o.Kind, name, k, v, mean[k])
				}
			}
		}
	}
}

// TestTorchElasticGoesOn: on torch, with every optimizer and batch norm, a resumed run ends with the same bits as one
// that was not stopped. A run resumed with another number of pipelines begins at the checkpoint's reference.
func TestTorchElasticGoesOn(t *testing.T) {
	e := torchEngine(t)
	m := build(t, "convnet", map[string]any{"image": []int{1, 8, 8}, "widths": []int{4, 8}, "dense": []int{16},
		"batch_norm": true})
	statistics := map[string]bool{} // of batch norms: they move even at rate 0
	for _, l := range m.Layers {
		for _, p := range l.Params {
			statistics[l.Name+"."+p.Name] = p.Buffer
		}
	}
	config := func(o optim.Settings, pipelines, steps int) Config {
		c := basic(t, e, m, planOf(m, evenCuts(len(m.Layers), 2), 2, 3, "elastic"), 10, steps)
		c.Plan.Weights, c.Plan.Elastic = "elastic", plan.NewElastic(pipelines)
		c.Train.Optimizer, c.Train.Rate.Base = o, 0.01
		c.Checkpoint = Checkpointing{Dir: t.TempDir(), Every: 3}
		return c
	}
	for _, o := range settingsOf(t) {
		whole := train(t, config(o, 2, 6))
		half := train(t, config(o, 2, 3))
		again := config(o, 2, 6)
		again.Resume.At = half.Checkpoint
		if err := sameWeights(whole.Weights, train(t, again).Weights); err != nil {
			t.Errorf("%s %v: %v", o.Kind, o.Momentum, err)
		}
		if o.Kind == optim.LARS {
			continue // this momentum contains the rates of past steps, and moves weights even at rate 0
		}
		for _, n := range []int{1, 4} {
			other := config(o, n, 4)
			other.Resume.At, other.Resume.Averaged, other.Train.Rate.Base = half.Checkpoint, true, 0
			other.Train.Optimizer.WeightDecay = 0
			got := train(t, other).Weights
			for name, w := range half.Weights {
				if statistics[name] {
					continue
				}
				x, z := engine.Numbers[float32](got[name].Data), engine.Numbers[float32](w.Data)
				for k := range z {
					if d := x[k] - z[k]; d > 1e-6 || d < -1e-6 {
						t.Fatalf("%s %v, %d pipelines: %s[%d] is %v after a step of rate 0 from the reference's %v", o.Kind, o.Momentum,
							n, name, k, x[k], z[k])
					}
				}
			}
		}
	}
}
