package run

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/run/control"
	"github.com/millrace-ml/millrace/run/process"
	"github.com/millrace-ml/millrace/wire"
	"github.com/millrace-ml/millrace/wire/pipe"
)

// deafLink delivers a limited number of sent messages and then none. Messages of the other end still arrive.
type deafLink struct {
	control.Link
	left    atomic.Int64
	deliver func(control.Message, error)
}

var errDeaf = errors.New("nobody listens")

func (l *deafLink) Start(deliver func(control.Message, error)) {
	l.deliver = deliver
	l.Link.Start(deliver)
}

func (l *deafLink) Send(m control.Message) error {
	switch left := l.left.Add(-1); {
	case left >= 0:
		return l.Link.Send(m)
	case left == -1:
		l.deliver(control.Message{}, errDeaf)
	}
	return nil
}

// A process that receives nothing any more is lost. The others still receive everything in order and leave.
func TestAProcessThatCannotBeToldEndsTheOthers(t *testing.T) {
	for after := range int64(4) {
		c := small(t, 3, 10)
		c.Data.Test, c.Train.EvalEvery = c.Data.Train, 1
		c.Train.EvalRows = 4
		w := worlds{of: []int{0, 1, 2}, carriers: pipe.New}
		w.change = func(p int, c *Config) {
			if p == 0 {
				deaf := &deafLink{Link: c.Machine.World.Links[1]}
				deaf.left.Store(after)
				c.Machine.World.Links[1] = deaf
			}
		}
		out := w.train(t.Context(), t, c)
		if err := out.errs[0]; !errors.Is(err, errDeaf) || !strings.Contains(err.Error(), "rank 1 on host host1 is lost") {
			t.Errorf("leader, behind %d messages: %v", after, err)
		}
		if err := out.errs[2]; err == nil || !strings.Contains(err.Error(), "rank 1 on host host1 is lost") {
			t.Errorf("process 2, behind %d messages: %v", after, err)
		}
		if err := out.errs[1]; err == nil || !strings.Contains(err.Error(), "the leader (rank 0 on host host0) is lost") {
			t.Errorf("process 1, behind %d messages: %v", after, err)
		}
	}
}

// closeLink is a Link that calls `closed` when the leader closes it. That is the last thing that the leader does.
type closeLink struct {
	control.Link
	closed func()
}

func (l closeLink) Close() error {
	l.closed()
	return l.Link.Close()
}

// hungEngine's devices open, or close, only once a channel is closed.
type hungEngine struct {
	engine.Engine
	open, close <-chan struct{}
}

func (e hungEngine) Open(worker, threads int) (engine.Device, error) {
	<-e.open
	d, err := e.Engine.Open(worker, threads)
	return hungDevice{d, e}, err
}

type hungDevice struct {
	engine.Device
	of hungEngine
}

func (d hungDevice) Close() int {
	<-d.of.close
	return d.Device.Close()
}

// If a process hangs with its link open, while it opens its devices or while it leaves, the run gives it up. The error
// names it and says what it has not done. If it hangs while leaving, the other processes leave normally.
func TestAHungProcessIsGivenUp(t *testing.T) {
	free := make(chan struct{})
	close(free)
	for _, leaves := range []bool{false, true} {
		c := small(t, 3, 5)
		c.Keep.Steps, c.Watch.StallAfter = 5, 500*time.Millisecond
		given := make(chan struct{})
		w := worlds{of: []int{0, 1, 2}, carriers: pipe.New}
		w.change = func(p int, c *Config) {
			switch {
			case p == 0:
				c.Machine.World.Links[1] = closeLink{c.Machine.World.Links[1], sync.OnceFunc(func() { close(given) })}
			case p == 1 && leaves:
				c.Engine = hungEngine{c.Engine, free, given}
			case p == 1:
				c.Engine = hungEngine{c.Engine, given, free}
			}
		}
		out := w.train(t.Context(), t, c)
		res, says, steps := out.results[0], "said that it is ready", 0
		if leaves {
			says, steps = "left", 5
		}
		var lost *control.LostError
		if !errors.As(out.errs[0], &lost) || lost.Process != 1 {
			t.Errorf("%v is of %+v", out.errs[0], lost)
		}
		within := " within "
		if !leaves {
			within = ", and nothing has happened there for 500ms"
		}
		says = "run: rank 1 on host host1 is lost: it has not " + says + within
		if err := out.errs[0]; err == nil || !strings.Contains(err.Error(), says) || res.Steps != steps {
			t.Errorf("leader, behind %d steps: %v; want %q", res.Steps, err, says)
		}
		if err := out.errs[1]; !leaves && (!errors.As(err, &lost) || lost.Process != 1) {
			t.Errorf("process 1: %v", err)
		}
		if err := out.errs[2]; leaves && err != nil || !leaves && (err == nil || !strings.Contains(err.Error(), says)) {
			t.Errorf("process 2: %v", err)
		}
		of := map[int]int{}
		for _, e := range res.Timeline.Events {
			of[e.Worker]++
		}
		if len(res.PeakBytes) != 3 || leaves && (of[0] == 0 || of[1] != 0 || of[2] == 0) {
			t.Errorf("events by worker: %v; peaks %v", of, res.PeakBytes)
		}
	}
}

// If a device of the leader's own process hangs, the run still ends. Its error names the worker and has the earlier
// error, if there was one.
func TestAHungDeviceOfTheLeaderDoesNotHideTheEnd(t *testing.T) {
	free, why := make(chan struct{}), errors.New("the device is on fire")
	close(free)
	for name, spoil := range map[string]func(c *Config, given <-chan struct{}) (says []string){
		"closing": func(c *Config, given <-chan struct{}) []string {
			c.Engine = hungEngine{c.Engine, free, given}
			return []string{"its workers are done, and something that they began is not"}
		},
		"opening": func(c *Config, given <-chan struct{}) []string {
			c.Engine = hungEngine{c.Engine, given, free}
			return []string{"behind the beginning of the run", "worker 0 is still in front of its first instruction"}
		},
		"opening beside one that does not open": func(c *Config, given <-chan struct{}) []string {
			c.Engine = closedEngine{hungEngine{c.Engine, given, free}}
			return []string{"there is no device 2", "worker 1 is still in front of its first instruction"}
		},
		"computing beside one that fails": func(c *Config, given <-chan struct{}) []string {
			hangs := make(chan struct{})
			c.Engine = badEngine{Engine: c.Engine, worker: 2, after: 4, do: func() error { close(hangs); <-given; return why }}
			c.Engine = badEngine{Engine: c.Engine, worker: 0, after: 0, do: func() error { <-hangs; return why }}
			return []string{why.Error(), "worker 2 is still at 2B"}
		},
	} {
		c, given := small(t, 3, 5), make(chan struct{})
		c.Watch.StallAfter = 500 * time.Millisecond
		says := append(spoil(&c, given), "run: a device of rank 0 hangs: ")
		res, err := Train(t.Context(), c)
		close(given)
		for _, text := range says {
			if err == nil || !strings.Contains(err.Error(), text) {
				t.Errorf("%s: %v; want something about %q", name, err, text)
			}
		}
		if done := name == "closing"; done != (res.Steps == 5) || len(res.PeakBytes) != 3 || done != (res.PeakBytes[1] > 0) {
			t.Errorf("%s: %d steps, peaks %v", name, res.Steps, res.PeakBytes)
		}
	}
}

// waitingEngine is an engine where one worker's device waits before a backward until a channel is closed.
type waitingEngine struct {
	engine.Engine
	worker int
	free   <-chan struct{}
}

func (e waitingEngine) Open(worker, threads int) (engine.Device, error) {
	d, err := e.Engine.Open(worker, threads)
	if worker != e.worker {
		return d, err
	}
	return waitingDevice{d, e}, err
}

type waitingDevice struct {
	engine.Device
	of waitingEngine
}

func (d waitingDevice) Backward(outputs, grads []engine.Tensor) error {
	<-d.of.free
	return d.Device.Backward(outputs, grads)
}

// If nothing happens in a run because a device computes for long, the run reports that repeatedly. It continues when
// the device does.
func TestARunSaysThatADeviceTakesLong(t *testing.T) {
	whole := train(t, small(t, 3, 2))
	for name, of := range map[string][]int{"one process": {0, 0, 0}, "three": {0, 1, 2}} {
		c, free := small(t, 3, 2), make(chan struct{})
		c.Watch.StallAfter = 300 * time.Millisecond
		var said [][]string
		c.Hooks.OnQuiet = func(quiet time.Duration, chain []string) {
			if quiet < 300*time.Millisecond*time.Duration(len(said)+1) {
				t.Errorf("%s: told a %d. time behind %v", name, len(said)+1, quiet)
			}
			if said = append(said, chain); len(said) == 2 {
				close(free)
			}
		}
		w := worlds{of: of, carriers: pipe.New}
		w.change = func(p int, c *Config) {
			if p == of[1] {
				c.Engine = waitingEngine{c.Engine, c.Machine.World.Workers[1].Device, free}
			}
		}
		if err := sameWeights(whole.Weights, w.train(t.Context(), t, c).whole(t).Weights); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, chain := range said {
			if i := slices.IndexFunc(chain, func(line string) bool {
				return strings.HasPrefix(line, "worker 1 (") && strings.Contains(line, ") is at 1B0; it has been there for ")
			}); len(said) != 2 || len(chain) != 3 || i < 0 {
				t.Errorf("%s: said %q", name, said)
			}
		}
	}
}

// If a run is told to stop while a device hangs, it ends and names the device.
func TestADeviceThatHangsDoesNotKeepARunFromStopping(t *testing.T) {
	for name, of := range map[string][]int{"one process": {0, 0, 0}, "three": {0, 1, 2}} {
		c, free := small(t, 3, 1000), make(chan struct{})
		c.Watch.StallAfter = 300 * time.Millisecond
		ctx, cancel := context.WithCancel(t.Context())
		c.Hooks.OnQuiet = func(time.Duration, []string) { cancel() }
		w := worlds{of: of, carriers: pipe.New}
		w.change = func(p int, c *Config) {
			if p == of[1] {
				c.Engine = waitingEngine{c.Engine, c.Machine.World.Workers[1].Device, free}
			}
		}
		began := time.Now()
		out := w.train(ctx, t, c)
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("%s: it took %v", name, took)
		}
		close(free)
		cancel()
		for p, err := range out.errs {
			if err == nil || !strings.Contains(err.Error(), "was told to stop, and nothing has happened for") ||
				!strings.Contains(err.Error(), ") is at 1B0; it has been there for") {
				t.Errorf("%s, process %d: %v", name, p, err)
			}
		}
	}
}

// A process whose part is refused before it begins tells the others why, so that they do not wait for it.
func TestARefusedProcessEndsTheOthers(t *testing.T) {
	says := map[string]string{"settings": "-1 cores", "checkpoint": "there is no ", "carriers": "no port is left"}
	for name, spoil := range map[string]func(c *Config){
		"carriers": func(c *Config) {
			c.Wire.Carriers = func(int) ([]wire.Carrier, error) { return nil, errors.New("no port is left") }
		},
		"settings":   func(c *Config) { c.Machine.Cores = -1 },
		"checkpoint": func(c *Config) { c.Resume.At = filepath.Join(t.TempDir(), "none") },
	} {
		for refused := range 3 {
			c := small(t, 3, 10)
			w := worlds{of: []int{0, 1, 2}, carriers: pipe.New}
			w.change = func(p int, c *Config) {
				if p == refused {
					spoil(c)
				}
			}
			for p, err := range w.train(t.Context(), t, c).errs {
				if err == nil || !strings.Contains(err.Error(), says[name]) || strings.Contains(err.Error(), "is lost") {
					t.Errorf("%s of process %d; process %d: %v", name, refused, p, err)
				}
			}
		}
	}
}

// If an order hangs in the leader's own process, for instance on a disk, the error does not blame a device.
func TestTheLeaderSaysWhatHangs(t *testing.T) {
	l := &leader{job: &process.Job{World: process.Alone(1)}, state: control.NewLeader(1, 1)}
	if _, err := l.state.Receive(control.Message{N: 1, Body: control.Ready{}}); err != nil {
		t.Fatal(err)
	}
	l.state.Order(control.Prune{})
	l.giveUp([]int{0}, time.Minute, "it has not carried out a prune")
	if err := l.silence.hung; err == nil || err.Error() != "run: rank 0 hangs: it has not carried out a prune" {
		t.Error(err)
	}
}

// stubbornLink is a Link whose other end reads nothing any more: the first Close waits until the second.
type stubbornLink struct {
	control.Link
	times *atomic.Int32
	cut   chan struct{}
}

func (l stubbornLink) Close() error {
	if l.times.Add(1) > 1 {
		close(l.cut)
		return l.Link.Close()
	}
	<-l.cut
	return nil
}

// If a process is lost, the leader does not wait for another process that reads nothing any more.
func TestTheLeaderCutsOffWhoTakesNothing(t *testing.T) {
	c, cut := small(t, 3, 1000), make(chan control.Link, 2)
	w := worlds{of: []int{0, 1, 2}, carriers: pipe.New, links: func(p int, l control.Link) { cut <- l }}
	w.change = func(p int, c *Config) {
		if p == 0 {
			c.Machine.World.Links[1] = stubbornLink{c.Machine.World.Links[1], new(atomic.Int32), make(chan struct{})}
		}
	}
	time.AfterFunc(300*time.Millisecond, func() { (<-cut).Close() }) // the first link leads to process 2
	began := time.Now()
	for p, err := range w.train(t.Context(), t, c).errs {
		if err == nil {
			t.Errorf("process %d has not failed", p)
		}
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
}
