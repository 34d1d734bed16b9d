package run

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/millrace-ml/millrace/data"
	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/run/checkpoint"
	"github.com/millrace-ml/millrace/run/optim"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/trace"
)

// TestMain lets garbage lie: thousands of runs of a few kilobytes each, on locked threads, spent
// four tenths of their time on collecting it.
func TestMain(m *testing.M) {
	debug.SetGCPercent(800)
	goleak.VerifyTestMain(m, goleak.Cleanup(closeLedger))
}

// small is an mlp with dropout on `stages` workers, with momentum, clipping and warm-up.
func small(t testing.TB, stages, steps int) Config {
	m := build(t, "mlp", map[string]any{"inputs": 6, "hidden": []int{8, 7, 6}, "classes": 4, "dropout": 0.2})
	c := basic(t, testEngine(t), m, planOf(m, evenCuts(len(m.Layers), stages), 2, 3, "1f1b"), 4, steps)
	c.Optimizer = optim.Settings{Kind: optim.Adam, Beta1: 0.9, Beta2: 0.99, Epsilon: 1e-8}
	c.Rate = optim.Rate{Kind: optim.Cosine, Base: 0.05, Warmup: 2, Total: 20}
	c.Clip = 0.5
	return c
}

// replicated is the plan of plain data parallelism: one stage on n workers.
func replicated(p *plan.Plan, layers, n int) *plan.Plan {
	q := *p
	q.Schedule = "dp"
	q.Stages = []plan.Stage{{LastLayer: layers - 1}}
	for d := range n {
		q.Stages[0].Devices = append(q.Stages[0].Devices, d)
	}
	return &q
}

// Data parallelism equals replicas that take turns on one worker and sum in rank order;
// with more replicas than micro-batches some only sum and update.
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
	m := build(t, "convnet", map[string]any{"image": []int{1, 8, 8}, "widths": []int{4}, "dense": []int{8}, "batch_norm": true})
	c := basic(t, e, m, replicated(planOf(m, nil, 3, 5, "1f1b"), len(m.Layers), 3), 10, 3)
	if err := sameWeights(reference(t, c), train(t, c).Weights); err != nil {
		t.Error(err)
	}
}

// A run that was saved and goes on, under the same plan or another, ends with the bits of one
// that never stopped, and with the same losses.
func TestResumingIsAsNotHavingStopped(t *testing.T) {
	whole := small(t, 1, 8)
	want := train(t, whole)
	for _, c := range []struct{ before, after int }{{1, 1}, {1, 4}, {4, 1}, {3, 3}, {2, 5}} {
		t.Run(fmt.Sprintf("%d then %d", c.before, c.after), func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "checkpoints")
			first := small(t, c.before, 5)
			first.Checkpoint = Checkpointing{Dir: dir, Every: 2, Keep: 2}
			var saved []int
			first.Hooks.OnCheckpoint = func(dir string, steps int) { saved = append(saved, steps) }
			if res := train(t, first); res.Checkpoint != filepath.Join(dir, "step-00000005") {
				t.Error(res.Checkpoint)
			}
			if !slices.Equal(saved, []int{2, 4, 5}) {
				t.Errorf("saved after %v", saved)
			}
			second := small(t, c.after, 8)
			second.Resume = dir
			got := train(t, second)
			if err := sameWeights(want.Weights, got.Weights); err != nil {
				t.Error(err)
			}
			if a, b := losses(want.Timeline)[5:], losses(got.Timeline); !slices.Equal(a, b) {
				t.Errorf("losses %v; want %v", b, a)
			}
			if got.Timeline.Steps[0].Step != 5 || got.Steps != 8 {
				t.Error(got.Timeline.Steps, got.Steps)
			}
		})
	}
}

func TestTiedWeightsAreSavedOnceAndResumed(t *testing.T) {
	e := torchEngine(t)
	m := build(t, "gpt", map[string]any{"layers": 2, "width": 16, "heads": 2, "context": 8, "vocabulary": 30, "tied": true})
	config := func(stages, steps int) Config {
		c := basic(t, e, m, planOf(m, evenCuts(len(m.Layers), stages), 2, 3, "1f1b"), 30, steps)
		c.Optimizer = optim.Settings{Kind: optim.AdamW, Beta1: 0.9, Beta2: 0.99, Epsilon: 1e-8, WeightDecay: 0.1}
		c.Rate.Base = 0.01
		return c
	}
	dir := t.TempDir()
	first := config(3, 3)
	first.Checkpoint.Dir = dir
	train(t, first)
	saved, err := checkpoint.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer saved.Close()
	tied := slices.DeleteFunc(saved.Names(), func(n string) bool {
		return !strings.HasPrefix(n, "embed.weight") && !strings.HasPrefix(n, "head.weight")
	})
	if !slices.Equal(tied, []string{"embed.weight", "embed.weight#mean", "embed.weight#variance"}) {
		t.Error(tied)
	}
	second := config(2, 6)
	second.Resume = dir
	if err := sameWeights(train(t, config(1, 6)).Weights, train(t, second).Weights); err != nil {
		t.Error(err)
	}
}

// Stopping finishes the step that has begun, saves it, and a resumed run ends with the same bits.
func TestStoppingFinishesTheStepAndSaves(t *testing.T) {
	dir := t.TempDir()
	ctx, stop := context.WithCancel(t.Context())
	c := small(t, 3, 1000)
	c.Checkpoint.Dir = dir
	c.Hooks.OnStep = func(s StepReport) {
		if s.Step == 3 {
			stop()
		}
	}
	res, err := Train(ctx, c)
	if err != nil || !res.Stopped || res.Steps < 4 || res.Steps > 900 || res.Leaked != 0 {
		t.Fatal(err, res.Stopped, res.Steps, res.Leaked)
	}
	if len(res.Timeline.Steps) != res.Steps {
		t.Errorf("%d steps marked of %d", len(res.Timeline.Steps), res.Steps)
	}
	rest := small(t, 2, res.Steps+3)
	rest.Resume = dir
	if err := sameWeights(train(t, small(t, 1, res.Steps+3)).Weights, train(t, rest).Weights); err != nil {
		t.Error(err)
	}
}

func TestARunStoppedBeforeItBeginsDoesNothing(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	stop()
	res, err := Train(ctx, small(t, 2, 3))
	if err != nil || !res.Stopped || res.Steps != 0 || len(res.Timeline.Events) != 0 {
		t.Error(err, res)
	}
}

// Checkpoints and evaluations are drains in the Programs and change no bit.
func TestPeriodsChangeNothing(t *testing.T) {
	want := train(t, small(t, 3, 6))
	c := small(t, 3, 6)
	c.Checkpoint = Checkpointing{Dir: t.TempDir(), Every: 1, Keep: 1}
	c.Data.Test = noise{model: c.Model, classes: 4, rows: 11, seed: 3}
	c.EvalEvery = 2
	var seen []trace.Evaluation
	c.Hooks.OnEvaluation = func(e trace.Evaluation) { seen = append(seen, e) }
	got := train(t, c)
	if err := sameWeights(want.Weights, got.Weights); err != nil {
		t.Error(err)
	}
	if !slices.Equal(losses(want.Timeline), losses(got.Timeline)) {
		t.Error(losses(got.Timeline))
	}
	if len(seen) != 3 || seen[2].Step != 5 || seen[0].Samples != 11 || !slices.Equal(seen, got.Timeline.Evaluations) {
		t.Error(seen)
	}
	// However the stages are cut and replicated, an evaluation says the same.
	for _, p := range []*plan.Plan{small(t, 1, 6).Plan, small(t, 5, 6).Plan} {
		c := c
		c.Plan, c.Checkpoint, c.Hooks = p, Checkpointing{}, Hooks{}
		if other := train(t, c); !slices.Equal(other.Timeline.Evaluations, seen) {
			t.Errorf("%v; want %v", other.Timeline.Evaluations, seen)
		}
	}
}

// separable is rows whose class is their largest feature.
type separable struct{ noise }

func (s separable) Batch(step, batch, first, rows int) (data.Batch, error) {
	b, err := s.noise.Batch(step, batch, first, rows)
	for r := range rows {
		x := b.Input.Floats[r*6 : r*6+4]
		b.Target.Ints[r] = int64(slices.Index(x, slices.Max(x)))
	}
	return b, err
}

func TestALossFalls(t *testing.T) {
	c := small(t, 2, 150)
	c.Model = build(t, "mlp", map[string]any{"inputs": 6, "hidden": []int{16}, "classes": 4})
	c.Plan = planOf(c.Model, []int{0}, 8, 4, "1f1b")
	c.Data.Train = separable{noise{model: c.Model, classes: 4, seed: 1}}
	c.Data.Test = separable{noise{model: c.Model, classes: 4, rows: 200, seed: 2}}
	c.Rate = optim.Rate{Kind: optim.Constant, Base: 0.02}
	c.Clip = 0
	res := train(t, c)
	first, last := res.Timeline.Losses[0].Value, res.Loss
	if math.Abs(first-math.Log(4)) > 0.3 || last > 0.5*first || res.Timeline.Evaluations[0].Accuracy() < 0.8 {
		t.Errorf("the loss fell from %v to %v; %v", first, last, res.Timeline.Evaluations)
	}
	if res.BubbleMean < 0 || res.BubbleMean >= 1 || res.BusySeconds <= 0 {
		t.Error(res.BubbleMean, res.BusySeconds)
	}
}

// A Gate that never releases anything starts nothing, and the run says so at once.
type closedGate struct{ schedule.Gate }

func (closedGate) Poll(w int) schedule.Need {
	return schedule.Need{Worker: w, Lack: schedule.Message, At: schedule.Instruction{Kind: schedule.F}, For: schedule.Instruction{Kind: schedule.SF}, From: 1 - w}
}
func (g closedGate) Waits() []schedule.Need { return []schedule.Need{g.Poll(0), g.Poll(1)} }
func (closedGate) Start(w int)              { panic(fmt.Sprint("worker ", w, " was started")) }

func TestAGateThatNeverReleasesStartsNothing(t *testing.T) {
	c := small(t, 2, 3)
	c.Gate = func(p *schedule.Program, cores int) (schedule.Gate, error) {
		m, err := schedule.NewMachine(p, cores)
		return closedGate{m}, err
	}
	res, err := Train(t.Context(), c)
	var stall *StallError
	if !errors.As(err, &stall) || len(stall.Waits) != 2 || !strings.Contains(err.Error(), "worker 1 cannot start") {
		t.Fatal(err)
	}
	if len(res.Timeline.Events) != 0 || res.Leaked != 0 {
		t.Error(res.Timeline.Events, res.Leaked)
	}
}

// badEngine fails, panics or yields NaN in the n-th backward pass of one worker.
type badEngine struct {
	engine.Engine
	worker int
	after  int
	do     func() error
}

func (b badEngine) Open(worker, threads int) (engine.Device, error) {
	d, err := b.Engine.Open(worker, threads)
	if err != nil || worker != b.worker {
		return d, err
	}
	return &badDevice{Device: d, left: b.after, do: b.do}, nil
}

type badDevice struct {
	engine.Device
	left int
	do   func() error
}

func (d *badDevice) Backward(outputs, grads []engine.Tensor) error {
	if d.left--; d.left < 0 {
		return d.do()
	}
	return d.Device.Backward(outputs, grads)
}

func TestAFailingWorkerStopsTheOthers(t *testing.T) {
	why := errors.New("the device is on fire")
	for name, do := range map[string]func() error{
		"error": func() error { return why },
		"panic": func() error { panic(why.Error()) },
	} {
		for worker := range 3 {
			for _, plan := range []string{"pipeline", "dp"} {
				c := small(t, 3, 50)
				if plan == "dp" {
					c.Plan = replicated(c.Plan, len(c.Model.Layers), 3)
				}
				c.Engine = badEngine{Engine: c.Engine, worker: worker, after: 20, do: do}
				start := time.Now()
				res, err := Train(t.Context(), c)
				if err == nil || !strings.Contains(err.Error(), why.Error()) || !strings.Contains(err.Error(), fmt.Sprintf("worker %d", worker)) {
					t.Fatalf("%s on worker %d: %v", name, worker, err)
				}
				if name == "panic" && !strings.Contains(err.Error(), "badDevice") {
					t.Errorf("the panic's stack is lost: %v", err)
				}
				if res.Leaked != 0 && name == "error" {
					t.Errorf("%s on worker %d: %d handles leaked", name, worker, res.Leaked)
				}
				if took := time.Since(start); took > 5*time.Second {
					t.Errorf("it took %v", took)
				}
			}
		}
	}
}

func TestADeviceThatDoesNotOpenEndsTheRun(t *testing.T) {
	c := small(t, 3, 5)
	c.ThreadsPerWorker = 1
	c.Engine = closedEngine{c.Engine}
	if _, err := Train(t.Context(), c); err == nil || !strings.Contains(err.Error(), "no device 2") {
		t.Error(err)
	}
}

type closedEngine struct{ engine.Engine }

func (e closedEngine) Open(worker, threads int) (engine.Device, error) {
	if worker == 2 {
		return nil, errors.New("there is no device 2")
	}
	return e.Engine.Open(worker, threads)
}

// poisoned has a sample that is not a number in one step.
type poisoned struct {
	noise
	step int
}

func (p poisoned) Batch(step, batch, first, rows int) (data.Batch, error) {
	b, err := p.noise.Batch(step, batch, first, rows)
	if step == p.step {
		b.Input.Floats[0] = float32(math.NaN())
	}
	return b, err
}

func TestANaNLossStopsAndKeepsTheLastGoodCheckpoint(t *testing.T) {
	c := small(t, 3, 20)
	dir := t.TempDir()
	c.Checkpoint = Checkpointing{Dir: dir, Every: 2}
	c.Data.Train = poisoned{c.Data.Train.(noise), 5}
	res, err := Train(t.Context(), c)
	var loss *LossError
	if !errors.As(err, &loss) || loss.Step != 5 || loss.Stage != 2 || loss.Evaluation || !math.IsNaN(loss.Value) || !errors.Is(err, ErrNotFinite) {
		t.Fatal(err)
	}
	if res.Steps != 5 || res.Leaked != 0 {
		t.Error(res.Steps, res.Leaked)
	}
	saved, err := checkpoint.Open(dir)
	if err != nil || saved.Manifest.Steps != 4 {
		t.Fatal(err)
	}
	if err := saved.Close(); err != nil {
		t.Error(err)
	}
}

func TestANaNLossOfAnEvaluationStops(t *testing.T) {
	c := small(t, 3, 20)
	c.Data.Test = poisoned{c.Data.Train.(noise), 0}
	c.EvalEvery, c.EvalRows = 4, 8
	c.Checkpoint.Dir = t.TempDir()
	res, err := Train(t.Context(), c)
	var loss *LossError
	if !errors.As(err, &loss) || loss.Step != 3 || loss.Stage != 2 || !loss.Evaluation || !strings.Contains(err.Error(), "evaluation loss after step 3") {
		t.Fatal(err)
	}
	if res.Steps != 4 || res.Leaked != 0 || len(res.Timeline.Evaluations) != 0 {
		t.Error(res.Steps, res.Leaked, res.Timeline.Evaluations)
	}
}

// With weights of 1e60 the loss of four layers is a number and the squares of gradients are not.
func TestAGradientNormThatIsNotFiniteStops(t *testing.T) {
	c := small(t, 2, 3)
	c.Optimizer, c.Clip = optim.Settings{Kind: optim.SGD}, 1
	c.Rate = optim.Rate{Kind: optim.Constant, Base: 1e60}
	if _, err := Train(t.Context(), c); !errors.Is(err, ErrNotFinite) || !strings.Contains(err.Error(), "the gradient norm of step 1 is +Inf on stage") {
		t.Error(err)
	}
}

func TestWeightsThatAreNotFiniteAreNotSaved(t *testing.T) {
	c := small(t, 2, 2)
	huge := 1e30 // its square is infinite
	if c.Engine.Float() == engine.Float64 {
		huge = 1e200
	}
	c.Optimizer, c.Clip = optim.Settings{Kind: optim.SGD, WeightDecay: huge}, 0
	c.Rate = optim.Rate{Kind: optim.Constant, Base: huge}
	c.Steps = 1
	c.Checkpoint.Dir = t.TempDir()
	_, err := Train(t.Context(), c)
	if !errors.Is(err, ErrNotFinite) || !strings.Contains(err.Error(), "after 1 steps") {
		t.Fatal(err)
	}
	if entries, _ := os.ReadDir(c.Checkpoint.Dir); len(entries) != 0 {
		t.Error(entries)
	}
}

// missing loses every activation on its way: the run must not wait for ever.
func TestNothingHappeningIsAStall(t *testing.T) {
	c := small(t, 2, 3)
	c.Mesh = lossyMesh
	c.StallAfter = 50 * time.Millisecond
	_, err := Train(t.Context(), c)
	var stall *StallError
	said := regexp.MustCompile(`^run: program \S+ has stalled: nothing has happened for \d+ms
  worker 0 cannot start 0RB0: 1SB0 from worker 1 has not arrived; it has waited for \d+ms, since \d+\S* of the run
  worker 1 cannot start 1RF0: 0SF0 from worker 0 has not arrived; it has waited for \d+ms, since \d+\S* of the run$`)
	if !errors.As(err, &stall) || stall.After < c.StallAfter || !said.MatchString(err.Error()) {
		t.Error(err)
	}
}

func TestRefusals(t *testing.T) {
	dir := t.TempDir()
	saved := small(t, 2, 2)
	saved.Checkpoint.Dir = dir
	train(t, saved)
	for _, c := range []struct {
		name   string
		change func(*Config)
		says   string
	}{
		{"no model", func(c *Config) { c.Model = nil }, "needs a model"},
		{"no steps", func(c *Config) { c.Steps = 0 }, "0 steps"},
		{"clip", func(c *Config) { c.Clip = -1 }, "clipped to -1"},
		{"optimizer", func(c *Config) { c.Optimizer.Kind = "lion" }, `"lion"`},
		{"rate", func(c *Config) { c.Rate.Base = -1 }, "learning rate -1"},
		{"evaluation without data", func(c *Config) { c.EvalEvery = 1 }, "without test data"},
		{"plan of another model", func(c *Config) { c.Plan.ModelID = "x" }, "is for model"},
		{"plan with a hole", func(c *Config) { c.Plan.Stages[1].FirstLayer++ }, "must begin with layer"},
		{"plan that ends early", func(c *Config) { c.Plan.Stages[1].LastLayer-- }, "ends with layer"},
		{"fractions", func(c *Config) { c.Plan.Stages[0].LastFraction = 0.5 }, "fraction"},
		{"split", func(c *Config) { c.Plan.Replication = "split"; c.Plan.Stages[1].Devices = []int{1, 2, 3} }, "over 3 replicas"},
		{"weights", func(c *Config) { c.Plan.Weights = "stash" }, `"stash"`},
		{"no such checkpoint", func(c *Config) { c.Resume = filepath.Join(dir, "none") }, "none"},
		{"checkpoint of another seed", func(c *Config) { c.Resume = dir; c.Seed = 9 }, "seed is 1; this run has 9"},
		{"checkpoint of another batch", func(c *Config) { c.Resume = dir; c.Plan.MicroBatches = 7 }, "batch is 6; this run has 14"},
		{"checkpoint of another optimizer", func(c *Config) { c.Resume = dir; c.Optimizer = optim.Settings{Kind: optim.SGD} }, "optimizer"},
		{"checkpoint that is done", func(c *Config) { c.Resume = dir; c.Steps = 2 }, "ask for more"},
	} {
		config := small(t, 2, 9)
		c.change(&config)
		if _, err := Train(t.Context(), config); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v; want something about %q", c.name, err, c.says)
		}
	}
	other := small(t, 2, 9)
	other.Model = build(t, "mlp", map[string]any{"inputs": 6, "hidden": []int{8}, "classes": 4})
	other.Plan, other.Resume = planOf(other.Model, nil, 2, 3, "1f1b"), dir
	if _, err := Train(t.Context(), other); err == nil || !strings.Contains(err.Error(), "model is mlp") {
		t.Error(err)
	}
}

// Next is asked at every boundary and sees what happened; bits do not depend on how the steps
// are parted.
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
		return ProgramOf(&p, c.Model, true, min(2, steps))
	}
	got := train(t, c)
	if err := sameWeights(want.Weights, got.Weights); err != nil {
		t.Error(err)
	}
	if !slices.Equal(asked, []int{5, 3, 1}) {
		t.Error(asked)
	}
	c.Next = func(so trace.Timeline, steps int) (*schedule.Program, error) {
		return ProgramOf(c.Plan, c.Model, true, steps+1)
	}
	if _, err := Train(t.Context(), c); err == nil || !strings.Contains(err.Error(), "steps long") {
		t.Error(err)
	}
}

// Several stages of one worker hand tensors over without a message.
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

// allForwardAllBackward is a Program in which stages may share workers, which no family
// writes yet.
func allForwardAllBackward(c Config, devices []int, steps int) (*schedule.Program, error) {
	p := &schedule.Program{
		Name: "by hand", Stages: len(devices), Workers: 1 + slices.Max(devices), Placement: [][][]int{{}}, Replication: schedule.RoundRobin,
		MicroBatches: c.Plan.MicroBatches, Period: 1, Repeat: steps, Weights: schedule.Sync, Recompute: make([]plan.Recompute, len(devices)),
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
	return schedule.Lower(p, schedule.LowerOptions{Tied: c.Model.TiedStages(stageOf(c.Plan, len(c.Model.Layers))), Clip: c.Clip > 0})
}

// Only the last steps are kept in full, and those asked for; marks and losses are kept for all.
func TestATimelineIsBounded(t *testing.T) {
	c := small(t, 2, 12)
	c.KeepSteps = 2
	c.WantStep = func(step int) bool { return step == 3 }
	res := train(t, c)
	kept := map[int]bool{}
	for _, e := range res.Timeline.Events {
		kept[e.Step] = true
	}
	if len(kept) != 3 || !kept[3] || !kept[10] || !kept[11] || len(res.Timeline.Steps) != 12 || len(res.Timeline.Losses) != 12 {
		t.Error(kept, len(res.Timeline.Steps), len(res.Timeline.Losses))
	}
}

// A pipeline whose stages have replicas sums in another order than one worker: equal up to
// rounding, and from run to run to the bit.
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
		if _, err := ProgramOf(c.Plan, c.Model, c.Clip > 0, 1); err != nil {
			continue // the family refuses these depths with these replicas
		}
		ran++
		got := train(t, c)
		for name, w := range want {
			for i, x := range view[float64](w.Data) {
				if y := view[float64](got.Weights[name].Data)[i]; math.Abs(x-y) > 1e-6 {
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
