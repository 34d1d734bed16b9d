package run

import (
	"context"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/data"
	"github.com/millrace-ml/millrace/engine/ref"
	"github.com/millrace-ml/millrace/internal/packing"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/run/process"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/programs"
	"github.com/millrace-ml/millrace/wire"
)

var packed = []packing.Format{packing.F16, packing.BF16, packing.I8}

// withBoundary returns a run whose stages send each other numbers in format f.
func withBoundary(c Config, f packing.Format) Config {
	p := *c.Plan
	p.Boundary, c.Plan = f, &p
	return c
}

// roundedTwin returns the weights of the sequential program that rounds at the same boundaries.
func roundedTwin(t *testing.T, c Config) map[string]process.Weight {
	t.Helper()
	switch policy := schedule.Policy(c.Plan.Weights); policy {
	case schedule.Sync, "":
		return sequential(t, c, synchronous(c))
	case schedule.Elastic:
		return averagedWeights(t, c)
	default:
		p, err := programs.Build(c.Plan, c.Model.TiedLayers(), c.Train.Clip > 0, c.Train.Steps)
		if err != nil {
			t.Fatal(err)
		}
		return sequential(t, c, versionsOf(p))
	}
}

// crosses reports whether any two neighbouring stages of a plan are not both on the same single worker.
func crosses(p *plan.Plan) bool {
	for i := range p.Stages[1:] {
		a, b := p.Stages[i].Devices, p.Stages[i+1].Devices
		if len(a) != len(b) || len(a) > 1 || a[0] != b[0] {
			return true
		}
	}
	return false
}

// Every family under every policy except asp ends with the same bits as a sequential program that rounds at the same
// boundaries. Each case has one of the formats, and with `make soak` all of them. If all stages are on one worker,
// nothing is rounded.
func TestEveryFamilyRoundsAtItsBoundaries(t *testing.T) {
	for i, f := range everyFamily(t, 4) {
		p := f.config.Plan
		if schedule.Policy(p.Weights).Served() || p.Elastic != nil && p.Replication == string(schedule.Split) {
			continue // asp sends only weights and gradients; the twin of elastic averaging has one worker per stage
		}
		for k, format := range packed {
			if soaked(0) == 0 && (i+k)%3 > 0 {
				continue
			}
			c := withBoundary(f.config, format)
			got := train(t, c)
			if err := equalCase(c, roundedTwin(t, c), got.Weights); err != nil {
				t.Errorf("%s, %s: %v", f.name, format, err)
			}
			if crosses(c.Plan) != (len(got.Timeline.Rounded) > 0) {
				t.Errorf("%s, %s: rounded %v", f.name, format, got.Timeline.Rounded)
			}
		}
	}
}

// TestRandomBoundariesRound: runs with random cuts, replicas and policies end with the same bits as a sequential
// program that rounds at the same boundaries. The models have several tensors at a boundary, some of whole numbers,
// tensors that skip stages, and ties.
func TestRandomBoundariesRound(t *testing.T) {
	ran := map[packing.Format]int{}
	for seed := range cases(60, 400) {
		g := rand.New(rand.NewPCG(seed, 77))
		c := randomConfig(t, testEngine(t), g)
		if seed%3 == 0 {
			c = streamConfig(t, testEngine(t), g, streamPolicies[g.IntN(len(streamPolicies))])
		}
		c = withBoundary(c, packed[seed%uint64(len(packed))])
		if !crosses(c.Plan) {
			continue
		}
		if err := equalCase(c, roundedTwin(t, c), train(t, c).Weights); err != nil {
			t.Fatalf("seed %d, %s: %v\n%+v", seed, c.Plan.Boundary, err, *c.Plan)
		}
		ran[c.Plan.Boundary]++
	}
	for _, x := range crossings(t) {
		for _, format := range packed {
			c := withBoundary(x.config(t, testEngine(t), evenCuts(len(x.model.Layers), 4), "1f1b"), format)
			if err := equalCase(c, roundedTwin(t, c), train(t, c).Weights); err != nil {
				t.Errorf("%s, %s: %v", x.name, format, err)
			}
			ran[format]++
		}
	}
	for _, format := range packed {
		if ran[format] < 8 {
			t.Errorf("%d runs in %s", ran[format], format)
		}
	}
}

// With libtorch too, a run ends with the same bits as a sequential program that rounds at the same boundaries. The test
// tries every carrier.
func TestTorchRoundsAtBoundaries(t *testing.T) {
	e := torchEngine(t)
	m := build(t, "gpt", map[string]any{"vocabulary": 20, "context": 8, "width": 12, "heads": 2, "layers": 2})
	for _, format := range packed {
		c := withBoundary(basic(t, e, m, planOf(m, evenCuts(len(m.Layers), 3), 2, 3, "1f1b"), 20, 3), format)
		want := roundedTwin(t, c)
		for name, carriers := range map[string]func(int) ([]wire.Carrier, error){
			"": wire.InProcess, "pipe": others["pipe"], "tcp": others["tcp"], "blocking": others["blocking"],
		} {
			c.Wire.Carriers = carriers
			got := train(t, c)
			if err := equalCase(c, want, got.Weights); err != nil {
				t.Errorf("%s over %q: %v", format, name, err)
			}
			for _, r := range got.Timeline.Rounded {
				if r.Relative > format.Relative()*(1+1e-6) || r.Absolute <= 0 || r.Beyond != 0 {
					t.Errorf("%s: %+v; the bound is %v", format, r, format.Relative())
				}
			}
			if len(got.Timeline.Rounded) != 4 {
				t.Errorf("%s: %d boundaries two ways: %v", format, 2, got.Timeline.Rounded)
			}
		}
	}
}

// If a run rounds at boundaries, delayed devices, two slots per edge, and resuming do not change its weights by a
// single bit.
func TestRoundingSurvivesAllElse(t *testing.T) {
	for _, format := range packed {
		c := withBoundary(small(t, 3, 6), format)
		c.Engine = testEngine(t)
		want := roundedTwin(t, c)
		tight := c
		tight.Wire.Slots = 2
		if err := equalCase(c, want, train(t, tight).Weights); err != nil {
			t.Errorf("%s, 2 slots: %v", format, err)
		}
		lazy := c
		lazy.Engine = ref.Lazy(lateness(uint64(len(format))))
		if err := equalCase(c, want, train(t, lazy).Weights); err != nil {
			t.Errorf("%s, late: %v", format, err)
		}
		dir := t.TempDir()
		first := c
		first.Train.Steps, first.Checkpoint.Dir = 3, dir
		train(t, first)
		second := c
		second.Resume.At, second.Checkpoint.Dir = dir, dir
		if err := equalCase(c, want, train(t, second).Weights); err != nil {
			t.Errorf("%s, resumed: %v", format, err)
		}
	}
}

// An evaluation does not round at boundaries, so its result depends only on the weights.
func TestEvaluationsRoundNothing(t *testing.T) {
	c := small(t, 3, 1)
	c.Train.Rate.Base, c.Train.Rate.Warmup = 0, 0
	c.Data.Test, c.Train.EvalRows = noise{model: c.Model, classes: 4, rows: 16, seed: 9}, 16
	want := train(t, c).Timeline.Evaluations[0].Loss
	if got := train(t, withBoundary(c, packing.I8)).Timeline.Evaluations[0].Loss; got != want {
		t.Errorf("the evaluation is %v with i8, %v without", got, want)
	}
}

// scaled is a data set with larger numbers.
type scaled struct {
	noise
	by float64
}

func (s scaled) Batch(step, batch, first, rows int) (data.Batch, error) {
	b, err := s.noise.Batch(step, batch, first, rows)
	for i := range b["input"].Floats {
		b["input"].Floats[i] *= float32(s.by)
	}
	return b, err
}

// Numbers that are too large for f16 are counted and do not end the training; infinities and NaN do.
func TestNumbersBeyondAFormat(t *testing.T) {
	m, err := model.Parse(strings.NewReader("name: large\n" + inputs + `
- {name: a, kind: dense, from: [input], width: 4}
- {name: b, kind: dense, from: [a], width: 4, activation: tanh}
- {name: loss, kind: cross_entropy, from: [b, target]}
`))
	if err != nil {
		t.Fatal(err)
	}
	c := basic(t, testEngine(t), m, planOf(m, []int{0}, 2, 2, "1f1b"), 3, 2)
	c.Data.Train = scaled{c.Data.Train.(noise), 1e7}
	c.Train.Rate.Base = 1e-12
	got := train(t, withBoundary(c, packing.F16))
	if r := got.Timeline.Rounded[0]; r.Kind != "SF" || r.Beyond < 4 {
		t.Errorf("%+v; some activations are larger than 65504", r)
	}
	c.Data.Train = scaled{c.Data.Train.(scaled).noise, 1e300}
	_, err = Train(context.Background(), withBoundary(c, packing.I8))
	if err == nil || !strings.Contains(err.Error(), "loss") {
		t.Errorf("a training on numbers beyond all bounds: %v", err)
	}
}

// A message has the size that the format says, for 2 samples of 5 numbers.
func TestMessagesHaveTheFormatsBytes(t *testing.T) {
	m := build(t, "mlp", map[string]any{"inputs": 6, "hidden": []int{5, 4}, "classes": 3})
	cut := m.Index("dense0")
	float := testEngine(t).Float().Size()
	for format, want := range map[packing.Format]int64{packing.Whole: 10 * float, packing.F16: 20, packing.BF16: 20,
		packing.I8: 2 * (4 + 5)} {
		c := withBoundary(basic(t, testEngine(t), m, planOf(m, []int{cut}, 2, 2, "1f1b"), 3, 1), format)
		for _, e := range train(t, c).Timeline.Events {
			if e.Kind == "SF" && e.Bytes != want || e.Kind == "SB" && e.Bytes != want || e.Kind == "RF" && e.Bytes != want {
				t.Errorf("%s: %s has %d bytes, wanted %d", format, e.Instruction, e.Bytes, want)
			}
		}
	}
}

// In every format each worker's memory and each message's size are those of the simulator.
func TestMemoryAndTrafficOfBoundariesAreAsPredicted(t *testing.T) {
	for _, sized := range sizedModels(t) {
		for k, family := range []string{"1f1b", "zb-h1", "interleaved", "afab", "chimera"} {
			pl := twoWorkers(sized.model, family, schedule.Sync)
			pl.Boundary = packed[k%len(packed)]
			got, _, costs := sized.asPredicted(t, pl, 4, 0)
			seen := map[string]bool{}
			for _, e := range got.Timeline.Events {
				in, err := schedule.ParseInstruction(e.Instruction)
				if err != nil {
					t.Fatal(err)
				}
				c := costs.Stages[in.Stage][0].Packed
				want := map[string]int64{"SF": c.ActivationBytes, "SB": c.GradientBytes, "RF": c.InputBytes, "RB": c.BackBytes}
				if bytes, is := want[e.Kind]; is && e.Bytes != bytes {
					t.Errorf("%s %s: %s has %d bytes, predicted %d", family, pl.Boundary, e.Instruction, e.Bytes, bytes)
				} else if is {
					seen[e.Kind] = true
				}
			}
			if len(seen) != 4 {
				t.Errorf("%s %s: %v were seen", family, pl.Boundary, seen)
			}
		}
	}
}
