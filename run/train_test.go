package run

import (
	"math"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/millrace-ml/millrace/data"
	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/lower"
	"github.com/millrace-ml/millrace/schedule/programs"
	"github.com/millrace-ml/millrace/stage/optim"
	"github.com/millrace-ml/millrace/trace"
)

// TestMain collects garbage rarely, because thousands of short runs on locked threads would spend much of their time on
// it.
func TestMain(m *testing.M) {
	debug.SetGCPercent(800)
	goleak.VerifyTestMain(m, goleak.Cleanup(closeLedger))
}

// small returns a run of an mlp with dropout on `stages` workers, with Adam, clipping and warm-up.
func small(t testing.TB, stages, steps int) Config {
	m := build(t, "mlp", map[string]any{"inputs": 6, "hidden": []int{8, 7, 6}, "classes": 4, "dropout": 0.2})
	c := basic(t, testEngine(t), m, planOf(m, evenCuts(len(m.Layers), stages), 2, 3, "1f1b"), 4, steps)
	c.Train.Optimizer = optim.Settings{Kind: optim.Adam, Beta1: 0.9, Beta2: 0.99, Epsilon: 1e-8}
	c.Train.Rate = optim.Rate{Kind: optim.Cosine, Base: 0.05, Warmup: 2, Total: 20}
	c.Train.Clip = 0.5
	return c
}

// replicated returns the plan of plain data parallelism: one stage on n workers.
func replicated(p *plan.Plan, layers, n int) *plan.Plan {
	q := *p
	q.Schedule = "dp"
	q.Stages = []plan.Stage{{LastLayer: layers - 1}}
	for d := range n {
		q.Stages[0].Devices = append(q.Stages[0].Devices, d)
	}
	return &q
}

// Data parallelism ends with the same bits as replicas that take turns on one worker and whose gradients are summed in
// rank order. If there are more replicas than micro-batches, some replicas only sum and update.
func TestDataParallelismEqualsARankOrderSum(t *testing.T) {
	e := testEngine(t)
	for seed := range cases(16, 40) {
		g := rand.New(rand.NewPCG(seed, 5))
		c := randomConfig(t, e, g)
		c.Plan = replicated(c.Plan, len(c.Model.Layers), 2+g.IntN(3))
		got := train(t, c)
		if err := equalCase(c, reference(t, c), got.Weights); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		checkOrder(t, c, got)
	}
}

func TestReplicasAgreeOnBatchNormStatistics(t *testing.T) {
	e := torchEngine(t)
	m := build(t, "convnet", map[string]any{"image": []int{1, 8, 8}, "widths": []int{4}, "dense": []int{8},
		"batch_norm": true})
	c := basic(t, e, m, replicated(planOf(m, nil, 3, 5, "1f1b"), len(m.Layers), 3), 10, 3)
	if err := sameWeights(reference(t, c), train(t, c).Weights); err != nil {
		t.Error(err)
	}
}

// separable is a data set in which a row's class is the index of its largest feature.
type separable struct{ noise }

func (s separable) Batch(step, batch, first, rows int) (data.Batch, error) {
	b, err := s.noise.Batch(step, batch, first, rows)
	for r := range rows {
		x := b["input"].Floats[r*6 : r*6+4]
		b["target"].Ints[r] = int64(slices.Index(x, slices.Max(x)))
	}
	return b, err
}

func TestALossFalls(t *testing.T) {
	c := small(t, 2, 150)
	c.Model = build(t, "mlp", map[string]any{"inputs": 6, "hidden": []int{16}, "classes": 4})
	c.Plan = planOf(c.Model, []int{0}, 8, 4, "1f1b")
	c.Data.Train = separable{noise{model: c.Model, classes: 4, seed: 1}}
	c.Data.Test = separable{noise{model: c.Model, classes: 4, rows: 200, seed: 2}}
	c.Train.Rate = optim.Rate{Kind: optim.Constant, Base: 0.02}
	c.Train.Clip = 0
	res := train(t, c)
	first, last := res.Timeline.Losses[0].Value, res.Loss
	if math.Abs(first-math.Log(4)) > 0.3 || last > 0.5*first || res.Timeline.Evaluations[0].Accuracy() < 0.8 {
		t.Errorf("the loss fell from %v to %v; %v", first, last, res.Timeline.Evaluations)
	}
	if res.BubbleMean < 0 || res.BubbleMean >= 1 || res.BusySeconds <= 0 {
		t.Error(res.BubbleMean, res.BusySeconds)
	}
}

// Next is called before every Program, with the run's record up to that point. The final weights do not depend on how
// the steps are divided between Programs.
func TestNextGivesTheProgram(t *testing.T) {
	want := train(t, small(t, 3, 5))
	c := small(t, 3, 5)
	var asked []int
	c.Next = func(so trace.Timeline, steps int) (*schedule.Program, error) {
		asked = append(asked, steps)
		if len(so.Steps) != 5-steps {
			t.Errorf("%d steps marked with %d to go", len(so.Steps), steps)
		}
		p := *c.Plan
		p.Schedule = []string{"1f1b", "afab"}[steps%2]
		return programs.Build(&p, c.Model.TiedLayers(), true, min(2, steps))
	}
	got := train(t, c)
	if err := sameWeights(want.Weights, got.Weights); err != nil {
		t.Error(err)
	}
	if !slices.Equal(asked, []int{5, 3, 1}) {
		t.Error(asked)
	}
	c.Next = func(so trace.Timeline, steps int) (*schedule.Program, error) {
		return programs.Build(c.Plan, c.Model.TiedLayers(), true, steps+1)
	}
	if _, err := Train(t.Context(), c); err == nil || !strings.Contains(err.Error(), "steps long") {
		t.Error(err)
	}
}

// Several stages on one worker pass tensors to each other without a message. They end with the same bits as one stage.
func TestStagesThatShareAWorker(t *testing.T) {
	want := train(t, small(t, 1, 3))
	for _, devices := range [][]int{{0, 0}, {0, 0, 1}, {0, 1, 1}, {0, 1, 0}, {0, 0, 0, 1, 1}} {
		c := small(t, len(devices), 3)
		for i, d := range devices {
			c.Plan.Stages[i].Devices = []int{d}
		}
		c.Next = func(_ trace.Timeline, steps int) (*schedule.Program, error) {
			return allForwardAllBackward(c, devices, steps)
		}
		if err := sameWeights(want.Weights, train(t, c).Weights); err != nil {
			t.Errorf("%v: %v", devices, err)
		}
	}
}

// allForwardAllBackward returns a Program in which stages may share workers. No family writes such a Program.
func allForwardAllBackward(c Config, devices []int, steps int) (*schedule.Program, error) {
	p := &schedule.Program{
		Name: "by hand", Stages: len(devices), Workers: 1 + slices.Max(devices), Placement: [][][]int{{}},
		Replication:  schedule.RoundRobin,
		MicroBatches: c.Plan.MicroBatches, Period: 1, Repeat: steps, Weights: schedule.Sync,
		Recompute: make([]plan.Recompute, len(devices)),
	}
	p.Body = make(schedule.Part, p.Workers)
	for _, d := range devices {
		p.Placement[0] = append(p.Placement[0], []int{d})
	}
	for m := range int32(p.MicroBatches) {
		for s, d := range devices {
			p.Body[d] = append(p.Body[d], schedule.Instruction{Kind: schedule.F, Stage: int32(s), Micro: m})
		}
	}
	for m := range int32(p.MicroBatches) {
		for s, d := range slices.Backward(devices) {
			p.Body[d] = append(p.Body[d], schedule.Instruction{Kind: schedule.B, Stage: int32(s), Micro: m})
		}
	}
	return lower.Lower(p, lower.Options{Tied: c.Plan.TiedStages(c.Model.TiedLayers()), Clip: c.Train.Clip > 0})
}

// Only the last steps and requested ones are kept in full. Marks and losses are kept for all.
func TestATimelineIsBounded(t *testing.T) {
	c := small(t, 2, 12)
	c.Keep.Steps = 2
	c.Keep.WantStep = func(step int) bool { return step == 3 }
	res := train(t, c)
	kept := map[int]bool{}
	for _, e := range res.Timeline.Events {
		kept[e.Step] = true
	}
	if len(kept) != 3 || !kept[3] || !kept[10] || !kept[11] || len(res.Timeline.Steps) != 12 ||
		len(res.Timeline.Losses) != 12 {
		t.Error(kept, len(res.Timeline.Steps), len(res.Timeline.Losses))
	}
}

// A pipeline whose stages have replicas sums in another order than one worker. The results are equal up to rounding,
// and repeated runs end with the same bits.
func TestReplicatedStagesInAPipeline(t *testing.T) {
	e := testEngine(t)
	ran := 0
	for seed := range uint64(40) {
		g := rand.New(rand.NewPCG(seed, 8))
		c := randomConfig(t, e, g)
		want := reference(t, c)
		next := 0
		for i := range c.Plan.Stages {
			c.Plan.Stages[i].Devices = nil
			for range 1 + g.IntN(3) {
				c.Plan.Stages[i].Devices = append(c.Plan.Stages[i].Devices, next)
				next++
			}
			c.Plan.Stages[i].Warmup = 0
		}
		if _, err := programs.Build(c.Plan, c.Model.TiedLayers(), c.Train.Clip > 0, 1); err != nil {
			continue // the family refuses these depths with these replicas
		}
		ran++
		got := train(t, c)
		for name, w := range want {
			for i, x := range engine.Numbers[float64](w.Data) {
				if y := engine.Numbers[float64](got.Weights[name].Data)[i]; math.Abs(x-y) > 1e-6 {
					t.Fatalf("seed %d: %s[%d] is %v; want %v", seed, name, i, y, x)
				}
			}
		}
		if err := sameWeights(got.Weights, train(t, c).Weights); err != nil {
			t.Errorf("seed %d: two runs differ: %v", seed, err)
		}
	}
	if ran < 20 {
		t.Errorf("%d cases ran", ran)
	}
}
