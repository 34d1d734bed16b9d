package run

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/data"
	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/internal/crash"
	"github.com/millrace-ml/millrace/run/checkpoint"
	"github.com/millrace-ml/millrace/run/process"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/machine"
	"github.com/millrace-ml/millrace/stage/optim"
)

// closedGate starts nothing, and the run must report that at once.
type closedGate struct{ process.Gate }

func (closedGate) Poll(w int) machine.Need {
	return machine.Need{Worker: w, Lack: machine.Message, At: schedule.Instruction{Kind: schedule.F},
		For: schedule.Instruction{Kind: schedule.SF}, Peer: 1 - w}
}
func (g closedGate) Waits() []machine.Need { return []machine.Need{g.Poll(0), g.Poll(1)} }
func (closedGate) Start(w int)             { panic(fmt.Sprint("worker ", w, " was started")) }

func TestAGateThatNeverReleasesStartsNothing(t *testing.T) {
	c := small(t, 2, 3)
	c.decide = func(p *schedule.Program, workers []int, o machine.Options) (process.Gate, error) {
		m, err := machine.NewProcess(p, workers, o)
		return closedGate{m}, err
	}
	res, err := Train(t.Context(), c)
	var stall *machine.StallError
	if !errors.As(err, &stall) || len(stall.Waits) != 2 || !strings.Contains(err.Error(), "worker 1 cannot start") {
		t.Fatal(err)
	}
	if len(res.Timeline.Events) != 0 || res.Leaked != 0 {
		t.Error(res.Timeline.Events, res.Leaked)
	}
	served(&c, 1) // a server, which takes whatever is ready, starts nothing either
	if res, err = Train(t.Context(), c); !errors.As(err, &stall) || len(res.Timeline.Events) != 0 {
		t.Fatal(err)
	}
}

// badEngine fails or panics in a backward pass of one worker, after `after` backward passes that succeed.
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
				if err == nil || !strings.Contains(err.Error(), why.Error()) ||
					!strings.Contains(err.Error(), fmt.Sprintf("worker %d", worker)) {
					t.Fatalf("%s on worker %d: %v", name, worker, err)
				}
				if p := (*crash.Panic)(nil); name == "panic" &&
					(!errors.As(err, &p) || !strings.Contains(string(p.Stack), "badDevice")) {
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
	c.Machine.ThreadsPerWorker = 1
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

// poisoned is a data set with a NaN sample in one step.
type poisoned struct {
	noise
	step int
}

func (p poisoned) Batch(step, batch, first, rows int) (data.Batch, error) {
	b, err := p.noise.Batch(step, batch, first, rows)
	if step == p.step {
		b["input"].Floats[0] = float32(math.NaN())
	}
	return b, err
}

func TestANaNLossStopsAndKeepsTheLastGoodCheckpoint(t *testing.T) {
	c := small(t, 3, 20)
	dir := t.TempDir()
	c.Checkpoint = Checkpointing{Dir: dir, Every: 2}
	c.Data.Train = poisoned{c.Data.Train.(noise), 5}
	res, err := Train(t.Context(), c)
	var loss *process.LossError
	if !errors.As(err, &loss) || loss.Step != 5 || loss.Stage != 2 || loss.Evaluation || !math.IsNaN(loss.Value) ||
		!errors.Is(err, process.ErrNotFinite) || !strings.Contains(err.Error(), "the loss of step 6, ") {
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
	c.Train.EvalEvery, c.Train.EvalRows = 4, 8
	c.Checkpoint.Dir = t.TempDir()
	res, err := Train(t.Context(), c)
	var loss *process.LossError
	if !errors.As(err, &loss) || loss.Step != 3 || loss.Stage != 2 || !loss.Evaluation ||
		!strings.Contains(err.Error(), "evaluation loss after step 4") {
		t.Fatal(err)
	}
	if res.Steps != 4 || res.Leaked != 0 || len(res.Timeline.Evaluations) != 0 {
		t.Error(res.Steps, res.Leaked, res.Timeline.Evaluations)
	}
}

// With weights of 1e60 the loss of four layers is finite, but the squares of its gradients are not.
func TestAGradientNormThatIsNotFiniteStops(t *testing.T) {
	c := small(t, 2, 3)
	c.Train.Optimizer, c.Train.Clip = optim.Settings{Kind: optim.SGD}, 1
	c.Train.Rate = optim.Rate{Kind: optim.Constant, Base: 1e60}
	if _, err := Train(t.Context(), c); !errors.Is(err, process.ErrNotFinite) ||
		!strings.Contains(err.Error(), "the gradient norm of step 2 is +Inf on stage") {
		t.Error(err)
	}
}

func TestWeightsThatAreNotFiniteAreNotSaved(t *testing.T) {
	c := small(t, 2, 2)
	huge := 1e30 // its square is infinite
	if c.Engine.Float() == engine.Float64 {
		huge = 1e200
	}
	c.Train.Optimizer, c.Train.Clip = optim.Settings{Kind: optim.SGD, WeightDecay: huge}, 0
	c.Train.Rate = optim.Rate{Kind: optim.Constant, Base: huge}
	c.Train.Steps = 1
	c.Checkpoint.Dir = t.TempDir()
	_, err := Train(t.Context(), c)
	if !errors.Is(err, process.ErrNotFinite) || !strings.Contains(err.Error(), "after 1 steps") {
		t.Fatal(err)
	}
	if entries, _ := os.ReadDir(c.Checkpoint.Dir); len(entries) != 0 {
		t.Error(entries)
	}
}

// If all activations are lost between the workers, the run ends with an error.
func TestNothingHappeningIsAStall(t *testing.T) {
	c := small(t, 2, 3)
	c.Wire.Carriers = losing
	c.Watch.StallAfter = 300 * time.Millisecond
	_, err := Train(t.Context(), c)
	var stall *machine.StallError
	said := regexp.MustCompile(`^run: program \S+ has stalled: nothing has happened for \d+\S*s
  worker 0 cannot start 0RB0: 1SB0 from worker 1 has not arrived; it has waited for \d+\S*s, since \d+\S* of the run
  worker 1 cannot start 1RF0: 0SF0 from worker 0 has not arrived; it has waited for \d+\S*s, since \d+\S* of the run$`)
	if !errors.As(err, &stall) || !said.MatchString(err.Error()) {
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
		{"no steps", func(c *Config) { c.Train.Steps = 0 }, "0 steps"},
		{"clip", func(c *Config) { c.Train.Clip = -1 }, "clipped to -1"},
		{"clip to no number", func(c *Config) { c.Train.Clip = math.NaN() }, "clipped to NaN"},
		{"stall", func(c *Config) { c.Watch.StallAfter = -time.Second }, "a stall after -1s"},
		{"steps kept", func(c *Config) { c.Keep.Steps = -1 }, "-1 steps kept"},
		{"moments kept", func(c *Config) { c.Keep.Moments = -2 }, "-2 moments kept"},
		{"rows evaluated", func(c *Config) { c.Train.EvalRows = -1 }, "-1 rows evaluated"},
		{"optimizer", func(c *Config) { c.Train.Optimizer.Kind = "lion" }, `"lion"`},
		{"rate", func(c *Config) { c.Train.Rate.Base = -1 }, "give a learning rate, 0 or more"},
		{"evaluation without data", func(c *Config) { c.Train.EvalEvery = 1 }, "without test data"},
		{"plan of another model", func(c *Config) { c.Plan.ModelID = "x" }, "is for model"},
		{"plan with a hole", func(c *Config) { c.Plan.Stages[1].FirstLayer++ }, "must begin with layer"},
		{"plan that ends early", func(c *Config) { c.Plan.Stages[1].LastLayer-- }, "ends with layer"},
		{"fractions", func(c *Config) { c.Plan.Stages[0].LastFraction = 0.5 }, "fraction"},
		{"split", func(c *Config) { c.Plan.Replication = "split"; c.Plan.Stages[1].Devices = []int{1, 2, 3} },
			"over 3 replicas"},
		{"weights", func(c *Config) { c.Plan.Weights = "stash" }, `"stash"`},
		{"no such checkpoint", func(c *Config) { c.Resume.At = filepath.Join(dir, "none") }, "none"},
		{"checkpoint of another seed", func(c *Config) { c.Resume.At = dir; c.Train.Seed = 9 }, "seed is 1; this run has 9"},
		{"checkpoint of another batch", func(c *Config) { c.Resume.At = dir; c.Plan.MicroBatches = 7 },
			"batch is 6; this run has 14"},
		{"checkpoint of another optimizer",
			func(c *Config) { c.Resume.At = dir; c.Train.Optimizer = optim.Settings{Kind: optim.SGD} }, "optimizer"},
		{
			"checkpoint of more steps", func(c *Config) { c.Resume.At = dir; c.Train.Steps = 1 },
			"steps is 2; this run has 1 in all; ask for more",
		},
	} {
		config := small(t, 2, 9)
		c.change(&config)
		if _, err := Train(t.Context(), config); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v; want something about %q", c.name, err, c.says)
		}
	}
	other := small(t, 2, 9)
	other.Model = build(t, "mlp", map[string]any{"inputs": 6, "hidden": []int{8}, "classes": 4})
	other.Plan, other.Resume.At = planOf(other.Model, nil, 2, 3, "1f1b"), dir
	if _, err := Train(t.Context(), other); err == nil || !strings.Contains(err.Error(), "model is mlp") {
		t.Error(err)
	}
}
