package run

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/run/checkpoint"
	"github.com/millrace-ml/millrace/run/control"
	"github.com/millrace-ml/millrace/run/process"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/machine"
	"github.com/millrace-ml/millrace/trace"
	"github.com/millrace-ml/millrace/wire/pipe"
)

// A run in several processes has the same result as a run in one process: weights, losses, evaluations, checkpoints and
// instructions. The weights are the same bit for bit. The test tries every family under every policy.
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
		c.Data.Test, c.Train.EvalRows = c.Data.Train, 7
		c.Train.EvalEvery, c.Checkpoint.Every = 3, 2
		if schedule.Policy(c.Plan.Weights).Served() { // both runs must make updates in the same order
			c.Train.Replay = train(t, c).Timeline.Applied
		}
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
		// Then resume from the checkpoint of step 2, in other processes.
		c.Resume.At, c.Train.Steps, c.Checkpoint.Dir = filepath.Join(c.Checkpoint.Dir, "step-00000002"), steps, ""
		resumed := in(g, workers, 2+g.IntN(workers-1)).train(t.Context(), t, c).whole(t)
		if err := sameWeights(alone.Weights, resumed.Weights); err != nil {
			t.Fatalf("%s in processes %v, resumed: %v", f.name, w.of, err)
		}
	})
}

// sameCheckpoint compares two checkpoints: their files with checksums, their updates, losses and samples. Each must
// have all of its model's parameters.
func sameCheckpoint(a, b string) error {
	for _, path := range []string{a, b} {
		seen, err := checkpoint.Inspect(path)
		if err != nil {
			return err
		}
		if wrong := seen[0].Verify(); len(wrong) > 0 || seen[0].Manifest.Parameters == nil {
			return fmt.Errorf("%s: %q", path, wrong)
		}
	}
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
	for i := range y.Files {
		y.Files[i].Host = ""
	}
	if !slices.Equal(x.Files, y.Files) || !maps.Equal(x.Updates, y.Updates) || x.Loss != y.Loss || x.Samples != y.Samples {
		return fmt.Errorf("checkpoints\n%+v, and\n%+v", x, y)
	}
	return nil
}

// A run in several processes that is stopped anywhere, through the leader or another process, ends after the same
// step everywhere.
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
			t.Fatalf("%s in processes %v, stopped at %d of process %d: %d steps in groups of %d", f.name, w.of, at, by, n,
				f.period)
		}
		shorter := f.config
		shorter.Train.Steps, shorter.Train.Replay = n, got.Timeline.Applied
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

// An error in any process ends all of them. Each reports the error and where it occurred, and no process is left
// waiting.
func TestAnErrorInOneProcessEndsAll(t *testing.T) {
	why := errors.New("the device is on fire")
	for worker := range 3 {
		c := small(t, 3, 50)
		c.Class = func(err error) string { return fmt.Sprint(errors.Is(err, why)) }
		w := worlds{of: []int{0, 1, 2}, carriers: pipe.New}
		w.change = func(p int, c *Config) {
			if p == worker {
				c.Engine = badEngine{Engine: c.Engine, worker: 0, after: 20, do: func() error { return why }}
			}
		}
		out := w.train(t.Context(), t, c)
		for p, err := range out.errs {
			if err == nil || !strings.Contains(err.Error(), why.Error()) ||
				!strings.Contains(err.Error(), fmt.Sprintf("worker %d", worker)) {
				t.Errorf("worker %d fails; process %d: %v", worker, p, err)
			}
			if here := p == worker; err != nil && errors.Is(err, why) != here || !here &&
				!strings.Contains(err.Error(), fmt.Sprintf("rank %d on host host%d", worker, worker)) {
				t.Errorf("worker %d fails; process %d does not say where: %v", worker, p, err)
			}
			var failed *control.Failed
			if errors.As(err, &failed) != (p != worker) || failed != nil && failed.Class != "true" {
				t.Errorf("worker %d fails; process %d has it of the class of %+v", worker, p, failed)
			}
		}
		if out.results[0].Steps >= 50 {
			t.Error(out.results[0].Steps)
		}
	}
	// The class of an error is known in all processes.
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

// A stall report covers all processes: each worker is followed by the worker that it waits for, whichever process has
// it.
func TestAStallIsToldAcrossProcesses(t *testing.T) {
	c := small(t, 4, 2)
	c.Plan.MicroBatches, c.Watch.StallAfter = 4, time.Second // StallAfter also bounds the start of a process
	w := worlds{of: []int{0, 1, 1, 2},
		carriers: cutting(func(in schedule.Instruction) bool { return in.Kind == schedule.SB && in.Stage == 3 })}
	for p, err := range w.train(t.Context(), t, c).errs {
		if err == nil {
			t.Fatalf("process %d sees nothing wrong", p)
		}
		text := err.Error()
		at := -1
		for _, says := range []string{
			"has stalled: nothing has happened for",
			"worker 0 (rank 0 on host host0) cannot start 0RB0: 1SB0 from worker 1 (rank 1 on host host1) has not " +
				"arrived; it has waited for",
			"worker 1 (rank 1 on host host1) cannot start 1RB0: 2SB0 from worker 2 (rank 1 on host host1) has not arrived",
			"worker 2 (rank 1 on host host1) cannot start 2RB0: 3SB0 from worker 3 (rank 2 on host host2) has not arrived",
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

// While a device hangs, the run reports across processes which workers wait for it, and since when.
func TestAHangIsToldAcrossProcesses(t *testing.T) {
	c, free := small(t, 3, 4), make(chan struct{})
	c.Watch.StallAfter = time.Second
	var said []string
	c.Hooks.OnQuiet = func(_ time.Duration, chain []string) {
		if said == nil {
			said = chain
			close(free)
		}
	}
	w := worlds{of: []int{0, 1, 2}, carriers: pipe.New}
	w.change = func(p int, c *Config) {
		if p == 2 {
			c.Engine = badEngine{Engine: c.Engine, worker: 0, after: 3, do: func() error { <-free; return errors.New("free") }}
		}
	}
	w.train(t.Context(), t, c)
	if len(said) != 3 {
		t.Fatalf("said %q", said)
	}
	micro := 0
	const says = "worker 2 (rank 2 on host host2) is at 2B%d; it has been there for 1"
	if _, err := fmt.Sscanf(said[2], says, &micro); err != nil || micro < 1 {
		t.Errorf("said %q", said)
	}
	for k, line := range said[:2] {
		if says := fmt.Sprintf("from worker %d (rank %d on host host%d) has not arrived; it has waited for ", k+1, k+1,
			k+1); !strings.Contains(line, says) || !strings.HasPrefix(line, fmt.Sprintf("worker %d (rank %d on ", k, k)) {
			t.Errorf("said %q, want something about %q", line, says)
		}
	}
}

// The record is on the leader's clock, though another process's clock began earlier. The computations of a step lie
// within its mark. A message may seem to arrive before it is sent, but by at most the clocks' error. That is far less
// than the difference of the clocks.
func TestClocksOfProcessesAreBroughtTogether(t *testing.T) {
	const apart = 300 * time.Millisecond
	c := small(t, 3, 4)
	c.Keep.Steps = 3
	w := worlds{of: []int{0, 1, 1}, carriers: pipe.New}
	w.change = func(p int, _ *Config) {
		if p == 0 { // the leader begins last
			time.Sleep(apart)
		}
	}
	tl := w.train(t.Context(), t, c).whole(t).Timeline
	if len(tl.Processes) != 2 || !slices.Equal(tl.Places, []trace.Place{{}, {Process: 1}, {Process: 1, Device: 1}}) ||
		tl.Processes[0] != (trace.Process{Host: "host0"}) || tl.Processes[1].Host != "host1" {
		t.Fatalf("%+v of %+v", tl.Places, tl.Processes)
	}
	within := tl.WithinS(0, 2)
	if off := -tl.Processes[1].OffsetS; off < apart.Seconds()-0.1 || off > apart.Seconds()+0.25 || within <= 0 ||
		within > 0.05 || tl.WithinS(1, 2) != 0 || tl.ErrorS() != within {
		t.Fatalf("the clock is %v s off, within %v s", off, within)
	}
	left := map[string]float64{}
	for _, e := range tl.Events {
		if e.Kind == "SF" || e.Kind == "SB" {
			left[e.Instruction] = e.StartS
		}
	}
	came := 0
	for _, e := range tl.Events {
		f, _ := trace.ParseFields(e.Instruction)
		sent := map[string]string{"RF": fmt.Sprintf("%dSF%d", f.Stage-1, f.Micro),
			"RB": fmt.Sprintf("%dSB%d", f.Stage+1, f.Micro)}[e.Kind]
		if sent == "" {
			continue
		}
		at, known := left[sent]
		if came++; !known || e.StartS < at-within {
			t.Errorf("%s was sent at %v s and taken at %v s; the clocks agree within %v s", sent, at, e.StartS, within)
		}
	}
	marks := map[int]trace.StepMark{}
	for _, m := range tl.Steps {
		marks[m.Step] = m
	}
	for _, e := range tl.Events {
		if m := marks[e.Step]; trace.OfStep(&e) && (e.StartS < m.StartS || e.EndS > m.EndS) {
			t.Errorf("%s is from %v to %v s, and its step from %v to %v s", e.Instruction, e.StartS, e.EndS, m.StartS, m.EndS)
		}
	}
	if came == 0 {
		t.Error("no message is recorded")
	}
}

func TestWorldsAreChecked(t *testing.T) {
	a, b := control.Pair()
	two := []process.Location{{Process: 0}, {Process: 1}}
	for says, w := range map[string]process.World{
		"a world of 1 workers; the plan has 2":                       {Workers: two[:1]},
		"worker 1 is in process 2":                                   {Workers: []process.Location{{}, {Process: 2}}},
		"worker 1 is in process 1 on device 0; processes are 0 to 0": {Workers: two, Hosts: []string{"a"}},
		"process 1: the host's name \"a\\x1b[2J\"": {Workers: two, Hosts: []string{"a", "a\x1b[2J"},
			Links: []control.Link{nil, a}},
		"on device -1":                              {Workers: []process.Location{{}, {Device: -1}}},
		"this is process 2 of 2":                    {Workers: two, Rank: 2, Links: []control.Link{a}},
		"process 0 has 1 links; 2 are wanted":       {Workers: two, Links: []control.Link{a}},
		"process 1 has 2 links; 1 are wanted":       {Workers: two, Rank: 1, Links: []control.Link{a, b}},
		"link 0 of process 0 is missing, or to its": {Workers: two, Links: []control.Link{a, b}},
		"link 1 of process 0 is missing":            {Workers: two, Links: []control.Link{nil, nil}},
		"process 0 has 2 links; 1 are wanted":       {Workers: make([]process.Location, 2), Links: []control.Link{nil, a}},
	} {
		c := small(t, 2, 1)
		c.Machine.World = &w
		if err := c.Check(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v; want something about %q", err, says)
		}
	}
}
