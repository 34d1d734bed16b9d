package run

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/engine/ref"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/run/checkpoint"
	"github.com/millrace-ml/millrace/run/control"
	"github.com/millrace-ml/millrace/run/process"
	"github.com/millrace-ml/millrace/schedule/programs"
	"github.com/millrace-ml/millrace/sim"
	"github.com/millrace-ml/millrace/wire/tcp"
)

// If a process is lost, the other processes end with an error that names it, even if references still have work to do.
func TestBesideWithoutAProcess(t *testing.T) {
	for _, lost := range []int{1, 2} {
		c := besideConfig(t, rand.New(rand.NewPCG(9, 77)))
		c.Plan = planOf(c.Model, evenCuts(len(c.Model.Layers), 3), 2, 2, "elastic")
		c.Plan.Weights, c.Plan.Elastic = "elastic", plan.NewElastic(2)
		c.Plan.Elastic.Reference = plan.Beside
		c.Train.Steps, c.Keep.Steps = 4000, 1
		c.Engine = &tardy{ref.New(), 4, time.Millisecond}
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

// A loss of the second pipeline that is not finite ends the run before its gradients are used. The earlier checkpoint
// stays.
func TestBesideEndsAtALossThatIsNoNumber(t *testing.T) {
	c := besideConfig(t, rand.New(rand.NewPCG(10, 78)))
	c.Train.Steps, c.Train.Clip = 40, 0
	c.Engine = &tardy{ref.New(), 5, time.Millisecond}
	n := c.Plan.Elastic.Pipelines
	c.Data.Train = poisoned{c.Data.Train.(noise), 21*n + 1}
	c.Checkpoint = Checkpointing{Dir: t.TempDir(), Every: 10}
	r, err := Train(t.Context(), c)
	var loss *process.LossError
	if !errors.As(err, &loss) || loss.Step != 21 || r.Leaked != 0 {
		t.Fatalf("got %v, want the loss of step 21", err)
	}
	c.Data.Train, c.Resume.At, c.Train.Steps = c.Data.Train.(poisoned).noise, c.Checkpoint.Dir, 24
	if got := train(t, c); got.Timeline.Steps[0].Step != 20 || got.Steps != 24 || got.Timeline.Seen[0].Version != 20 {
		t.Errorf("it goes on with step %d and %+v", got.Timeline.Steps[0].Step, got.Timeline.Seen[0])
	}
}

// dyingBeside is an engine where the thread beside one worker dies at an operator that `when` selects, or cannot
// open its device.
type dyingBeside struct {
	engine.Engine
	worker int
	when   func(op string, args []any) bool
	dies   func() error
	opens  error
}

type dyingDevice struct {
	engine.Device
	of *dyingBeside
}

func (d *dyingBeside) Open(worker, threads int) (engine.Device, error) {
	dev, err := d.Engine.Open(worker, threads)
	if err != nil || worker != d.worker {
		return dev, err
	}
	return dyingDevice{dev, d}, nil
}

func (d dyingDevice) Beside(threads int) (engine.Device, error) {
	if d.of.opens != nil {
		return nil, d.of.opens
	}
	dev, err := d.Device.Beside(threads)
	return &failingDevice{dev, &failing{when: d.of.when, dies: d.of.dies}}, err
}

// If a reference beside its pipelines dies, by an error or by a panic, the run stops at once. The same holds if its
// device does not open. The error names the worker and the stage, and nothing leaks. If there is an earlier checkpoint,
// it is complete.
func TestAReferenceThatDiesBesideItsPipelines(t *testing.T) {
	for name, f := range map[string]struct {
		with dyingBeside
		want []string
	}{
		"an error": {dyingBeside{dies: func() error { return errBroken }},
			[]string{"the reference of stage 1 died with the steps of 3 pipelines in its queue", errBroken.Error(), "p3/1UR"}},
		"a panic": {dyingBeside{dies: func() error { panic(errBroken) }},
			[]string{"the reference of stage 1 died with the steps of 3 pipelines in its queue", "panic", "p3/1UR"}},
		"no device": {dyingBeside{opens: errBroken}, []string{errBroken.Error(), "p3/1UR0"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := faultyConfig(t)
			c.Plan.Elastic.Reference = plan.Beside
			parameters := 0 // number of parameters of the last stage
			for _, l := range c.Model.Layers[c.Plan.Stages[1].FirstLayer:] {
				parameters += len(l.Params)
			}
			f.with.Engine, f.with.worker, f.with.when = ref.New(), 1, nth(3*parameters, "aten::add_.Tensor", 1.0/3)
			c.Engine = &f.with
			r, err := Train(t.Context(), c)
			if err == nil {
				t.Fatal("the run did not stop")
			}
			for _, want := range append(f.want, "worker 1") {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not say %q", strings.SplitN(err.Error(), "\n", 2)[0], want)
				}
			}
			if r == nil || r.Leaked != 0 {
				t.Fatalf("%d handles leaked", r.Leaked)
			}
			if f.with.opens != nil {
				return
			}
			path, err := checkpoint.Latest(c.Checkpoint.Dir)
			if err != nil || !strings.HasSuffix(path, "00000002") {
				t.Fatalf("the latest checkpoint is %q, %v; want that of step 2", path, err)
			}
			again := faultyConfig(t)
			again.Plan.Elastic.Reference = plan.Beside
			again.Resume.At = path
			if got := train(t, again); got.Steps != 6 {
				t.Errorf("resumed from it, it ends behind %d steps", got.Steps)
			}
		})
	}
}

// The memory of each worker is as predicted. The prediction includes the reference that the thread beside the worker
// updates, the queue of this thread, and a copy of the reference that no update has used yet.
func TestMemoryBesideIsAsPredicted(t *testing.T) {
	for _, sized := range sizedModels(t) {
		m := sized.model
		pl := planOf(m, evenCuts(len(m.Layers), 2), sizedMicro, 3, "elastic")
		pl.Weights, pl.Elastic = "elastic", plan.NewElastic(2)
		pl.Elastic.Reference = plan.Beside
		got, most, transit, costs := sized.held(t, pl, 8, 0)
		p, err := programs.Build(pl, m.TiedLayers(), false, 8)
		if err != nil {
			t.Fatal(err)
		}
		_, prompt, err := sim.Run(p, costs, sim.Options{})
		if err != nil {
			t.Fatal(err)
		}
		messages := int64(2*3) * costs.Stages[0][0].ActivationBytes
		for w, n := range most {
			held, least, step := got.PeakBytes[w], prompt.PeakBytes[w], costs.Stages[w][0].ReferenceBytes
			t.Logf("%s, worker %d: %d bytes, predicted %d to %d; a step is %d", m.Name, w, held, least, n, step)
			// If an update sees a copy of the reference sooner than on the simulator's virtual clock, a worker may hold
			// one step's bytes less.
			if held > n+int64(4*2*pl.MicroBatches)+transit || held <= least-messages-step {
				t.Errorf("%s: worker %d holds %d bytes; predicted %d to %d", m.Name, w, held, least, n)
			}
		}
	}
}
