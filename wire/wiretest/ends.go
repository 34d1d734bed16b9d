package wiretest

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/wire"
)

// ending posts sends and receives, ends the carriers in some way, and expects that every `done` is called exactly once.
func ending(t *testing.T, open Maker, end func([]wire.Carrier) error, want error) {
	points := []struct {
		name        string
		sends, recv int // number of posted frames
	}{{"idle", 0, 0}, {"a send", 1, 0}, {"a receive", 0, 1}, {"after one", 1, 1}, {"between", 3, 1},
		{"many sends", 20, 1}, {"many receives", 1, 20}}
	for _, p := range points {
		t.Run(p.name, func(t *testing.T) {
			all := carriers(t, open, 2)
			var left sync.WaitGroup
			var calls atomic.Int32
			var wrong atomic.Value
			done := func(err error) {
				calls.Add(1)
				if err != nil && !errors.Is(err, want) {
					wrong.Store(err)
				}
				left.Done()
			}
			left.Add(p.sends + p.recv)
			for n := range p.recv {
				b := bufferOf(random(9, 1<<18))
				if all[1].HandsOver(0) {
					b.Data = nil
				}
				all[1].Recv(edge, uint32(n), &b, done)
			}
			for n := range p.sends {
				b := bufferOf(random(uint64(n), 1<<18)) // more than a pipe holds
				all[0].Send(1, edge, uint32(n), []*wire.Buffer{&b}, done)
			}
			start := time.Now()
			if err := end(all); err != nil {
				t.Error(err)
			}
			wait(t, signal(left.Wait), "the end of what was posted")
			if took := time.Since(start); took > 2*time.Second {
				t.Errorf("it took %v", took)
			}
			late := make(chan error, 2)
			b := bufferOf(random(1, 8))
			all[0].Send(1, edge, 99, []*wire.Buffer{&b}, func(err error) { late <- err })
			if err := wait(t, late, "a late send"); !errors.Is(err, want) {
				t.Errorf("a send behind the end: %v", err)
			}
			all[1].Recv(edge, 99, &b, func(err error) { late <- err })
			if err := wait(t, late, "a late receive"); !errors.Is(err, want) {
				t.Errorf("a receive behind the end: %v", err)
			}
			closeAll(t, all)
			if err := wrong.Load(); err != nil {
				t.Error(err)
			}
			if n := int(calls.Load()); n != p.sends+p.recv {
				t.Errorf("%d posts ended %d times", p.sends+p.recv, n)
			}
		})
	}
}

func failsAtEveryPoint(t *testing.T, open Maker) {
	why := errors.New("the power went out")
	ending(t, open, func(all []wire.Carrier) error {
		all[0].Fail(1, why)
		all[1].Fail(0, why)
		return nil
	}, why)
}

func closesAtEveryPoint(t *testing.T, open Maker) {
	ending(t, open, func(all []wire.Carrier) error { return errors.Join(all[0].Close(), all[1].Close()) }, wire.ErrClosed)
}

// closeWaits checks that no `done` of a carrier's frames runs any more, on any goroutine, when Close returns.
func closeWaits(t *testing.T, open Maker) {
	for me := range 2 { // the carrier that is closed: the sender's or the receiver's
		all := carriers(t, open, 2)
		telling, goOn := make(chan struct{}), make(chan struct{})
		said := [2]func(error){func(error) {}, func(error) {}}
		said[me] = func(error) {
			close(telling)
			<-goOn
		}
		a, b := bufferOf(random(1, 8)), bufferOf(random(2, 8))
		post := [2]func(){
			func() { all[0].Send(1, edge, 0, []*wire.Buffer{&a}, said[0]) }, func() { all[1].Recv(edge, 0, &b, said[1]) },
		}
		post[me]()
		other := signal(post[1-me])
		wait(t, telling, "a frame")
		closed := signal(func() {
			if err := all[me].Close(); err != nil {
				t.Error(err)
			}
		})
		select {
		case <-closed:
			t.Errorf("worker %d: it is closed while a frame of its own is told", me)
		case <-time.After(10 * time.Millisecond):
		}
		close(goOn)
		wait(t, closed, "the end of the carrier")
		wait(t, other, "the other worker's post")
		closeAll(t, all)
	}
}

// badFrames checks that a frame that cannot be read ends its port, and that the port reports why, once.
func badFrames(t *testing.T, open Maker) {
	transfers := wire.Edge{ID: 3, From: 1, To: 0}
	for _, c := range []struct {
		name string
		edge wire.Edge
		data []byte
		says string
	}{
		{"a short header", wire.Edge{ID: 7, From: 0, To: 1}, random(1, 20), "20 bytes"},
		{"no header", wire.Edge{ID: 7, From: 0, To: 1}, make([]byte, wire.HeaderBytes), ""},
		{"a short credit", wire.Edge{ID: 8, From: 0, To: 1, Class: wire.Credits}, random(1, 5), "5 bytes"},
		{"credits for no edge", wire.Edge{ID: 9, From: 2, To: 1, Class: wire.Credits},
			[]byte{0, 0, 0, 1, 1, 0, 0, 0}, "edge 16777216 from worker 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			all := carriers(t, open, 3)
			broken := make(chan error, 2)
			port, err := wire.NewPort(all[1], wire.Config{Broken: func(err error) { broken <- err }})
			if err != nil {
				t.Fatal(err)
			}
			port.Open([]wire.Edge{transfers, c.edge})
			b := bufferOf(c.data)
			all[c.edge.From].Send(1, c.edge, 0, []*wire.Buffer{&b}, func(error) {})
			if err := wait(t, broken, "the end of the port"); !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v; want something about %q", err, c.says)
			}
			if err := port.Send(transfers, 1, 0, nil, nil); err == nil {
				t.Error("it goes on")
			}
			if err := port.Close(); err != nil || len(broken) > 0 {
				t.Errorf("closed with %v, broken %d times more", err, len(broken))
			}
			closeAll(t, []wire.Carrier{all[0], all[2]})
		})
	}
}

// badMessages checks that a message that cannot be sent is refused and freed, and that the port still works.
func badMessages(t *testing.T, open Maker) {
	w := newWorld(t, open, 2, 0)
	e := w.edge(0, 1)
	w.Begin(1, w.table.Edges())()
	closed := wire.Edge{ID: 99, From: 0, To: 1}
	of := func(change func(*wire.Buffer)) wire.Buffer {
		b := bufferOf(random(1, 8))
		change(&b)
		return b
	}
	cases := []struct {
		name string
		edge wire.Edge
		b    wire.Buffer
		says string
	}{
		{"an edge that is not open", closed, of(func(*wire.Buffer) {}), "edge 99 to worker 1, which is not open"},
		{"no type", e, of(func(b *wire.Buffer) { b.DType = 77 }), "type 77"},
		{"a negative length", e, of(func(b *wire.Buffer) { b.Shape = []int64{-8} }), "shape [-8]"},
		{"more bytes than there are", e, of(func(b *wire.Buffer) { b.Shape = []int64{1 << 41} }), "is over"},
	}
	if !w.Port(0).HandsOver(1) {
		cases = append(cases, []struct {
			name string
			edge wire.Edge
			b    wire.Buffer
			says string
		}{
			{"memory of a device", e, of(func(b *wire.Buffer) { b.Place.Memory = wire.Device }), "does not take device memory"},
			{"less memory than it says", e, of(func(b *wire.Buffer) { b.Data = b.Data[:5] }), "has 5 bytes of memory"},
		}...)
	}
	for _, c := range cases {
		o := &owner{}
		c.b.Owner = o
		err := w.Port(0).Send(c.edge, 1, 0, []wire.Buffer{c.b}, func(error) { t.Errorf("%s: it is done", c.name) })
		if err == nil || !strings.Contains(err.Error(), c.says) || o.freed.Load() != 1 {
			t.Errorf("%s: %v, freed %d times; want something about %q", c.name, err, o.freed.Load(), c.says)
		}
	}
	if _, err := w.Port(1).Receive(t.Context(), closed); err == nil {
		t.Error("it receives on an edge that is not open")
	}
	if err := w.Port(0).Send(e, 5, 0, nil, nil); err != nil {
		t.Error(err)
	}
	if a := wait(t, w.came, "the next message"); a.Key != 5 {
		t.Errorf("message %d has come", a.Key)
	}
	w.close()
}

// ill is an event of failed device work.
type ill struct{ why error }

func (ill) Done() bool    { return false }
func (i ill) Wait() error { return i.why }

// failedEvents checks that failed device work on a buffer ends the port, that the port reports why, and that the buffer
// is freed once.
func failedEvents(t *testing.T, open Maker) {
	w := newWorld(t, open, 2, 0)
	e := w.edge(0, 1)
	w.Begin(1, w.table.Edges())()
	why := errors.New("an index out of range")
	b, o := bufferOf(random(1, 8)), &owner{}
	b.Ready, b.Owner = ill{why}, o
	ended := make(chan error, 1)
	if err := w.Port(0).Send(e, 1, 0, []wire.Buffer{b}, func(err error) { ended <- err }); err != nil {
		t.Fatal(err)
	}
	if err := wait(t, w.broken, "the end of the port"); !errors.Is(err, why) {
		t.Errorf("the port ends with %v", err)
	}
	if err := wait(t, ended, "the end of the message"); !errors.Is(err, why) {
		t.Errorf("the message ends with %v", err)
	}
	w.close()
	if n := o.freed.Load(); n != 1 {
		t.Errorf("it is freed %d times", n)
	}
}

// failure checks that once a peer has failed, all ports end with a PeerError. The `done` of every message is called,
// and every buffer is freed exactly once.
func failure(t *testing.T, open Maker) {
	why := errors.New("out of memory")
	w := newWorld(t, open, 3, 1)
	var edges []wire.Edge
	for from := range 3 {
		for to := range 3 {
			if from != to {
				edges = append(edges, w.edge(from, to))
			}
		}
	}
	w.Begin(1, w.table.Edges())()
	var owners []*owner
	var done sync.WaitGroup
	for k := range uint64(60) { // most of these messages have no slot
		e := edges[int(k)%len(edges)]
		b, o := bufferOf(random(k, 3000)), &owner{}
		b.Owner = o
		owners = append(owners, o)
		done.Add(1)
		if err := w.Port(e.From).Send(e, k, 0, []wire.Buffer{b}, func(error) { done.Done() }); err != nil {
			t.Fatal(err)
		}
	}
	start := time.Now()
	w.Fail(2, why)
	w.Fail(1, errors.New("too late to be the first"))
	var peer *wire.PeerError
	for rank := range 3 {
		if err := w.Port(rank).Err(); !errors.As(err, &peer) || peer.Rank != 2 || !errors.Is(err, why) {
			t.Errorf("port %d: %v", rank, err)
		}
		if err := w.Port(rank).Send(w.edge(rank, (rank+1)%3), 99, 0, nil, nil); !errors.Is(err, why) {
			t.Errorf("a send behind the failure: %v", err)
		}
	}
	if took := time.Since(start); took > 2*time.Second {
		t.Errorf("it took %v", took)
	}
	w.close()
	wait(t, signal(done.Wait), "the senders")
	for i, o := range owners {
		if n := o.freed.Load(); n != 1 {
			t.Errorf("buffer %d was freed %d times", i, n)
		}
	}
}

// whatNobodyTook checks that Close frees all messages that nobody took. They have arrived, wait for a slot, or are on
// their way.
func whatNobodyTook(t *testing.T, open Maker) {
	w := newWorld(t, open, 2, 2)
	e := w.edge(0, 1)
	w.Begin(1, w.table.Edges())()
	var owners []*owner
	var ended atomic.Int32
	for k := range uint64(8) {
		b, o := bufferOf(random(k, 300_000)), &owner{}
		b.Owner = o
		owners = append(owners, o)
		if err := w.Port(0).Send(e, k, 0, []wire.Buffer{b}, func(error) { ended.Add(1) }); err != nil {
			t.Fatal(err)
		}
	}
	wait(t, w.came, "the first")
	w.close()
	if err := w.Port(0).Send(e, 9, 0, nil, nil); !errors.Is(err, wire.ErrClosed) {
		t.Error(err)
	}
	for i, o := range owners {
		if n := o.freed.Load(); n != 1 {
			t.Errorf("buffer %d was freed %d times", i, n)
		}
	}
	if n := ended.Load(); n != 8 {
		t.Errorf("%d of 8 senders were told", n)
	}
}
