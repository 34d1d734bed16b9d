package run

import (
	"runtime"
	"runtime/metrics"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace-ml/millrace/wire"
)

// elsewhere is a carrier of another process.
type elsewhere struct {
	wire.Carrier
	rank int
}

func (c elsewhere) Rank() int             { return c.rank }
func (c elsewhere) Address() wire.Address { return wire.Address{Engine: "fake", Version: "1"} }

// fakeHub is the memory through which carriers copy frames.
type fakeHub struct {
	frames atomic.Int64
	mu     sync.Mutex
	lanes  map[fakeEdge]*fakeLane
}

func newFakeHub() *fakeHub { return &fakeHub{lanes: map[fakeEdge]*fakeLane{}} }

type fakeEdge struct {
	from, to int
	id       uint32
}

// fakeLane is an edge, with frames that one side has posted and the other has not.
type fakeLane struct {
	mu     sync.Mutex
	posted [2][]fakePost // sends, receives
}

type fakePost struct {
	b    *wire.Buffer
	done func(error)
}

// fakeCarrier copies bytes to the receiver's memory as soon as both sides have posted, like a carrier between
// processes but without a network.
type fakeCarrier struct {
	elsewhere
	wire.Refusals
	hub   *fakeHub
	mu    sync.Mutex
	lanes map[*fakeLane]int // by lane: the side of this worker
}

func (c *fakeCarrier) Connect(int, wire.Address) error { return nil }
func (c *fakeCarrier) Takes(int, wire.Place) bool      { return true }
func (c *fakeCarrier) HandsOver(int) bool              { return false }
func (c *fakeCarrier) Moved() int64                    { return 0 }

func (c *fakeCarrier) Send(_ uint32, e wire.Edge, _ uint32, frames []*wire.Buffer, done func(error)) {
	c.hub.frames.Add(int64(len(frames)))
	done = wire.Once(len(frames), done)
	for _, b := range frames {
		c.post(e, e.To, 0, fakePost{b, done})
	}
}

func (c *fakeCarrier) Recv(e wire.Edge, _ uint32, b *wire.Buffer, done func(error)) {
	c.post(e, e.From, 1, fakePost{b, done})
}

func (c *fakeCarrier) post(e wire.Edge, peer, side int, own fakePost) {
	at := fakeEdge{e.From, e.To, e.ID}
	c.hub.mu.Lock()
	l := c.hub.lanes[at]
	if l == nil {
		l = &fakeLane{}
		c.hub.lanes[at] = l
	}
	c.hub.mu.Unlock()
	c.mu.Lock()
	if c.lanes == nil {
		c.lanes = map[*fakeLane]int{}
	}
	c.lanes[l] = side
	c.mu.Unlock()
	l.mu.Lock()
	if err := c.Refusal(peer); err != nil {
		l.mu.Unlock()
		own.done(err)
		return
	}
	if len(l.posted[1-side]) == 0 {
		l.posted[side] = append(l.posted[side], own)
		l.mu.Unlock()
		return
	}
	var sides [2]fakePost
	sides[side], sides[1-side] = own, l.posted[1-side][0]
	l.posted[1-side] = slices.Delete(l.posted[1-side], 0, 1)
	l.mu.Unlock()
	var err error
	if sent, room := len(sides[0].b.Data), len(sides[1].b.Data); sent != room {
		err = &wire.LengthError{Edge: e, Sent: int64(sent), Room: int64(room)}
	}
	copy(sides[1].b.Data, sides[0].b.Data)
	sides[1].done(err)
	sides[0].done(err)
}

func (c *fakeCarrier) Fail(rank int, err error) { c.Refuse(rank, err) }

func (c *fakeCarrier) Close() error {
	c.RefuseAll()
	c.mu.Lock()
	lanes := c.lanes
	c.lanes = nil
	c.mu.Unlock()
	for l, side := range lanes {
		l.mu.Lock()
		left := l.posted[side]
		l.posted[side] = nil
		l.mu.Unlock()
		for _, p := range left {
			p.done(wire.ErrClosed)
		}
	}
	return nil
}

// watchMemory samples the memory in use until the function that it returns is called. This function returns the
// greatest increase of live heap and stacks, in bytes.
func watchMemory() func() uint64 {
	use := func() uint64 {
		s := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"}}
		metrics.Read(s)
		return s[0].Value.Uint64() + s[1].Value.Uint64()
	}
	runtime.GC()
	before := use()
	stop, most := make(chan struct{}), make(chan uint64)
	go func() {
		peak := before
		for {
			select {
			case <-stop:
				most <- max(peak, use()) - before
				return
			case <-time.After(5 * time.Millisecond):
				peak = max(peak, use())
			}
		}
	}()
	return func() uint64 { close(stop); return <-most }
}
