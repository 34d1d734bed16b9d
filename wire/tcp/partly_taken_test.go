package tcp

import (
	"bytes"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"testing"

	"github.com/millrace-ml/millrace/wire"
	"github.com/millrace-ml/millrace/wire/tcp/memory"
)

// stubborn returns a target with a stream over a pipe, and both ends of the pipe.
func stubborn(t *testing.T) (to *target, near, far net.Conn) {
	t.Helper()
	near, far = net.Pipe()
	to = newTarget(usual.lent)
	w := to.begin(1)[0]
	w.conn = &Conn{Conn: near, raw: near, e: &Endpoint{conns: map[*Conn]struct{}{}}}
	var over sync.WaitGroup
	over.Go(func() { _ = w.run() })
	t.Cleanup(func() {
		to.end(wire.ErrClosed)
		near.Close()
		far.Close()
		over.Wait()
	})
	return to, near, far
}

// TestWhatIsNotTakenAtOnceFollows: if only a part of a frame is written immediately, the rest follows before any other
// frame. After that, the frame's `done` is called.
func TestWhatIsNotTakenAtOnceFollows(t *testing.T) {
	for seed := range uint64(30) {
		g := rand.New(rand.NewPCG(seed, 9))
		to, near, far := stubborn(t)
		to.streams[0].now = func(b []byte) int {
			n := len(b)
			if g.IntN(2) == 0 {
				n = g.IntN(len(b))
			}
			_, _ = near.Write(b[:n])
			return n
		}
		s, e := newSource(), wire.Edge{ID: 3}
		go func() { _ = s.read(far, memory.Proof{}, newTarget(usual.lent)) }()
		var all, got [][]byte
		done, came := make(chan error, 64), make(chan error, 64)
		for n := range uint32(20) {
			data := bytes.Repeat([]byte{byte(n)}, g.IntN(3*nowBytes/2))
			room := bufferOf(make([]byte, len(data)))
			all, got = append(all, data), append(got, room.Data)
			s.post(e, n, room, func(err error) { came <- err })
			to.post(e, wire.TagOf(0, e.ID, n), []*wire.Buffer{bufferOf(data)}, func(err error) { done <- err })
			if n%3 == 0 {
				continue // the next frame comes while this frame is being written
			}
			if err := errorOf(t, done, "the end of a send"); err != nil {
				t.Fatal(err)
			}
		}
		for range all {
			if err := errorOf(t, came, "a frame"); err != nil {
				t.Fatal(err)
			}
		}
		if !slices.EqualFunc(all, got, bytes.Equal) {
			t.Fatalf("seed %d: other bytes have come", seed)
		}
	}
}

// TestCreditsGoWithTheAnswer: credits are held back while the worker is told of a message. If the worker answers, they
// are sent just before its answer. Otherwise they are sent alone.
func TestCreditsGoWithTheAnswer(t *testing.T) {
	var writes []int
	to, _, _ := stubborn(t)
	to.streams[0].now = func(b []byte) int {
		writes = append(writes, len(b))
		return len(b)
	}
	post := func(class wire.Class, size int) {
		to.post(wire.Edge{Class: class}, 0, []*wire.Buffer{bufferOf(make([]byte, size))}, func(error) {})
	}
	to.hold()
	post(wire.Credits, 8)
	if len(writes) > 0 {
		t.Fatalf("a credit went alone: %v", writes)
	}
	post(wire.Transfers, 100)
	to.release()
	to.hold()
	post(wire.Credits, 8)
	to.release()
	post(wire.Credits, 8)
	if want := []int{2*prefixBytes + 108, prefixBytes + 8, prefixBytes + 8}; !slices.Equal(writes, want) {
		t.Errorf("writes of %v bytes; want %v", writes, want)
	}
}
