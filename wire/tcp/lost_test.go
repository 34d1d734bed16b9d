package tcp

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/wire"
	"github.com/millrace-ml/millrace/wire/tcp/memory"
)

// receiver returns worker 1, which waits for frames of worker 0. The test sends these frames by hand.
func receiver(t *testing.T) (c wire.Carrier, m *Conn, said chan error) {
	t.Helper()
	a, _ := listen(t, Config{Process: 0, limits: quick()})
	b, _ := listen(t, Config{Process: 1, limits: quick()})
	c = carriersOf(t, 1, a, b)[1]
	said = make(chan error, 1)
	c.Recv(wire.Edge{ID: 5, From: 0, To: 1}, 0, bufferOf(make([]byte, 8)), func(err error) { said <- err })
	return c, member(t, a, b, hello{service: frames, from: 0, to: 1, session: 1, streams: 1}), said
}

// TestAConnectionThatBreaks: if a connection to a worker breaks, the receives from this worker end, but only after some
// time. If Fail is called within that time, they end with Fail's reason.
func TestAConnectionThatBreaks(t *testing.T) {
	for name, breaks := range map[string]func(*Conn){
		"end":   func(m *Conn) { m.raw.Close() },
		"reset": func(m *Conn) { _ = m.raw.(*net.TCPConn).SetLinger(0); m.raw.Close() },
		"in the middle of a frame": func(m *Conn) {
			_, _ = m.Write(framesOf(5, []byte("12345678"))[:prefixBytes+3])
			m.raw.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, m, said := receiver(t)
			since := time.Now()
			breaks(m)
			err := errorOf(t, said, "the receive")
			var peer *wire.PeerError
			if !errors.As(err, &peer) || peer.Rank != 0 || !peer.Lost ||
				!strings.Contains(err.Error(), "tcp: its connection with worker 1, at 127.0.0.1:") {
				t.Error(err)
			}
			if took := time.Since(since); took < quick().grace {
				t.Errorf("it ended after %v", took)
			}
			c, m, said := receiver(t)
			breaks(m)
			why := errors.New("process 0 is lost")
			c.Fail(0, why)
			if err := errorOf(t, said, "the receive"); err != why {
				t.Errorf("%v; want what Fail said", err)
			}
		})
	}
}

// TestBytesThatMove: both ends see the progress of a long frame before it is complete.
func TestBytesThatMove(t *testing.T) {
	a, _ := listen(t, Config{Process: 0, limits: quick()})
	b, _ := listen(t, Config{Process: 1, limits: quick()})
	all := carriersOf(t, 1, a, b)
	defer closeAll(t, all)
	e, data := wire.Edge{ID: 5, From: 0, To: 1}, make([]byte, 64<<20) // more than the kernel's buffers hold
	sent, came := make(chan error, 2), make(chan error, 2)
	all[0].Send(1, e, 0, []*wire.Buffer{bufferOf(data)}, func(err error) { sent <- err })
	for since := time.Now(); all[0].Moved() == 0; time.Sleep(time.Millisecond) {
		if time.Since(since) > soon {
			t.Fatal("nothing goes")
		}
	}
	if gone := all[0].Moved(); len(sent) > 0 || gone >= int64(len(data)) {
		t.Errorf("%d bytes have gone though nobody takes them", gone)
	}
	c, m, said := receiver(t)
	long := make([]byte, 2*chunkBytes)
	c.Recv(wire.Edge{ID: 6, From: 0, To: 1}, 0, bufferOf(long), func(err error) { came <- err })
	if _, err := m.Write(framesOf(6, long)[:prefixBytes+chunkBytes]); err != nil {
		t.Fatal(err)
	}
	for since := time.Now(); c.Moved() == 0; time.Sleep(time.Millisecond) {
		if time.Since(since) > soon {
			t.Fatal("nothing comes")
		}
	}
	if n := c.Moved(); n != chunkBytes || len(came) > 0 {
		t.Errorf("%d bytes have come, and it is whole: %v", n, len(came) > 0)
	}
	m.leave()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err := errors.Join(errorOf(t, said, "a receive"), errorOf(t, came, "a receive")); !errors.Is(err, wire.ErrClosed) {
		t.Error(err)
	}
}

// TestLeaving: a worker that leaves in good order is not lost.
func TestLeaving(t *testing.T) {
	c, m, said := receiver(t)
	m.leave()
	select {
	case err := <-said:
		t.Error(err)
	case <-time.After(3 * quick().grace):
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err := errorOf(t, said, "the receive"); err != wire.ErrClosed {
		t.Error(err)
	}
}

// TestLeavingWhileOthersSend: a worker that closes its carrier while other workers still send to it leaves in good
// order.
func TestLeavingWhileOthersSend(t *testing.T) {
	a, _ := listen(t, Config{Process: 0, limits: quick()})
	b, _ := listen(t, Config{Process: 1, limits: quick()})
	all := carriersOf(t, 1, a, b)
	x := busy(t, all[0], all[1])
	x.goesOn(t)
	x.end()
	said := make(chan error, 1)
	for n := range uint32(100) { // more than the kernel's buffers hold; nobody receives it
		e := wire.Edge{ID: 9, From: 0, To: 1}
		all[0].Send(1, e, n, []*wire.Buffer{bufferOf(make([]byte, 1<<20))}, func(err error) {
			if n == 99 {
				said <- err
			}
		})
	}
	if err := all[1].Close(); err != nil {
		t.Error(err)
	}
	select {
	case err := <-said:
		t.Error(err)
	case <-time.After(3 * quick().grace):
	}
	closeAll(t, all[:1])
	if err := errorOf(t, said, "the send"); err != wire.ErrClosed {
		t.Error(err)
	}
}

// TestNobodyListens: a send to an address where nobody listens ends with an error that names the address.
func TestNobodyListens(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at, err := AddressOf(l.Addr().String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	short := quick()
	short.dial = 100 * time.Millisecond
	a, _ := listen(t, Config{limits: short})
	all, err := a.Carriers(1, []wire.Address{a.Address(), at}, []int{0}, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll(t, all[:1])
	said := make(chan error, 1)
	all[0].Send(1, wire.Edge{ID: 5, From: 0, To: 1}, 0, []*wire.Buffer{bufferOf(nil)}, func(err error) { said <- err })
	err = errorOf(t, said, "the send")
	var peer *wire.PeerError
	if !errors.As(err, &peer) || peer.Rank != 1 || !peer.Lost || !strings.Contains(err.Error(), "connection refused") ||
		!strings.Contains(err.Error(), l.Addr().String()) {
		t.Error(err)
	}
}

// TestAListenerThatSaysNothing: a worker is lost if its process accepts connections but never answers, like a stopped
// process.
func TestAListenerThatSaysNothing(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	at, err := AddressOf(l.Addr().String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]limits{
		"no time to dial":        {dial: 100 * time.Millisecond, handshake: time.Minute},
		"no time for handshakes": {dial: 300 * time.Millisecond, handshake: 50 * time.Millisecond},
	} {
		short := quick()
		short.dial, short.handshake = c.dial, c.handshake
		a, _ := listen(t, Config{limits: short})
		all, err := a.Carriers(1, []wire.Address{a.Address(), at}, []int{0}, 1)
		if err != nil {
			t.Fatal(err)
		}
		said := make(chan error, 1)
		all[0].Send(1, wire.Edge{ID: 5, From: 0, To: 1}, 0, []*wire.Buffer{bufferOf(nil)}, func(err error) { said <- err })
		err = errorOf(t, said, "the send")
		var peer *wire.PeerError
		if !errors.As(err, &peer) || peer.Rank != 1 || !peer.Lost {
			t.Errorf("%s: %v", name, err)
		}
		closeAll(t, all[:1])
	}
}

// TestASlowReceiverIsNotLost: a receiver that takes nothing for a long time, while its host answers, is not lost.
func TestASlowReceiverIsNotLost(t *testing.T) {
	t.Parallel()
	short := quick()
	short.silence, short.look = 200*time.Millisecond, 20*time.Millisecond
	a, _ := listen(t, Config{Process: 0, limits: short})
	b, _ := listen(t, Config{Process: 1, limits: short})
	all := carriersOf(t, 1, a, b)
	defer closeAll(t, all)
	const frames, size = 40, 1 << 20 // more than the kernel's buffers hold
	e := wire.Edge{ID: 5, From: 0, To: 1}
	said := make(chan error, 2*frames)
	for n := range uint32(frames) {
		all[0].Send(1, e, n, []*wire.Buffer{bufferOf(bytes.Repeat([]byte{byte(n)}, size))}, func(err error) { said <- err })
	}
	time.Sleep(time.Second)
	if n := len(said); n == frames {
		t.Fatalf("the kernel keeps %d frames", n)
	}
	for n := range uint32(frames) {
		all[1].Recv(e, n, bufferOf(make([]byte, size)), func(err error) { said <- err })
	}
	for range 2 * frames {
		if err := errorOf(t, said, "a frame"); err != nil {
			t.Fatal(err)
		}
	}
}

// TestReceivesEndInOrder: frames that streams deliver in another order still end in the order of their edge.
func TestReceivesEndInOrder(t *testing.T) {
	s := newSource()
	e := wire.Edge{ID: 5, From: 0, To: 1}
	data := [][]byte{bytes.Repeat([]byte{1}, chunkBytes+5), bytes.Repeat([]byte{2}, 3*chunkBytes), {3}}
	var mu sync.Mutex
	var order []int
	var got []*wire.Buffer
	for n := range data {
		got = append(got, bufferOf(make([]byte, len(data[n]))))
		s.post(e, uint32(n), got[n], func(err error) {
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Error(err)
			}
			order = append(order, n)
		})
	}
	var parts [][]byte // by chunk
	for n := range data {
		c := chunk{tag: wire.TagOf(1, 5, uint32(n)), total: int64(len(data[n]))}
		for ; int64(c.index) < chunksOf(c.total); c.index++ {
			begin, end := c.span()
			parts = append(parts, append(appendPrefix(nil, kindChunk, c), data[n][begin:end]...))
		}
	}
	for i := len(parts) - 1; i > 0; i-- {
		_ = s.read(said{Reader: bytes.NewReader(parts[i])}, memory.Proof{}, newTarget(usual.lent))
	}
	if len(order) > 0 {
		t.Errorf("%v ended in front of frame 0", order)
	}
	_ = s.read(said{Reader: bytes.NewReader(parts[0])}, memory.Proof{}, newTarget(usual.lent))
	if !slices.Equal(order, []int{0, 1, 2}) {
		t.Errorf("they ended in the order %v", order)
	}
	for n := range data {
		if !bytes.Equal(got[n].Data, data[n]) {
			t.Errorf("frame %d differs", n)
		}
	}
}

// TestWhatGoesFirst: the first stream takes credits first, then short frames, then long ones. The other streams take
// only long frames, in order.
func TestWhatGoesFirst(t *testing.T) {
	t1 := newTarget(usual.lent)
	all := t1.begin(2)
	post := func(class wire.Class, n uint32, size int) {
		t1.post(wire.Edge{Class: class}, uint64(n), []*wire.Buffer{bufferOf(make([]byte, size))}, func(error) {})
	}
	post(wire.Transfers, 0, 8)
	post(wire.Transfers, 1, 3*chunkBytes)
	post(wire.Transfers, 2, chunkBytes+1)
	post(wire.Credits, 3, 8)
	taken := func(w *stream) (text string) {
		for _, p := range w.take() {
			text += fmt.Sprintf("%d.%d ", p.of.tag, p.index)
		}
		w.written(nil)
		return text
	}
	for i, step := range []struct {
		stream int
		want   string
	}{{1, "1.0 "}, {0, "3.0 0.0 1.1 "}, {1, "1.2 "}, {1, "2.0 "}, {0, "2.1 "}} {
		if got := taken(all[step.stream]); got != step.want {
			t.Errorf("%d: stream %d takes %q; want %q", i, step.stream, got, step.want)
		}
	}
	post(wire.Transfers, 4, 8)
	t1.end(wire.ErrClosed)
	if got := all[0].take(); got != nil {
		t.Errorf("behind the end: %v", got)
	}
}

func TestDescribe(t *testing.T) {
	all, err := open(2, 1, Config{TLS: &TLS{}})
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll(t, all)
	there, back := wire.Edge{ID: 1, From: 0, To: 1}, wire.Edge{ID: 2, From: 1, To: 0}
	if got := all[0].Describe(there); !strings.Contains(got, "worker 0 to 1: TCP with TLS 1.3 at 127.0.0.1:") ||
		!strings.Contains(got, "not connected yet") {
		t.Error(got)
	}
	said := make(chan error, 2)
	all[0].Send(1, there, 0, []*wire.Buffer{bufferOf(nil)}, func(err error) { said <- err })
	all[1].Recv(there, 0, bufferOf(nil), func(err error) { said <- err })
	for range 2 {
		if err := errorOf(t, said, "a frame"); err != nil {
			t.Fatal(err)
		}
	}
	one, other := all[0].Describe(there), all[1].Describe(there)
	if !strings.Contains(one, " between 127.0.0.1:") || one == other || len(one) > 200 {
		t.Errorf("%s; %s", one, other)
	}
	if got := all[0].Describe(back); !strings.Contains(got, "worker 1 to 0: ") ||
		!strings.Contains(got, "not connected yet") {
		t.Error(got)
	}
}
