package run

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/run/control"
	"github.com/millrace-ml/millrace/run/process"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/machine"
	"github.com/millrace-ml/millrace/wire"
	"github.com/millrace-ml/millrace/wire/pipe"
	"github.com/millrace-ml/millrace/wire/tcp"
)

// If a process's link breaks, the other processes end with an error that names it.
func TestALostProcessEndsTheOthers(t *testing.T) {
	c := small(t, 3, 1000)
	w := worlds{of: []int{0, 1, 2}, carriers: tcp.New, overTCP: true}
	cut := make(chan control.Link, 2)
	w.links = func(p int, l control.Link) { cut <- l }
	c.Hooks.OnStep = func(s StepReport) {
		if s.Step == 3 {
			(<-cut).Close() // the first link leads to process 2
		}
	}
	out := w.train(t.Context(), t, c)
	if err := out.errs[0]; err == nil || !strings.Contains(err.Error(), "rank 2 on host host2 is lost") {
		t.Error("leader: ", err)
	}
	if err := out.errs[1]; err == nil || !strings.Contains(err.Error(), "rank 2 on host host2 is lost") {
		t.Error("process 1: ", err)
	}
	if err := out.errs[2]; err == nil || !strings.Contains(err.Error(), "the leader (rank 0 on host host0) is lost") {
		t.Error("process 2: ", err)
	}
	for p, is := range []int{2, 2, 0} { // by process: the process that its error names
		var lost *control.LostError
		if err := out.errs[p]; !errors.As(err, &lost) || lost.Process != is || !strings.Contains(lost.Why, "closed") {
			t.Errorf("process %d knows of %+v as lost; want process %d", p, lost, is)
		}
	}
}

// If a process is lost, the others end even while their devices compute. The process that was cut off ends too, because
// it has lost the leader.
func TestWhoRunsEndsThoughADeviceComputes(t *testing.T) {
	for _, hangs := range []int{1, 2} {
		c, free := small(t, 3, 1000), make(chan struct{})
		w := worlds{of: []int{0, 1, 2}, carriers: pipe.New}
		cut := make(chan control.Link, 2)
		w.links = func(p int, l control.Link) { cut <- l }
		w.change = func(p int, c *Config) {
			if p == hangs {
				c.Engine = waitingEngine{c.Engine, 0, free} // 0: the process has one worker, which is number 0 in its engine
			}
		}
		time.AfterFunc(300*time.Millisecond, func() { (<-cut).Close() }) // the first link leads to process 2
		began := time.Now()
		out := w.train(t.Context(), t, c)
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("process %d hangs: it took %v", hangs, took)
		}
		close(free)
		says := fmt.Sprintf("run: rank %d on host host%d did not wait for its devices: ", hangs, hangs)
		for p, err := range out.errs {
			var lost *control.LostError
			if !errors.As(err, &lost) || lost.Process != []int{2, 2, 0}[p] ||
				strings.Contains(err.Error(), says) != (p == hangs) {
				t.Errorf("process %d hangs; process %d: %v", hangs, p, err)
			}
		}
	}
}

// breaking is a carrier that loses its connection to the worker `peer`. It lets `left` receives pass. After these it
// breaks at the first receive of a transfer from the peer, and no later transfer from the peer arrives.
type breaking struct {
	wire.Carrier
	peer int

	mu   sync.Mutex
	left int
}

func (b *breaking) Recv(e wire.Edge, n uint32, buffer *wire.Buffer, done func(error)) {
	b.mu.Lock()
	b.left--
	broken := b.left < 0 && e.From == b.peer && e.Class == wire.Transfers
	b.mu.Unlock()
	if broken {
		done(&wire.PeerError{Rank: b.peer, Err: io.EOF, Lost: true})
		return
	}
	b.Carrier.Recv(e, n, buffer, done)
}

// If worker 1 loses its connection to worker 2 before any Link breaks, the errors of all processes name the process of
// worker 2.
func TestAWorkersConnectionNamesTheProcess(t *testing.T) {
	c := small(t, 3, 1000)
	w := worlds{of: []int{0, 1, 2}, overTCP: true, carriers: func(workers int) ([]wire.Carrier, error) {
		all, err := tcp.New(workers)
		if err == nil {
			all[1] = &breaking{Carrier: all[1], peer: 2, left: 40}
		}
		return all, err
	}}
	for p, err := range w.train(t.Context(), t, c).errs {
		var lost *control.LostError
		if !errors.As(err, &lost) || lost.Process != 2 ||
			!strings.Contains(err.Error(), "rank 2 on host host2 is lost: worker 1: wire: worker 2 failed: EOF") {
			t.Errorf("process %d: %v", p, err)
		}
	}
}

// trickling is a carrier on which one message of another worker arrives late, although some of its bytes arrive all the
// time.
type trickling struct {
	wire.Carrier
	peer  int
	late  time.Duration
	once  sync.Once
	moved atomic.Int64
}

func (c *trickling) Moved() int64 {
	return c.Carrier.Moved() + c.moved.Load()
}

func (c *trickling) Recv(e wire.Edge, n uint32, b *wire.Buffer, done func(error)) {
	if e.From != c.peer || e.Class != wire.Transfers || n < 2 {
		c.Carrier.Recv(e, n, b, done)
		return
	}
	c.once.Do(func() {
		inner := done
		done = func(err error) {
			for began := time.Now(); time.Since(began) < c.late; time.Sleep(10 * time.Millisecond) {
				c.moved.Add(1)
			}
			inner(err)
		}
	})
	c.Carrier.Recv(e, n, b, done)
}

// If for longer than StallAfter nothing happens except that a long message is transferred, the run continues.
func TestALongMessageIsNoStall(t *testing.T) {
	c := small(t, 3, 3)
	want := train(t, c).Weights
	c.Watch.StallAfter = 300 * time.Millisecond
	w := worlds{of: []int{0, 1, 2}, carriers: func(workers int) ([]wire.Carrier, error) {
		all, err := pipe.New(workers)
		if err == nil {
			all[1] = &trickling{Carrier: all[1], peer: 2, late: 4 * c.Watch.StallAfter}
		}
		return all, err
	}}
	began := time.Now()
	if err := sameWeights(want, w.train(t.Context(), t, c).whole(t).Weights); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took < 4*c.Watch.StallAfter {
		t.Errorf("it took %v: no message came late", took)
	}
}

// In the waiting processes and in the leader, the error of a lost process says what workers were awaiting from it.
func TestWhatALostProcessOwedIsSaid(t *testing.T) {
	for name, want := range map[string]string{
		"pipeline": "; worker 1 had waited for 2SB0 of worker 2 for ", "dp": " had waited for 0AR0",
	} {
		c, free := small(t, 3, 1000), make(chan struct{})
		if name == "dp" {
			c.Plan = replicated(c.Plan, len(c.Model.Layers), 3)
		}
		w := worlds{of: []int{0, 1, 2}, carriers: pipe.New}
		cut := make(chan control.Link, 2)
		w.links = func(p int, l control.Link) { cut <- l }
		w.change = func(p int, c *Config) {
			if p == 2 {
				c.Engine = waitingEngine{c.Engine, 0, free}
			}
		}
		time.AfterFunc(300*time.Millisecond, func() {
			(<-cut).Close() // the first link leads to process 2
			close(free)
		})
		for p, err := range w.train(t.Context(), t, c).errs[:2] {
			var lost *control.LostError
			if !errors.As(err, &lost) || lost.Process != 2 || lost.Due == nil || lost.Due.Of != 2 || lost.Due.WaitedS < 0.2 ||
				!strings.Contains(err.Error(), want) || lost.Due.Stage != map[string]int{"pipeline": 2}[name] {
				t.Errorf("%s, process %d: %v", name, p, err)
			}
		}
	}
}

// A message that cannot be encoded is its sender's error and ends the run with the reason; no process is lost.
func TestAMessageThatCannotBeSentEndsTheRun(t *testing.T) {
	for by := range 3 {
		c := small(t, 3, 10)
		w := worlds{of: []int{0, 1, 2}, carriers: pipe.New}
		says := "run: the leader cannot be told: control: step: json: unsupported value: NaN"
		if by == 0 {
			says = fmt.Sprintf("bytes; a message has at most %d", control.MaxLine-1)
			w.cut = func(_ int, l control.Link) control.Link { return spoilt{l} }
		}
		w.change = func(p int, c *Config) {
			if p == by && p > 0 {
				c.Machine.World.Links = []control.Link{spoilt{c.Machine.World.Links[0]}}
			}
		}
		for p, err := range w.train(t.Context(), t, c).errs {
			if err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "lost") ||
				p != by && !strings.Contains(err.Error(), fmt.Sprintf("(rank %d on host host%d)", by, by)) {
				t.Errorf("process %d cannot say something; process %d: %v", by, p, err)
			}
		}
	}
}

// spoilt is a Link on which a Program is too long and a step's gradient norm is NaN.
type spoilt struct{ control.Link }

func (s spoilt) Send(m control.Message) error {
	switch body := m.Body.(type) {
	case control.Load:
		body.Program = strings.Repeat("p", control.MaxLine)
		m = control.Message{N: m.N, Epoch: m.Epoch, Body: body}
	case control.Step:
		body.Norm = math.NaN()
		m.Body = body
	}
	return s.Link.Send(m)
}

// The time that a process has for an order begins with the order, however long the leader was busy before.
func TestAnOrderIsOwedFromWhenItIsGiven(t *testing.T) {
	c := small(t, 3, 4)
	c.Watch.StallAfter, c.Checkpoint.Dir = time.Second, t.TempDir()
	c.Begin = func() error {
		time.Sleep(2 * c.Watch.StallAfter)
		return nil
	}
	worlds{of: []int{0, 1, 2}, carriers: pipe.New}.train(t.Context(), t, c).whole(t)
}

// noted is a Link that counts the Programs sent over it.
type noted struct {
	control.Link
	sent *atomic.Int64
}

func (n noted) Send(m control.Message) error {
	if _, is := m.Body.(control.Load); is {
		n.sent.Add(1)
	}
	return n.Link.Send(m)
}

// The other processes receive a Program before the leader's own process looks at it.
func TestOthersDoNotWaitForTheLeadersOwn(t *testing.T) {
	c := small(t, 3, 4)
	var sent, before atomic.Int64
	w := worlds{of: []int{0, 1, 2}, carriers: pipe.New,
		cut: func(_ int, l control.Link) control.Link { return noted{l, &sent} },
		change: func(p int, c *Config) {
			if p == 0 {
				c.decide = func(p *schedule.Program, mine []int, o machine.Options) (process.Gate, error) {
					before.Store(sent.Load())
					return machine.NewProcess(p, mine, o)
				}
			}
		}}
	w.train(t.Context(), t, c).whole(t)
	if n := before.Load(); n != 2 {
		t.Errorf("%d of 2 others had been sent the program as the leader's own process looked at it", n)
	}
}
