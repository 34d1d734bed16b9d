package run

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/data"
	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/run/process"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/machine"
	"github.com/millrace-ml/millrace/trace"
	"github.com/millrace-ml/millrace/wire/pipe"
	"github.com/millrace-ml/millrace/wire/shape"
)

// In these tests only two workers can compute at once, on any machine, because the workers share two cores.

// sharing is a gate that counts how many workers compute at once, and how often a worker waited for a core.
type sharing struct {
	process.Gate
	cores, computing, waited int
	wrong                    error
}

func (o *sharing) Start(k int) {
	if in, _ := o.Local(k).Head(); in.Kind.IsCompute() {
		if o.computing++; o.computing > o.cores && o.wrong == nil {
			o.wrong = fmt.Errorf("worker %d is the %d. to compute at once", k, o.computing)
		}
	}
	o.Gate.Start(k)
}

func (o *sharing) Issued(k int, done bool) []int {
	if in, _ := o.Local(k).Head(); in.Kind.IsCompute() {
		o.computing--
	}
	return o.Gate.Issued(k, done)
}

func (o *sharing) Poll(k int) machine.Need {
	n := o.Gate.Poll(k)
	if n.Lack == machine.Core {
		o.waited++
	}
	return n
}

// trainSharing is Train with two cores for all workers.
func trainSharing(t testing.TB, ctx context.Context, c Config) (*Result, *sharing, error) {
	t.Helper()
	c.Machine.Cores = 2
	if c.Watch.StallAfter == 0 {
		c.Watch.StallAfter = 10 * time.Second // so that a run that hangs says what a collective waits for
	}
	o := &sharing{cores: c.Machine.Cores}
	c.decide = func(p *schedule.Program, workers []int, with machine.Options) (process.Gate, error) {
		m, err := machine.NewProcess(p, workers, with)
		o.Gate = m
		return o, err
	}
	res, failed := Train(ctx, c)
	if err := errors.Join(o.wrong, res.Timeline.Validate()); err != nil {
		t.Error(err)
	}
	if res.Leaked != 0 {
		t.Errorf("%d handles leaked", res.Leaked)
	}
	return res, o, failed
}

// Each process shares its own cores among its own workers, and the record says which worker had which core.
func TestEachProcessSharesItsOwnCores(t *testing.T) {
	c := small(t, 4, 4)
	c.Plan.MicroBatches = 4
	alone := train(t, c)
	gates := make([]*sharing, 2)
	w := worlds{of: []int{0, 0, 1, 1}, carriers: pipe.New}
	w.change = func(p int, c *Config) {
		c.Machine.Cores = 1
		o := &sharing{cores: 1}
		gates[p] = o
		c.decide = func(p *schedule.Program, workers []int, with machine.Options) (process.Gate, error) {
			m, err := machine.NewProcess(p, workers, with)
			o.Gate = m
			return o, err
		}
	}
	apart := w.train(t.Context(), t, c).whole(t)
	for p, o := range gates {
		if o.wrong != nil || o.waited == 0 {
			t.Errorf("process %d: %v; waited for a core %d times", p, o.wrong, o.waited)
		}
	}
	if err := sameRun(alone, apart); err != nil {
		t.Error(err)
	}
	want := []trace.Pool{{Cores: 1, Workers: []int{0, 1}}, {Cores: 1, Workers: []int{2, 3}}}
	if got := apart.Timeline; !reflect.DeepEqual(got.Pools, want) || got.Cores != 0 {
		t.Errorf("%d cores, pools %v; want %v", got.Cores, got.Pools, want)
	}
}

// delayed adds random delays to messages and computations.
func delayed(c Config, seed uint64) Config {
	g := rand.New(rand.NewPCG(seed, 51))
	c.Engine = slowEngine{Engine: c.Engine, seed: seed}
	c.Wire.Carriers = shaped(func(from, to int) shape.Link {
		return shape.Link{Latency: time.Duration(g.IntN(300)) * time.Microsecond}
	})
	return c
}

// If workers share cores, random Programs still end with the same bits as the sequential program. Each worker computes
// in the order of its list.
func TestRandomProgramsShareCores(t *testing.T) {
	e := testEngine(t)
	var ran, waited atomic.Int64
	eachSeed(t, cases(120, 2000), func(t *testing.T, seed uint64) {
		g := rand.New(rand.NewPCG(seed, 52))
		c, p, ok := randomProgram(t, e, g)
		if !ok || p.Workers <= 2 {
			return
		}
		if seed%4 != 0 {
			c = delayed(c, seed)
		}
		got, o, err := trainSharing(t, t.Context(), c)
		if err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, p.Text())
		}
		ran.Add(1)
		waited.Add(int64(o.waited))
		sameAsSimulated(t, c, p, got, seed)
		takenInOrder(t, p, got, seed)
	})
	if ran.Load() < 30 || waited.Load() < ran.Load() {
		t.Errorf("%d programs, whose workers waited for a core %d times; more were meant", ran.Load(), waited.Load())
	}
}

// takenInOrder compares each worker's computations, and the messages that it took, with its list of instructions.
func takenInOrder(t *testing.T, p *schedule.Program, got *Result, seed uint64) {
	t.Helper()
	for w := range p.Workers {
		var want, did []string
		kinds := map[string]bool{}
		p.Walk(w, func(in schedule.Instruction) bool {
			if in.Kind.IsCompute() || in.Kind.IsReceive() {
				want = append(want, in.String())
				kinds[in.Kind.String()] = true
			}
			return true
		})
		free := 0.0
		for _, e := range got.Timeline.Events {
			if e.Worker != w || !kinds[e.Kind] {
				continue
			}
			if did = append(did, e.Instruction); e.StartS < free || e.ReadyS < free {
				t.Errorf("seed %d: worker %d begins %s before it is free", seed, w, e.Instruction)
			}
			free = e.EndS
		}
		if !slices.Equal(did, want) {
			t.Fatalf("seed %d: worker %d did\n%v; its list is\n%v", seed, w, did, want)
		}
	}
}

// sharingConfig returns a random pipeline of three workers or more.
func sharingConfig(t testing.TB, g *rand.Rand) Config {
	for {
		if c := randomConfig(t, testEngine(t), g); len(c.Plan.Stages) > 2 {
			return c
		}
	}
}

// TestValidatedUpdatesShareCores: if updates are taken back on shared cores, Programs end before their last step. The
// runs still end with the same bits as the sequential program.
func TestValidatedUpdatesShareCores(t *testing.T) {
	var sometimes atomic.Int64
	seeds := cases(16, 300)
	eachSeed(t, seeds, func(t *testing.T, seed uint64) {
		g := rand.New(rand.NewPCG(seed, 53))
		c := sharingConfig(t, g)
		c.Plan.Schedule, c.Plan.PostValidate = []string{"1f1b", "zb-h1", "zb-h2"}[seed%3], true
		for i := range c.Plan.Stages {
			c.Plan.Stages[i].Warmup = 0
		}
		c.Train.Steps, c.Train.Clip = 2+g.IntN(4), []float64{0.2, 0.5, 1}[g.IntN(3)]
		want, norms := sequentially(t, c, synchronous(c))
		got, _, err := trainSharing(t, t.Context(), delayed(c, seed))
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if err := equalCase(c, want, got.Weights); err != nil || got.Steps != c.Train.Steps {
			t.Fatalf("seed %d: %d steps: %v\n%+v", seed, got.Steps, err, *c.Plan)
		}
		if n := over(norms, c.Train.Clip); n > 0 && n < c.Train.Steps {
			sometimes.Add(1)
		}
	})
	if sometimes.Load() < int64(seeds/8) {
		t.Errorf("some norms were over the limit in %d cases", sometimes.Load())
	}
}

// cancelling ends a run once a given number of batches have been read. This may be at any point of the run.
type cancelling struct {
	noise
	left   *atomic.Int64
	cancel context.CancelFunc
}

func (b cancelling) Batch(step, batch, first, rows int) (data.Batch, error) {
	if b.left.Add(-1) == 0 {
		b.cancel()
	}
	return b.noise.Batch(step, batch, first, rows)
}

// A run that is stopped anywhere has done whole steps, with the evaluations and checkpoints between them. When it is
// resumed, it ends with the same bits as a run that was not stopped.
func TestARunThatSharesCoresIsStoppedAndResumed(t *testing.T) {
	var stopped atomic.Int64
	seeds := cases(10, 200)
	eachSeed(t, seeds, func(t *testing.T, seed uint64) {
		g := rand.New(rand.NewPCG(seed, 54))
		c := sharingConfig(t, g)
		c.Train.Steps = 4 + g.IntN(5)
		want := reference(t, c)
		c = delayed(c, seed)
		c.Checkpoint = Checkpointing{Dir: t.TempDir(), Every: 1 + g.IntN(3)}
		c.Train.EvalEvery, c.Train.EvalRows = 1+g.IntN(3), 5
		c.Data.Test = c.Data.Train
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		left := new(atomic.Int64)
		left.Store(1 + g.Int64N(int64(c.Train.Steps*c.Plan.MicroBatches)))
		first := c
		first.Data.Train = cancelling{c.Data.Train.(noise), left, cancel}
		got, _, err := trainSharing(t, ctx, first)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if got.Stopped {
			stopped.Add(1)
			c.Resume.At = c.Checkpoint.Dir
			if got, _, err = trainSharing(t, t.Context(), c); err != nil {
				t.Fatalf("seed %d: resumed: %v", seed, err)
			}
		}
		if err := equalCase(c, want, got.Weights); err != nil || got.Steps != c.Train.Steps {
			t.Fatalf("seed %d: %d of %d steps: %v", seed, got.Steps, c.Train.Steps, err)
		}
	})
	if stopped.Load() < int64(seeds/2) {
		t.Errorf("%d runs were stopped before their end", stopped.Load())
	}
}

// TestElasticSharesCores: if parallel pipelines and their reference share cores, their weights are still those of the
// equations, bit for bit.
func TestElasticSharesCores(t *testing.T) {
	eachSeed(t, cases(10, 100), func(t *testing.T, seed uint64) {
		g := rand.New(rand.NewPCG(seed, 55))
		c := elasticConfig(t, g)
		if len(c.Plan.Stages) < 3 {
			return
		}
		got, _, err := trainSharing(t, t.Context(), delayed(c, seed))
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if err := equalCase(c, got.Weights, averagedWeights(t, c)); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
	})
}

// thief is an engine where one device can take over only a limited number of messages.
type thief struct {
	engine.Engine
	worker, takes int
}

var errStolen = errors.New("the message was stolen")

func (f thief) Open(worker, threads int) (engine.Device, error) {
	d, err := f.Engine.Open(worker, threads)
	if err != nil || worker != f.worker {
		return d, err
	}
	return &thiefDevice{Device: d, left: f.takes}, nil
}

type thiefDevice struct {
	engine.Device
	left int
}

func (d *thiefDevice) Adopt(t engine.Tensor) (engine.Tensor, error) {
	if d.left--; d.left < 0 {
		t.Free()
		return nil, errStolen
	}
	return d.Device.Adopt(t)
}

// A failure to take a message over ends the run, and the error names the worker and the message.
func TestAMessageThatCannotBeTakenEndsTheRun(t *testing.T) {
	for worker := range 4 {
		for takes := range 4 {
			c := small(t, 4, 4)
			c.Engine = thief{Engine: c.Engine, worker: worker, takes: takes}
			_, _, err := trainSharing(t, t.Context(), delayed(c, uint64(takes)))
			if !errors.Is(err, errStolen) || !strings.Contains(err.Error(), fmt.Sprintf("run: worker %d: %dR", worker, worker)) {
				t.Fatalf("worker %d after %d messages: %v", worker, takes, err)
			}
		}
	}
}

// A stall report leads from worker to worker to the message that was lost.
func TestAStallWhereCoresAreSharedSaysWhoWaitsForWhat(t *testing.T) {
	c := small(t, 4, 2)
	c.Plan.MicroBatches = 4
	lost := schedule.Instruction{Kind: schedule.SB, Stage: 3, Micro: 2}
	c.Watch.StallAfter = 300 * time.Millisecond
	c.Wire.Carriers = cutting(func(in schedule.Instruction) bool { return in == lost })
	_, _, err := trainSharing(t, t.Context(), c)
	var stall *machine.StallError
	if !errors.As(err, &stall) {
		t.Fatal(err)
	}
	said := map[int]string{}
	for _, w := range stall.Waits {
		said[w.Worker], _, _ = strings.Cut(w.String(), "; it has")
	}
	for worker, want := range map[int]string{
		0: "worker 0 cannot start 0RB2: 1SB2 from worker 1 has not arrived",
		1: "worker 1 cannot start 1RB2: 2SB2 from worker 2 has not arrived",
		2: "worker 2 cannot start 2RB2: 3SB2 from worker 3 has not arrived",
	} {
		if said[worker] != want {
			t.Errorf("worker %d: %q, want %q", worker, said[worker], want)
		}
	}
}
