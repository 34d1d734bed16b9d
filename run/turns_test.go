package run

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/data"
	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/wire"
)

// Workers that take turns on two processors, whatever machine this is: the processors are no machine's, so that
// nobody is bound and no other run claims them.

// overseer is a Gate that looks, at whatever its executor does, whether workers, seats and Gate agree.
type overseer struct {
	schedule.Gate
	x           *executor
	seats       int
	owed, stood int // receives that were passed for workers that waited; computations that waited for a seat
	wrong       error
}

func (o *overseer) Start(k int) {
	in, _ := o.Head(k)
	w := o.x.workers[k]
	switch {
	case in.Kind.IsCompute():
		if w.seat == none {
			o.complain("worker %d computes %v without a seat", k, in)
		}
	case !w.running:
		if o.owed++; !in.Kind.IsReceive() {
			o.complain("worker %d waits, and %v was passed for it", k, in)
		}
	}
	o.stood += len(o.x.standing)
	o.count()
	if w.running {
		o.look(k)
	}
	o.Gate.Start(k)
}

// count says whether every seat is free, or one worker's that has something to do.
func (o *overseer) count() {
	seen := map[int]bool{}
	for _, s := range o.x.seats.free {
		seen[s] = true
	}
	for _, w := range o.x.workers {
		if w.seat != none {
			if seen[w.seat] {
				o.complain("seat %d of worker %d is somebody else's, or free", w.seat, w.rank)
			}
			if !w.running {
				o.complain("worker %d waits and has a seat", w.rank)
			}
			seen[w.seat] = true
		}
	}
	if len(seen) != o.seats {
		o.complain("%d seats are left of %d", len(seen), o.seats)
	}
}

// look says whether anybody waits who might go on. A worker starts something itself: all that went before is settled.
func (o *overseer) look(starter int) {
	for _, w := range o.x.workers {
		if w.rank == starter || w.running || w.here {
			continue
		}
		in, _ := o.Head(w.rank)
		if need := o.Gate.Poll(w.rank); need.Ready() && (!in.Kind.IsCompute() || len(o.x.seats.free) > 0) {
			o.complain("worker %d may start %v and nobody has woken it", w.rank, in)
		}
	}
}

func (o *overseer) complain(format string, args ...any) {
	if o.wrong == nil {
		o.wrong = fmt.Errorf(format, args...)
	}
}

// trainInTurns is Train on two processors in turn, by more workers than that.
func trainInTurns(t testing.TB, ctx context.Context, c Config) (*Result, *overseer, error) {
	t.Helper()
	c.Cores = 2
	if c.StallAfter == 0 {
		c.StallAfter = 10 * time.Second // what a collective waits for is seen only so
	}
	var r *runner
	o := &overseer{seats: c.Cores}
	c.Gate = func(p *schedule.Program, cores int) (schedule.Gate, error) {
		m, err := schedule.NewMachine(p, cores)
		o.Gate, o.x = m, r.x
		return o, err
	}
	c, err := c.filled()
	if err != nil {
		t.Fatal(err)
	}
	j, err := newJob(c)
	if err != nil {
		t.Fatal(err)
	}
	defer enter(workersOf(c.Plan))()
	r, err = newRunner(j, newSeats([]int{1 << 30, 1<<30 + 1}, workersOf(c.Plan), c.Cores, 1))
	if err != nil {
		t.Fatal(err)
	}
	if !r.x.seats.inTurn() {
		t.Fatalf("%d workers take no turns", workersOf(c.Plan))
	}
	failed := r.train(ctx)
	res, err := r.end()
	if err := errors.Join(err, j.close(), o.wrong, res.Timeline.Validate()); err != nil {
		t.Error(err)
	}
	if res.Leaked != 0 {
		t.Errorf("%d handles leaked", res.Leaked)
	}
	return res, o, failed
}

// delayed has messages and computations take random times.
func delayed(c Config, seed uint64) Config {
	g := rand.New(rand.NewPCG(seed, 51))
	c.Engine = slowEngine{Engine: c.Engine, seed: seed}
	c.Mesh = func(n int) (wire.Mesh, error) {
		return wire.NewShaped(n, func(from, to int) wire.Link {
			return wire.Link{Latency: time.Duration(g.IntN(300)) * time.Microsecond}
		})
	}
	return c
}

// Orders that nobody designed leave their bits where workers take turns, each worker's computations in its list's
// order; no seat is lost, nobody is left to wait who might go on.
func TestRandomProgramsRunInTurns(t *testing.T) {
	e := testEngine(t)
	var ran, owed, stood atomic.Int64
	eachSeed(t, cases(120, 2000), func(t *testing.T, seed uint64) {
		g := rand.New(rand.NewPCG(seed, 52))
		c, p, ok := randomProgram(t, e, g)
		if !ok || p.Workers <= 2 {
			return
		}
		if seed%4 != 0 {
			c = delayed(c, seed)
		}
		got, o, err := trainInTurns(t, t.Context(), c)
		if err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, p.Text())
		}
		ran.Add(1)
		owed.Add(int64(o.owed))
		stood.Add(int64(o.stood))
		sameAsSimulated(t, c, p, got, seed)
		takenInOrder(t, p, got, seed)
	})
	t.Logf("%d programs: %d messages owed, %d starts while somebody stood", ran.Load(), owed.Load(), stood.Load())
	if ran.Load() < 30 || owed.Load() < ran.Load() || stood.Load() < ran.Load() {
		t.Errorf("%d programs: %d messages owed, %d starts while somebody stood; more were meant", ran.Load(), owed.Load(), stood.Load())
	}
}

// takenInOrder compares a worker's computations and the messages it took, owed or not, with its list.
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

// inTurns is a random pipeline of three workers or more.
func inTurns(t testing.TB, g *rand.Rand) Config {
	for {
		if c := randomConfig(t, testEngine(t), g); len(c.Plan.Stages) > 2 {
			return c
		}
	}
}

// Updates that are taken back, whose Programs end in the middle.
func TestValidatedUpdatesInTurns(t *testing.T) {
	var sometimes atomic.Int64
	seeds := cases(16, 300)
	eachSeed(t, seeds, func(t *testing.T, seed uint64) {
		g := rand.New(rand.NewPCG(seed, 53))
		c := inTurns(t, g)
		c.Plan.Schedule, c.Plan.PostValidate = []string{"1f1b", "zb-h1", "zb-h2"}[seed%3], true
		for i := range c.Plan.Stages {
			c.Plan.Stages[i].Warmup = 0
		}
		c.Steps, c.Clip = 2+g.IntN(4), []float64{0.2, 0.5, 1}[g.IntN(3)]
		want, norms := sequentially(t, c, synchronous(c))
		got, _, err := trainInTurns(t, t.Context(), delayed(c, seed))
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if err := equalCase(c, want, got.Weights); err != nil || got.Steps != c.Steps {
			t.Fatalf("seed %d: %d steps: %v\n%+v", seed, got.Steps, err, *c.Plan)
		}
		if n := over(norms, c.Clip); n > 0 && n < c.Steps {
			sometimes.Add(1)
		}
	})
	if sometimes.Load() < int64(seeds/8) {
		t.Errorf("some norms were over the limit in %d cases", sometimes.Load())
	}
}

// cancelling ends a run at the n-th batch that is asked for, in the middle of whatever goes on.
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

// A run that is stopped anywhere has done whole steps, evaluations and checkpoints between them included, and goes
// on from there to the bits of one that was not.
func TestARunInTurnsIsStoppedAndResumed(t *testing.T) {
	var stopped atomic.Int64
	seeds := cases(10, 200)
	eachSeed(t, seeds, func(t *testing.T, seed uint64) {
		g := rand.New(rand.NewPCG(seed, 54))
		c := inTurns(t, g)
		c.Steps = 4 + g.IntN(5)
		want := reference(t, c)
		c = delayed(c, seed)
		c.Checkpoint = Checkpointing{Dir: t.TempDir(), Every: 1 + g.IntN(3)}
		c.EvalEvery, c.EvalRows = 1+g.IntN(3), 5
		c.Data.Test = c.Data.Train
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		left := new(atomic.Int64)
		left.Store(1 + g.Int64N(int64(c.Steps*c.Plan.MicroBatches)))
		first := c
		first.Data.Train = cancelling{c.Data.Train.(noise), left, cancel}
		got, _, err := trainInTurns(t, ctx, first)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if got.Stopped {
			stopped.Add(1)
			c.Resume = c.Checkpoint.Dir
			if got, _, err = trainInTurns(t, t.Context(), c); err != nil {
				t.Fatalf("seed %d: resumed: %v", seed, err)
			}
		}
		if err := equalCase(c, want, got.Weights); err != nil || got.Steps != c.Steps {
			t.Fatalf("seed %d: %d of %d steps: %v", seed, got.Steps, c.Steps, err)
		}
	})
	if stopped.Load() < int64(seeds/2) {
		t.Errorf("%d runs were stopped before their end", stopped.Load())
	}
}

// Pipelines side by side, with their reference.
func TestElasticInTurns(t *testing.T) {
	eachSeed(t, cases(10, 100), func(t *testing.T, seed uint64) {
		g := rand.New(rand.NewPCG(seed, 55))
		c := elasticConfig(t, g)
		if len(c.Plan.Stages) < 3 {
			return
		}
		got, _, err := trainInTurns(t, t.Context(), delayed(c, seed))
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if err := equalCase(c, got.Weights, averagedWeights(t, c)); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
	})
}

// thief is an engine one of whose devices takes only so many messages over.
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

// What fails when a message is taken ends the run, also where it was owed, and says who would have taken what.
func TestAMessageThatCannotBeTakenEndsARunInTurns(t *testing.T) {
	for worker := range 4 {
		for takes := range 4 {
			c := small(t, 4, 4)
			c.Engine = thief{Engine: c.Engine, worker: worker, takes: takes}
			_, _, err := trainInTurns(t, t.Context(), delayed(c, uint64(takes)))
			if !errors.Is(err, errStolen) || !strings.Contains(err.Error(), fmt.Sprintf("run: worker %d: %dR", worker, worker)) {
				t.Fatalf("worker %d after %d messages: %v", worker, takes, err)
			}
		}
	}
}

// sieve is a mesh that loses one message.
type sieve struct {
	*wire.Local
	lost wire.Tag
	once *sync.Once
}

func (s sieve) Endpoint(rank int) wire.Endpoint { return sieveEndpoint{s.Local.Endpoint(rank), s} }

type sieveEndpoint struct {
	wire.Endpoint
	of sieve
}

func (e sieveEndpoint) Send(to int, tag wire.Tag, m wire.Message) error {
	if tag == e.of.lost {
		e.of.once.Do(m.Release)
		return nil
	}
	return e.Endpoint.Send(to, tag, m)
}

// A stall report leads from worker to worker to the message that was lost, past those that workers owe.
func TestAStallInTurnsSaysWhoWaitsForWhat(t *testing.T) {
	c := small(t, 4, 2)
	c.Plan.MicroBatches = 4
	lost := schedule.Instruction{Kind: schedule.SB, Stage: 3, Micro: 2}
	c.StallAfter = 50 * time.Millisecond
	c.Mesh = func(n int) (wire.Mesh, error) {
		l, err := wire.NewLocal(n)
		return sieve{l, tagOf(lost, 1), new(sync.Once)}, err
	}
	_, o, err := trainInTurns(t, t.Context(), c)
	var stall *StallError
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
	for _, w := range o.x.workers {
		if w.seat != none {
			t.Errorf("worker %d has kept its seat", w.rank)
		}
	}
}
