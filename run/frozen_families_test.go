package run

import (
	"testing"

	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/run/process"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/programs"
)

// A run whose first stage is wholly frozen ends with the same bits as a sequential program that reads the same
// versions. The test tries every family under each of its policies, with replicas, slices and post-validation. Elastic
// averaging is compared with its equations.
func TestAFrozenFirstStageOfEveryFamily(t *testing.T) {
	all, policies := everyFamily(t, 3), map[schedule.Policy]int{}
	for _, f := range all {
		policies[schedule.Policy(f.config.Plan.Weights)]++
	}
	if len(policies) < 5 || policies[schedule.Elastic] == 0 {
		t.Fatalf("only %v", policies)
	}
	eachSeed(t, uint64(len(all)), func(t *testing.T, i uint64) {
		f := all[i]
		c := f.config
		m, pl := *c.Model, *c.Plan
		m.Layers = nil
		var patterns []string
		for l, layer := range c.Model.Layers {
			layer.Params = append([]model.Param(nil), layer.Params...)
			m.Layers = append(m.Layers, layer)
			if whole := pl.Stages[0].LastLayer; len(layer.Params) > 0 && l <= min(whole, len(c.Model.Layers)-4) {
				patterns = append(patterns, layer.Name)
			}
		}
		if err := m.Freeze(patterns); err != nil {
			t.Fatal(err)
		}
		pl.ModelID, c.Model, c.Plan = m.ID(), &m, &pl
		p, err := programs.Build(&pl, m.TiedLayers(), c.Train.Clip > 0, c.Train.Steps)
		if err != nil {
			t.Fatal(err)
		}
		got := train(t, c)
		var want map[string]process.Weight
		learned := got.Weights
		if pl.Elastic == nil {
			want = ofPlan(t, c, p, got)
		} else {
			want, learned = averagedWeights(t, c), map[string]process.Weight{}
			for full := range want { // the equations compute only the parameters that learn
				learned[full] = got.Weights[full]
			}
		}
		if err := equalCase(c, want, learned); err != nil {
			t.Errorf("%s, %v frozen: %v", f.name, patterns, err)
		}
		if err := learnsOnly(t, c, got); err != nil {
			t.Errorf("%s: %v", f.name, err)
		}
	})
}

// In one step without clipping, the parameters that learn change exactly as if no others were frozen. Frozen parameters
// do not change, but take part in forwards and in gradients of inputs.
func TestOneStepChangesWhatLearnsAsIfNothingWereFrozen(t *testing.T) {
	e := torchEngine(t)
	for name, of := range map[string]struct {
		settings map[string]any
		patterns []string
		classes  int
	}{
		"gpt": {map[string]any{"layers": 2, "width": 16, "heads": 2, "context": 8, "vocabulary": 20},
			[]string{"embed", "block0.*", "*.bias"}, 20},
		"convnet": {map[string]any{"image": []int{1, 8, 8}, "widths": []int{4, 8}, "dense": []int{16}}, []string{"conv1"},
			10},
		"lstm": {map[string]any{"layers": 2, "width": 8, "context": 6, "vocabulary": 12}, nil, 12},
	} {
		free, some := build(t, name, of.settings), build(t, name, of.settings)
		for _, l := range some.Layers {
			if l.Kind == "lstm" && of.patterns == nil {
				of.patterns = []string{l.Name}
			}
		}
		if err := some.Freeze(of.patterns); err != nil {
			t.Fatal(err)
		}
		for _, family := range []string{"1f1b", "zb-h1"} {
			after := func(m *model.Model, pl *plan.Plan) map[string]process.Weight {
				c := basic(t, e, m, pl, of.classes, 1)
				c.Train.Optimizer.Momentum = 0.9
				return train(t, c).Weights
			}
			all := after(free, twoWorkers(free, family, schedule.Sync))
			got := after(some, twoWorkers(some, family, schedule.Sync))
			learned, still := 0, 0
			for _, l := range some.Layers {
				for k, p := range l.Params {
					full := l.ParamName(k)
					same := string(all[full].Data) == string(got[full].Data)
					switch {
					case p.Tied != "":
					case p.Frozen:
						if still++; same {
							t.Errorf("%s %s: %s is frozen and is what training makes of it where nothing is frozen", name,
								family, full)
						}
					case !p.Buffer:
						if learned++; !same {
							t.Errorf("%s %s: %s is not what it is where nothing is frozen", name, family, full)
						}
					}
				}
			}
			if learned == 0 || still == 0 {
				t.Errorf("%s: %d parameters learn and %d are frozen: the test says nothing", name, learned, still)
			}
		}
	}
}
