package run

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"net"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/run/checkpoint"
	"github.com/millrace-ml/millrace/run/control"
	"github.com/millrace-ml/millrace/run/process"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/machine"
	"github.com/millrace-ml/millrace/trace"
	"github.com/millrace-ml/millrace/wire"
	"github.com/millrace-ml/millrace/wire/pipe"
)

// worlds is a run in several processes, all of this binary: they share nothing but connections, over which they
// control one another in lines of JSON, and carriers that copy bytes through pipes.
type worlds struct {
	of       []int // the process of each worker
	carriers func(workers int) ([]wire.Carrier, error)
	offsets  []float64
	asks     int                                  // the process that is told when the run is to stop
	change   func(process int, c *Config)         // what is another in one process; nil: nothing
	links    func(process int, link control.Link) // told of the leader's ends; nil: nobody
}

// outcome is what all processes return.
type outcome struct {
	results []*Result
	errs    []error
}

// in puts every worker in a process; each has one at least.
func in(g *rand.Rand, workers, processes int) worlds {
	of := make([]int, workers)
	for k := range of {
		of[k] = g.IntN(processes)
	}
	for p, k := range g.Perm(workers)[:processes] {
		of[k] = p
	}
	return worlds{of: of, carriers: pipe.New}
}

func (w worlds) train(ctx context.Context, t testing.TB, c Config) outcome {
	t.Helper()
	n := slices.Max(w.of) + 1
	carriers, err := w.carriers(len(w.of))
	if err != nil {
		t.Fatal(err)
	}
	c.Carriers = func(int) ([]wire.Carrier, error) { return carriers, nil }
	places, devices := make([]process.Location, len(w.of)), make([]int, n)
	for k, p := range w.of {
		places[k] = process.Location{Host: fmt.Sprintf("host%d", p), Process: p, Device: devices[p]}
		devices[p]++
	}
	leader := make([]control.Link, n)
	out := outcome{results: make([]*Result, n), errs: make([]error, n)}
	var all sync.WaitGroup
	for p := n - 1; p >= 0; p-- {
		one := c
		one.World = &process.World{Rank: p, Workers: places, OffsetS: w.offsets, Links: leader}
		if p > 0 {
			x, y := net.Pipe()
			leader[p] = control.Over(x)
			one.World.Links = []control.Link{control.Over(y)}
			if w.links != nil {
				w.links(p, leader[p])
			}
			one.Hooks, one.Next, one.Begin = Hooks{}, nil, nil // the leader's business
		}
		if w.change != nil {
			w.change(p, &one)
		}
		all.Go(func() {
			of := context.Background()
			if p == w.asks {
				of = ctx
			}
			out.results[p], out.errs[p] = Train(of, one)
		})
	}
	all.Wait()
	return out
}

// whole is the leader's Result with the weights of all processes.
func (o outcome) whole(t testing.TB) *Result {
	t.Helper()
	if err := errors.Join(o.errs...); err != nil {
		t.Fatal(err)
	}
	res := o.results[0]
	for p, one := range o.results {
		for name, x := range one.Weights {
			if _, twice := res.Weights[name]; twice && p > 0 {
				t.Fatalf("two processes leave %s", name)
			}
			if res.Weights == nil {
				res.Weights = map[string]process.Weight{}
			}
			res.Weights[name] = x
		}
		if p > 0 && one.Leaked > 0 {
			t.Fatalf("process %d leaves %d handles open", p, one.Leaked)
		}
	}
	return res
}

// did is which instructions each worker executed in which step.
func did(tl *trace.Timeline) map[string]int {
	all := map[string]int{}
	for _, e := range tl.Events {
		all[fmt.Sprintf("%d %s %d", e.Worker, e.Instruction, e.Step)]++
	}
	return all
}

// sameRun compares what a run in several processes leaves with what it leaves in one.
func sameRun(alone, apart *Result) error {
	a, b := &alone.Timeline, &apart.Timeline
	switch {
	case alone.Steps != apart.Steps || alone.Loss != apart.Loss || apart.Leaked != 0:
		return fmt.Errorf("%d steps to a loss of %v, and %d to %v, with %d handles leaked", alone.Steps, alone.Loss, apart.Steps, apart.Loss, apart.Leaked)
	case !slices.Equal(a.Losses, b.Losses):
		return fmt.Errorf("losses\n%v, and\n%v", a.Losses, b.Losses)
	case !reflect.DeepEqual(a.Evaluations, b.Evaluations):
		return fmt.Errorf("evaluations\n%v, and\n%v", a.Evaluations, b.Evaluations)
	case !slices.Equal(a.PeakActivations, b.PeakActivations):
		return fmt.Errorf("%v micro-batches held, and %v", a.PeakActivations, b.PeakActivations)
	case len(a.Steps) != len(b.Steps) || len(b.Computed) != len(b.Steps) || len(b.PeakBytes) != b.Workers || slices.Min(b.PeakBytes) <= 0:
		return fmt.Errorf("%d steps marked, and %d; busy of %d steps, peaks %v", len(a.Steps), len(b.Steps), len(b.Computed), b.PeakBytes)
	case !maps.Equal(did(a), did(b)):
		return fmt.Errorf("instructions\n%v, and\n%v", did(a), did(b))
	}
	if err := b.Validate(); err != nil {
		return err
	}
	return sameWeights(alone.Weights, apart.Weights)
}

// A run in several processes leaves the bits, the losses, the evaluations, the checkpoints and the instructions of one
// in a single process, for every family under every policy.
func TestProcessesLeaveWhatOneLeaves(t *testing.T) {
	const steps = 4
	all := everyFamily(t, steps)
	eachSeed(t, uint64(len(all)), func(t *testing.T, i uint64) {
		f := all[i]
		g := rand.New(rand.NewPCG(i, 81))
		if soaked(0) == 0 && g.IntN(10) > 0 {
			return
		}
		c := f.config
		c.Data.Test, c.EvalRows = c.Data.Train, 7
		c.EvalEvery, c.Checkpoint.Every = 3, 2
		c.Checkpoint.Dir = t.TempDir()
		alone := train(t, c)
		workers := len(c.Plan.Devices())
		if workers == 1 {
			return
		}
		w := in(g, workers, 2+g.IntN(workers-1))
		before := c.Checkpoint.Dir
		c.Checkpoint.Dir = t.TempDir()
		apart := w.train(t.Context(), t, c).whole(t)
		if err := sameRun(alone, apart); err != nil {
			t.Fatalf("%s in processes %v: %v", f.name, w.of, err)
		}
		for step := 2; step <= steps; step += 2 {
			name := fmt.Sprintf("step-%08d", step)
			if err := sameCheckpoint(filepath.Join(before, name), filepath.Join(c.Checkpoint.Dir, name)); err != nil {
				t.Fatalf("%s in processes %v: %v", f.name, w.of, err)
			}
		}
		// And on from there, in other processes.
		c.Resume, c.Steps, c.Checkpoint.Dir = filepath.Join(c.Checkpoint.Dir, "step-00000002"), steps, ""
		resumed := in(g, workers, 2+g.IntN(workers-1)).train(t.Context(), t, c).whole(t)
		if err := sameWeights(alone.Weights, resumed.Weights); err != nil {
			t.Fatalf("%s in processes %v, resumed: %v", f.name, w.of, err)
		}
	})
}

// sameCheckpoint compares the files of two checkpoints by their checksums, and what their manifests say.
func sameCheckpoint(a, b string) error {
	one, err := checkpoint.Open(a)
	if err != nil {
		return err
	}
	defer one.Close()
	other, err := checkpoint.Open(b)
	if err != nil {
		return err
	}
	defer other.Close()
	x, y := one.Manifest, other.Manifest
	if !slices.Equal(x.Files, y.Files) || !maps.Equal(x.Updates, y.Updates) || x.Loss != y.Loss || x.Samples != y.Samples {
		return fmt.Errorf("checkpoints\n%+v, and\n%+v", x, y)
	}
	return nil
}

// A run in several processes that is to stop anywhere, because the leader is asked or another process, ends behind the
// same step everywhere.
func TestProcessesStopTogether(t *testing.T) {
	const steps = 6
	stopped := 0
	all := everyFamily(t, steps)
	g := rand.New(rand.NewPCG(1, 82))
	for range soakedTimes(6, 400) {
		f := all[g.IntN(len(all))]
		workers := len(f.config.Plan.Devices())
		if workers == 1 {
			continue
		}
		w := in(g, workers, 2+g.IntN(workers-1))
		w.asks = g.IntN(slices.Max(w.of) + 1)
		by, at := g.IntN(slices.Max(w.of)+1), 1+g.IntN(max(1, f.instructions/len(w.of)))
		ctx, cancel := context.WithCancel(t.Context())
		w.change = func(p int, c *Config) {
			if p == by {
				*c = startsOf(*c, func(n int) {
					if n == at {
						cancel()
					}
				})
			}
		}
		got := w.train(ctx, t, f.config).whole(t)
		cancel()
		n := got.Steps
		if n < 1 || n != steps && n%f.period != 0 || got.Stopped != (n < steps) {
			t.Fatalf("%s in processes %v, stopped at %d of process %d: %d steps in groups of %d", f.name, w.of, at, by, n, f.period)
		}
		shorter := f.config
		shorter.Steps = n
		if err := sameWeights(train(t, shorter).Weights, got.Weights); err != nil {
			t.Fatalf("%s in processes %v, stopped at %d of process %d, behind %d steps: %v", f.name, w.of, at, by, n, err)
		}
		if got.Stopped {
			stopped++
		}
	}
	if stopped < 2 {
		t.Errorf("%d runs were cut short", stopped)
	}
}

func soakedTimes(few, many int) int {
	if soaked(0) > 0 {
		return many
	}
	return few
}

// A process that is to stop asks the leader to stop the run.
func TestAnyProcessMayAskToStop(t *testing.T) {
	c := small(t, 3, 1000)
	w := worlds{of: []int{0, 1, 2}, carriers: pipe.New, asks: 2}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c.Hooks.OnStep = func(s StepReport) {
		if s.Step == 3 {
			cancel()
		}
	}
	got := w.train(ctx, t, c).whole(t)
	if !got.Stopped || got.Steps < 4 || got.Steps > 999 {
		t.Errorf("%d steps; stopped: %v", got.Steps, got.Stopped)
	}
}

// An error in any process ends all of them, and each says what it was and where; nobody is left to wait.
func TestAnErrorInOneProcessEndsAll(t *testing.T) {
	why := errors.New("the device is on fire")
	for worker := range 3 {
		c := small(t, 3, 50)
		w := worlds{of: []int{0, 1, 2}, carriers: pipe.New}
		w.change = func(p int, c *Config) {
			if p == worker {
				c.Engine = badEngine{Engine: c.Engine, worker: 0, after: 20, do: func() error { return why }}
			}
		}
		out := w.train(t.Context(), t, c)
		for p, err := range out.errs {
			if err == nil || !strings.Contains(err.Error(), why.Error()) || !strings.Contains(err.Error(), fmt.Sprintf("worker %d", worker)) {
				t.Errorf("worker %d fails; process %d: %v", worker, p, err)
			}
			if here := p == worker; err != nil && errors.Is(err, why) != here || !here && !strings.Contains(err.Error(), fmt.Sprintf("process %d on host host%d", worker, worker)) {
				t.Errorf("worker %d fails; process %d does not say where: %v", worker, p, err)
			}
		}
		if out.results[0].Steps >= 50 {
			t.Error(out.results[0].Steps)
		}
	}
	// What it is an error of is known everywhere.
	c := small(t, 3, 8)
	c.Data.Train = poisoned{c.Data.Train.(noise), 5}
	w := worlds{of: []int{0, 1, 1}, carriers: pipe.New}
	for p, err := range w.train(t.Context(), t, c).errs {
		var loss *process.LossError
		if !errors.Is(err, process.ErrNotFinite) || errors.As(err, &loss) != (p == 1) {
			t.Errorf("process %d: %v", p, err)
		}
	}
}

// A process that nobody hears of any more ends the others, which say which one it was.
func TestALostProcessEndsTheOthers(t *testing.T) {
	c := small(t, 3, 1000)
	w := worlds{of: []int{0, 1, 2}, carriers: pipe.New}
	cut := make(chan control.Link, 2)
	w.links = func(p int, l control.Link) { cut <- l }
	c.Hooks.OnStep = func(s StepReport) {
		if s.Step == 3 {
			(<-cut).Close() // process 2's, which was made first
		}
	}
	out := w.train(t.Context(), t, c)
	if err := out.errs[0]; err == nil || !strings.Contains(err.Error(), "process 2 on host host2 is lost") {
		t.Error("leader: ", err)
	}
	if err := out.errs[1]; err == nil || !strings.Contains(err.Error(), "process 2 on host host2 is lost") {
		t.Error("process 1: ", err)
	}
	if err := out.errs[2]; err == nil || !strings.Contains(err.Error(), "the leader is lost") {
		t.Error("process 2: ", err)
	}
}

// A stall is told across processes: each worker is followed by the one that it waits for, wherever that is.
func TestAStallIsToldAcrossProcesses(t *testing.T) {
	c := small(t, 4, 2)
	c.Plan.MicroBatches, c.StallAfter = 4, 100*time.Millisecond
	w := worlds{of: []int{0, 1, 1, 2}, carriers: cutting(func(in schedule.Instruction) bool { return in.Kind == schedule.SB && in.Stage == 3 })}
	for p, err := range w.train(t.Context(), t, c).errs {
		if err == nil {
			t.Fatalf("process %d sees nothing wrong", p)
		}
		text := err.Error()
		at := -1
		for _, says := range []string{
			"has stalled: nothing has happened for", "worker 0 cannot start 0RB0: 1SB0 from worker 1 has not arrived; it has waited for",
			"worker 1 cannot start 1RB0: 2SB0 from worker 2 has not arrived", "worker 2 cannot start 2RB0: 3SB0 from worker 3 has not arrived",
		} {
			if next := strings.Index(text, says); next <= at {
				t.Fatalf("process %d says nothing about %q behind what went before:\n%s", p, says, text)
			} else {
				at = next
			}
		}
		var stall *machine.StallError
		if errors.As(err, &stall) != (p == 0) {
			t.Errorf("process %d: %T", p, err)
		}
	}
}

// The record is on the leader's clock: the other's differs by what the world says.
func TestClocksOfProcessesAreBroughtTogether(t *testing.T) {
	c := small(t, 2, 3)
	c.KeepSteps = 3
	w := worlds{of: []int{0, 1}, carriers: pipe.New, offsets: []float64{7, 1007}}
	tl := w.train(t.Context(), t, c).whole(t).Timeline
	first := []float64{math.Inf(1), math.Inf(1)}
	for _, e := range tl.Events {
		first[e.Worker] = min(first[e.Worker], e.StartS)
	}
	if d := first[1] - first[0]; d < 1000 || d > 1010 {
		t.Errorf("the first events of the workers are %v s apart", d)
	}
	for _, m := range tl.Steps {
		if took := m.EndS - m.StartS; took < 990 || took > 1010 {
			t.Errorf("step %d took %v s", m.Step, took)
		}
	}
}

func TestWorldsAreChecked(t *testing.T) {
	a, b := control.Pair()
	two := []process.Location{{Process: 0}, {Process: 1}}
	for says, w := range map[string]process.World{
		"a world of 1 workers; the plan has 2":      {Workers: two[:1]},
		"worker 1 is in process 2":                  {Workers: []process.Location{{}, {Process: 2}}},
		"process 0 of 2 has no workers":             {Workers: []process.Location{{Process: 1}, {Process: 1}}},
		"on device -1":                              {Workers: []process.Location{{}, {Device: -1}}},
		"this is process 2 of 2":                    {Workers: two, Rank: 2, Links: []control.Link{a}},
		"3 clocks for 2 processes":                  {Workers: two, OffsetS: make([]float64, 3), Links: []control.Link{nil, a}},
		"process 0 has 1 links; 2 are wanted":       {Workers: two, Links: []control.Link{a}},
		"process 1 has 2 links; 1 are wanted":       {Workers: two, Rank: 1, Links: []control.Link{a, b}},
		"link 0 of process 0 is missing, or to its": {Workers: two, Links: []control.Link{a, b}},
		"link 1 of process 0 is missing":            {Workers: two, Links: []control.Link{nil, nil}},
	} {
		c := small(t, 2, 1)
		c.World = &w
		if err := c.Check(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v; want something about %q", err, says)
		}
	}
}
