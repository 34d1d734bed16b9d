package run

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/engine/ref"
	"github.com/millrace-ml/millrace/run/checkpoint"
	"github.com/millrace-ml/millrace/run/control"
	"github.com/millrace-ml/millrace/run/process"
	"github.com/millrace-ml/millrace/trace"
	"github.com/millrace-ml/millrace/wire/tcp"
)

// If the process of the server or of a trainer is lost, the other processes end with an error that names it.
func TestASPWithoutAProcess(t *testing.T) {
	for _, lost := range []int{1, 2} {
		c := servedConfig(t, testEngine(t), rand.New(rand.NewPCG(9, 67)))
		served(&c, 2)
		c.Plan.Staleness, c.Train.Steps, c.Keep.Steps = nil, 4000, 1
		w := worlds{of: []int{0, 1, 2}, carriers: tcp.New, overTCP: true}
		links := make(chan control.Link, 2)
		w.links = func(p int, l control.Link) {
			if p == lost {
				links <- l
			}
		}
		c.Hooks.OnStep = func(s StepReport) {
			if s.Step == 3 {
				(<-links).Close()
			}
		}
		out := w.train(t.Context(), t, c)
		for p, err := range out.errs {
			var of *control.LostError
			if want := map[bool]int{true: 0, false: lost}[p == lost]; !errors.As(err, &of) || of.Process != want {
				t.Errorf("process %d is lost: process %d ends with %v", lost, p, err)
			}
		}
	}
}

// A loss that is not finite ends the run before its gradients are used; the earlier checkpoint stays.
func TestASPEndsAtALossThatIsNoNumber(t *testing.T) {
	c := servedConfig(t, testEngine(t), rand.New(rand.NewPCG(10, 68)))
	served(&c, 2)
	c.Plan.Staleness, c.Train.Steps, c.Train.Clip = nil, 40, 0
	c.Data.Train = poisoned{c.Data.Train.(noise), 21}
	c.Checkpoint = Checkpointing{Dir: t.TempDir(), Every: 10}
	_, err := Train(t.Context(), c)
	var loss *process.LossError
	if !errors.As(err, &loss) || loss.Step != 21 {
		t.Fatalf("got %v, want the loss of step 21", err)
	}
	c.Data.Train, c.Resume.At, c.Train.Steps = c.Data.Train.(poisoned).noise, c.Checkpoint.Dir, 24
	if got := train(t, c); got.Timeline.Steps[0].Step != 20 || got.Steps != 24 {
		t.Errorf("it goes on with step %d", got.Timeline.Steps[0].Step)
	}
}

// If the server or a trainer dies, by an error or by a panic, the run stops at once. The run's error names this worker,
// and if it died by an error, nothing leaks. The earlier checkpoint is complete, and the run resumes from it.
func TestAWorkerThatDiesUnderASP(t *testing.T) {
	const trainers, every, steps = 2, 4, 24
	after := func(n int) func(string, []any) bool {
		return func(string, []any) bool { n--; return n < 0 }
	}
	config := func(dir string) Config {
		c := small(t, 1, steps)
		c.Engine = ref.New()
		served(&c, trainers)
		c.Checkpoint = Checkpointing{Dir: dir, Every: every}
		return c
	}
	calls := 0 // calls of the server's operators in all steps
	count := config(t.TempDir())
	count.Engine = &failing{Engine: ref.New(), worker: trainers, when: func(string, []any) bool { calls++; return false }}
	train(t, count)
	for name, dies := range map[string]func() error{
		"an error": func() error { return errBroken },
		"a panic":  func() error { panic(errBroken) },
	} {
		for worker := range trainers + 1 {
			dir := t.TempDir()
			c := config(dir)
			if worker == trainers {
				c.Engine = &failing{Engine: ref.New(), worker: worker, when: after(calls / 2), dies: dies}
			} else { // each trainer makes 12 backwards
				c.Engine = badEngine{Engine: ref.New(), worker: worker, after: 7 * len(c.Model.Layers), do: dies}
			}
			r, err := Train(t.Context(), c)
			if err == nil || !strings.Contains(err.Error(), errBroken.Error()) ||
				!strings.Contains(err.Error(), fmt.Sprintf("worker %d", worker)) {
				t.Fatalf("%s on worker %d: %v", name, worker, err)
			}
			if name == "an error" && r.Leaked != 0 {
				t.Errorf("%s on worker %d: %d handles leaked", name, worker, r.Leaked)
			}
			path, err := checkpoint.Latest(dir)
			if err != nil || path == "" {
				t.Fatalf("%s on worker %d: no checkpoint: %v", name, worker, err)
			}
			again := config(dir)
			again.Resume.At = path
			got := train(t, again)
			order := got.Timeline.Applied
			if got.Steps != steps || len(order) == 0 || order[0].Step%every >= trainers || order[0].Version%every != 0 {
				t.Errorf("%s on worker %d: resumed from %s it ends behind %d steps, its updates are %+v", name, worker,
					path, got.Steps, order)
			}
		}
	}
}

// Settings that a run with a server cannot carry out are refused with a message that names them.
func TestASPRefusals(t *testing.T) {
	fine := servedConfig(t, testEngine(t), rand.New(rand.NewPCG(8, 66)))
	served(&fine, 2)
	fine.Plan.Staleness, fine.Train.Steps = nil, 4
	order := train(t, fine).Timeline.Applied
	norm := fine
	norm.Model = build(t, "convnet", map[string]any{"image": []int{1, 8, 8}, "widths": []int{4}, "batch_norm": true})
	norm.Plan = planOf(norm.Model, nil, 3, 1, "asp")
	served(&norm, 2)
	for _, c := range []struct {
		want   string
		change func(*Config)
	}{
		{"has running statistics", func(c *Config) { *c = norm }},
		{"2 micro-batches; a minibatch is one micro-batch", func(c *Config) { c.Plan.MicroBatches = 2 }},
		{"on two workers at least", func(c *Config) { c.Plan.Stages[0].Devices = []int{0} }},
		{"staleness -1", func(c *Config) { c.Plan.Staleness = new(-1) }},
		{"an order of updates to replay, with weights 2bw", func(c *Config) {
			asynchronous(c, 3, 3)
			c.Train.Replay = order
		}},
		{"has steps 1 to 4; this run does steps 1 to 5", func(c *Config) { c.Train.Steps, c.Train.Replay = 5, order }},
		{"goes on across steps 1 to 2, around which", func(c *Config) {
			c.Data.Test, c.Train.EvalEvery = c.Data.Train, 2
			c.Train.Replay = []trace.Applied{{Step: 0}, {Step: 2, Version: 1}, {Step: 1}, {Step: 3, Version: 3}}
		}},
		{"goes by weights of 9 updates", func(c *Config) {
			c.Train.Replay = slices.Clone(order)
			c.Train.Replay[1].Version = 9
		}},
		{"the next one of worker", func(c *Config) {
			c.Train.Replay = slices.Clone(order)
			c.Train.Replay[slices.IndexFunc(order, func(a trace.Applied) bool { return a.Step == 3 })].Step = 1
		}},
	} {
		config := fine
		pl := *fine.Plan
		pl.Stages = slices.Clone(pl.Stages)
		config.Plan = &pl
		c.change(&config)
		if _, err := Train(t.Context(), config); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want it to say %q", err, c.want)
		}
		if err := config.Check(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("before the run: %v, want it to say %q", err, c.want)
		}
	}
}
