package tcp

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/wire"
)

// member returns a connection of a worker made by hand: it knows the token, and sends whatever the test wants.
func member(t testing.TB, e, to *Endpoint, h hello) *Conn {
	t.Helper()
	c, err := e.dial(t.Context(), to.at, h)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// TestMembersThatSendWhatIsWrong: a worker sends bytes that are not a frame, or a wrong frame. Sends and receives with
// this worker end at once. Those with other workers continue.
func TestMembersThatSendWhatIsWrong(t *testing.T) {
	part := func(index uint32, total int64, n uint32) []byte {
		return appendPrefix(nil, kindChunk, chunk{tag: wire.TagOf(1, 5, n), total: total, index: index})
	}
	whole := func(n uint32) []byte { return append(part(0, 8, n), 1, 2, 3, 4, 5, 6, 7, 8) }
	damaged := part(0, 8, 0)
	damaged[20]++
	large := part(0, 1<<40+1, 0)
	long := make([]byte, chunkBytes)
	for name, c := range map[string]struct {
		says string
		text []byte
		room int
	}{
		"garbage":        {"is no frame", bytes.Repeat([]byte{0xff}, 100), 8},
		"damaged":        {"is no frame", damaged, 8},
		"oversize":       {"a frame of 1099511627777 bytes; it has at most 1099511627776", large, 8},
		"beyond its end": {"chunk 1 of a frame of 8 bytes, which has 1", part(1, 8, 0), 8},
		"another kind":   {"a frame of kind 8", appendPrefix(nil, 8, chunk{}), 8},
		"another length": {"to worker 1 has 9 bytes; the receive posted for it has 8", part(0, 9, 0), 8},
		"said again":     {"frame 0 of edge 5 comes where 1 is due", append(whole(0), whole(0)...), 8},
		"said twice": {"chunk 0 of frame 0 of edge 5 comes twice",
			slices.Concat(part(0, 2*chunkBytes, 0), long, part(0, 2*chunkBytes, 0)), 2 * chunkBytes},
		"a farewell, odd": {"a frame of kind 2", appendPrefix(nil, kindLeave, chunk{index: 1}), 8},
	} {
		t.Run(name, func(t *testing.T) {
			bad, _ := listen(t, Config{Process: 0, limits: quick()})
			b, _ := listen(t, Config{Process: 1, limits: quick()})
			good, _ := listen(t, Config{Process: 2, limits: quick()})
			all := carriersOf(t, 1, bad, b, good)
			defer closeAll(t, all)
			x := busy(t, all[2], all[1])
			defer x.end()
			said := make(chan error, 3)
			e := wire.Edge{ID: 5, From: 0, To: 1}
			for n := range uint32(3) {
				all[1].Recv(e, n, bufferOf(make([]byte, c.room)), func(err error) {
					if err != nil {
						said <- err
					}
				})
			}
			m := member(t, bad, b, hello{service: frames, from: 0, to: 1, session: 1, streams: 1})
			if _, err := m.Write(c.text); err != nil {
				t.Fatal(err)
			}
			_ = errorOf(t, said, "the end of a receive")
			err := errorOf(t, said, "the end of the next")
			var peer *wire.PeerError
			if !errors.As(err, &peer) || peer.Rank != 0 || peer.Lost || !strings.Contains(err.Error(), c.says) ||
				!strings.Contains(err.Error(), "at 127.0.0.1:") {
				t.Errorf("%v; want something about %q", err, c.says)
			}
			x.goesOn(t)
		})
	}
}

// TestReceiversThatSend: a receiver that sends frames is refused.
func TestReceiversThatSend(t *testing.T) {
	a, _ := listen(t, Config{Process: 0, limits: quick()})
	bad, _ := listen(t, Config{Process: 1, limits: quick()})
	c, err := a.Carriers(1, []wire.Address{a.Address(), bad.Address()}, []int{0}, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll(t, c[:1])
	said := make(chan error, 1)
	e := wire.Edge{ID: 5, From: 0, To: 1}
	for n := range uint32(100) { // more than the kernel's buffers hold
		c[0].Send(1, e, n, []*wire.Buffer{bufferOf(make([]byte, 1<<20))}, func(err error) {
			if err != nil && n == 99 {
				said <- err
			}
		})
	}
	for {
		bad.mu.Lock()
		waiting := bad.session.parked
		bad.mu.Unlock()
		if len(waiting) > 0 {
			_, _ = waiting[0].c.Write(appendPrefix(nil, kindChunk, chunk{}))
			break
		}
		time.Sleep(time.Millisecond)
	}
	if err := errorOf(t, said, "a send"); !errors.Is(err, errTalks) {
		t.Error(err)
	}
}
