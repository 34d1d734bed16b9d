package run

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/engine/ref"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/run/checkpoint"
	"github.com/millrace-ml/millrace/stage/optim"
)

// failing is an engine where one worker dies at an operator that `when` selects.
type failing struct {
	engine.Engine
	worker int
	when   func(op string, args []any) bool
	dies   func() error
}

func (f *failing) Open(worker, threads int) (engine.Device, error) {
	d, err := f.Engine.Open(worker, threads)
	if err != nil || worker != f.worker {
		return d, err
	}
	return &failingDevice{d, f}, nil
}

type failingDevice struct {
	engine.Device
	of *failing
}

func (d *failingDevice) Call(op string, args ...any) ([]engine.Tensor, error) {
	if d.of.when(op, args) {
		return nil, d.of.dies()
	}
	return d.Device.Call(op, args...)
}

var errBroken = errors.New("the device is gone")

// nth selects call number n, counted from 0, of an operator whose last argument is `last`.
func nth(n int, op string, last float64) func(string, []any) bool {
	seen := 0
	return func(called string, args []any) bool {
		if called != op || len(args) == 0 || args[len(args)-1] != last {
			return false
		}
		seen++
		return seen == n+1
	}
}

// faultyConfig is a run of three pipelines on two workers, saved every two steps. Only the steps of averaging have an
// operator whose last argument is alpha, and only the reference's mean has an operator whose last argument is 1/3.
func faultyConfig(t testing.TB) Config {
	c := small(t, 2, 6)
	c.Engine, c.Train.Optimizer = ref.New(), optim.Settings{Kind: optim.SGD, Momentum: 0.9}
	c.Plan.Schedule, c.Plan.Weights = "elastic", "elastic"
	c.Plan.Elastic = &plan.Elastic{Pipelines: 3, Alpha: 0.3125, Order: plan.DiluteFirst}
	c.Checkpoint = Checkpointing{Dir: t.TempDir(), Every: 2}
	return c
}

// TestAQueueWhosePeerDied: a pipeline that dies before it reaches the queue stops the run at once, by an error or by
// a panic. So does a reference that dies with a full queue. The error names the worker, the pipeline or reference,
// and the stage. Nothing leaks, and the earlier checkpoint is complete.
func TestAQueueWhosePeerDied(t *testing.T) {
	parameters := 0 // number of parameters of the last stage
	{
		c := faultyConfig(t)
		for _, l := range c.Model.Layers[c.Plan.Stages[1].FirstLayer:] {
			parameters += len(l.Params)
		}
	}
	for _, f := range []struct {
		name string
		when func(string, []any) bool
		dies func() error
		want []string
	}{
		{"a pipeline fails", nth(3*3*parameters, "aten::add_.Tensor", 0.3125), func() error { return errBroken },
			[]string{"died before it left its step in the queue of the reference of stage 1", errBroken.Error()}},
		{"a pipeline panics", nth(3*3*parameters+parameters, "aten::add_.Tensor", 0.3125), func() error { panic(errBroken) },
			[]string{"died before it left its step in the queue of the reference of stage 1", "panic"}},
		{"the reference fails", nth(3*parameters, "aten::add_.Tensor", 1.0/3), func() error { return errBroken },
			[]string{"the reference of stage 1 died with the steps of 3 pipelines in its queue", errBroken.Error()}},
	} {
		t.Run(f.name, func(t *testing.T) {
			c := faultyConfig(t)
			c.Engine = &failing{Engine: ref.New(), worker: 1, when: f.when, dies: f.dies}
			r, err := Train(t.Context(), c)
			if err == nil {
				t.Fatal("the run did not stop")
			}
			for _, want := range append(f.want, "worker 1", "U3") {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not say %q", strings.SplitN(err.Error(), "\n", 2)[0], want)
				}
			}
			if named := strings.Contains(err.Error(), "pipeline 0 died") || strings.Contains(err.Error(), "pipeline 1 died") ||
				strings.Contains(err.Error(), "pipeline 2 died"); named == (f.name == "the reference fails") {
				t.Errorf("%q: the pipeline named: %v", strings.SplitN(err.Error(), "\n", 2)[0], named)
			}
			if r == nil || r.Leaked != 0 || r.Steps < 3 {
				t.Fatalf("%+v: handles leaked, or no step before it was done", r)
			}
			path, err := checkpoint.Latest(c.Checkpoint.Dir)
			if err != nil || !strings.HasSuffix(path, "00000002") {
				t.Fatalf("the latest checkpoint is %q, %v; want that of step 2", path, err)
			}
			whole, again := faultyConfig(t), faultyConfig(t)
			again.Resume.At = path
			if err := sameWeights(train(t, whole).Weights, train(t, again).Weights); err != nil {
				t.Errorf("resumed from it: %v", err)
			}
		})
	}
}

// TestAPipelineWhosePeerIsGone: if messages never arrive, no worker can continue, and the run says what every worker
// waits for.
func TestAPipelineWhosePeerIsGone(t *testing.T) {
	c := faultyConfig(t)
	c.Wire.Carriers, c.Watch.StallAfter = losing, 300*time.Millisecond
	_, err := Train(t.Context(), c)
	if err == nil {
		t.Fatal("the run did not stop")
	}
	for w := range 2 {
		if !strings.Contains(err.Error(), fmt.Sprintf("worker %d", w)) {
			t.Errorf("%v: it does not say what worker %d waits for", err, w)
		}
	}
}
