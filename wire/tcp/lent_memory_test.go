package tcp

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/wire"
	"github.com/millrace-ml/millrace/wire/tcp/memory"
	"github.com/millrace-ml/millrace/wire/wiretest"
)

// Values of limits.lent: all frames are lent, or none.
const (
	allLent  = 1
	noneLent = math.MaxInt
)

// lending returns limits for tests in which frames from this length on are lent.
func lending(from int) limits {
	l := usual
	l.lent = from
	return l
}

// lends skips a test if the kernel does not allow reading other processes' memory.
func lends(t testing.TB) {
	t.Helper()
	if _, ok := memory.Lends(&memory.Proof{1}); !ok {
		t.Skip("the kernel reads no memory of other processes here")
	}
}

func TestItIsACarrierThatLendsAllFrames(t *testing.T) {
	lends(t)
	for streams, c := range map[int]Config{1: {}, 3: {TLS: &TLS{}}} {
		l := &logged{}
		c.limits, c.Log = lending(allLent), slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
		wiretest.Conforms(t, func(n int) ([]wire.Carrier, error) { return open(n, streams, c) })
		l.says(t, "what is long read from memory, between 127.0.0.1:")
	}
}

func TestItIsACarrierThatLendsNone(t *testing.T) {
	wiretest.Conforms(t, func(n int) ([]wire.Carrier, error) { return open(n, 1, Config{limits: lending(noneLent)}) })
	wiretest.Conforms(t, func(n int) ([]wire.Carrier, error) { return open(n, 3, Config{limits: lending(noneLent)}) })
}

// pairThatLends returns two workers. Worker 0 lends all its frames to worker 1.
func pairThatLends(t *testing.T) []wire.Carrier {
	t.Helper()
	lends(t)
	a, _ := listen(t, Config{Process: 0, limits: lending(allLent)})
	b, _ := listen(t, Config{Process: 1, limits: lending(allLent)})
	all := carriersOf(t, 1, a, b)
	x := busy(t, all[0], all[1])
	defer x.end()
	for since := time.Now(); !strings.Contains(all[0].Describe(wire.Edge{From: 0, To: 1}), "read from memory"); {
		if time.Since(since) > soon {
			t.Fatal("memory is not lent on this host")
		}
		time.Sleep(time.Millisecond)
	}
	return all
}

// TestWhatIsLentIsTakenBack: lent memory belongs to the sender again in two cases. Either the receiver has read it, or
// the sender has ended its send with Close or Fail. What the sender then writes to it does not reach the receiver.
func TestWhatIsLentIsTakenBack(t *testing.T) {
	for name, end := range map[string]func(c wire.Carrier) error{
		"closed": wire.Carrier.Close,
		"failed": func(c wire.Carrier) error { c.Fail(1, errors.New("lost")); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			all := pairThatLends(t)
			defer closeAll(t, all)
			e := wire.Edge{ID: 7, From: 0, To: 1}
			data, room := bytes.Repeat([]byte{1}, 3*copyBytes), make([]byte, 3*copyBytes)
			sent, came := make(chan error, 2), make(chan error, 2)
			send := func(n uint32) {
				all[0].Send(1, e, n, []*wire.Buffer{bufferOf(data)}, func(err error) { sent <- err })
			}
			recv := func(n uint32) { all[1].Recv(e, n, bufferOf(room), func(err error) { came <- err }) }
			send(0)
			select {
			case err := <-sent:
				t.Fatalf("a send that nobody receives has ended: %v", err)
			case <-time.After(20 * time.Millisecond):
			}
			recv(0)
			if err := errors.Join(errorOf(t, came, "the receive"), errorOf(t, sent, "the send")); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(data, room) {
				t.Fatal("other bytes have come")
			}
			send(1)
			if err := end(all[0]); err != nil {
				t.Error(err)
			}
			if err := errorOf(t, sent, "the send"); err == nil {
				t.Error("a send that nobody has received has ended well")
			}
			for i := range data {
				data[i] = 2
			}
			recv(1)
			select {
			case err := <-came:
				var peer *wire.PeerError
				if name == "closed" || !errors.As(err, &peer) {
					t.Errorf("a frame whose memory was taken back has come: %v", err)
				}
			case <-time.After(50 * time.Millisecond):
			}
		})
	}
}

// TestOffersThatCannotBeTaken: a receiver does not answer an offer that it cannot use. Frames then come over the
// connection.
func TestOffersThatCannotBeTaken(t *testing.T) {
	lends(t)
	for name, change := range map[string]func(*memory.Loan){
		"another host":    func(l *memory.Loan) { l.Host++ },
		"another process": func(l *memory.Loan) { l.Process = 1 },
		"another place":   func(l *memory.Loan) { l.At += 8 },
		"nothing":         func(l *memory.Loan) { *l = memory.Loan{} },
	} {
		t.Run(name, func(t *testing.T) {
			_, m, said := receiver(t)
			l, _ := memory.Lends(&m.proof)
			change(&l)
			text := append(appendPrefix(nil, kindOffer, offer(l)), framesOf(5, []byte("12345678"))...)
			if _, err := m.Write(text); err != nil {
				t.Fatal(err)
			}
			if err := errorOf(t, said, "the receive"); err != nil {
				t.Error(err)
			}
			_ = m.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
			if n, err := m.Read(make([]byte, 1)); n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("it answers %d bytes, %v", n, err)
			}
		})
	}
}

// TestMembersThatLendWhatIsWrong: a mistake of a member ends only sends and receives with this member. It may lend
// memory that it has not offered, or offer memory twice. It may lend a frame twice or with a wrong length. It may also
// answer unasked.
func TestMembersThatLendWhatIsWrong(t *testing.T) {
	lends(t)
	frame := chunk{tag: wire.TagOf(1, 5, 0), total: 8, at: memory.At(loan.data[:])}
	for name, c := range map[string]struct {
		says  string
		offer bool
		text  []byte
	}{
		"not offered":   {"a frame of kind 5, which nobody has asked for", false, appendPrefix(nil, kindLent, frame)},
		"offered twice": {"a frame of kind 3, which nobody has asked for", true, appendPrefix(nil, kindOffer, chunk{})},
		"another length": {"to worker 1 has 9 bytes", true,
			appendPrefix(nil, kindLent, chunk{tag: frame.tag, total: 9, at: 8})},
		"oversize": {"a frame of 1099511627777 bytes", true,
			appendPrefix(nil, kindLent, chunk{tag: frame.tag, total: 1<<40 + 1, at: 8})},
		"lent twice": {"comes where 1 is due", true,
			append(appendPrefix(nil, kindLent, frame), appendPrefix(nil, kindLent, frame)...)},
		"an answer": {"a frame of kind 6, which nobody has asked for", true, appendPrefix(nil, kindTaken, chunk{})},
	} {
		t.Run(name, func(t *testing.T) {
			to, m, said := receiver(t)
			to.Recv(wire.Edge{ID: 5, From: 0, To: 1}, 1, bufferOf(make([]byte, 8)), func(err error) { said <- err })
			if c.offer {
				l, _ := memory.Lends(&m.proof)
				answer := make([]byte, prefixBytes)
				if _, err := m.Write(appendPrefix(nil, kindOffer, offer(l))); err != nil {
					t.Fatal(err)
				}
				if _, err := io.ReadFull(m, answer); err != nil || !bytes.Equal(answer, appendPrefix(nil, kindReads, chunk{})) {
					t.Fatalf("it answers %x, %v", answer, err)
				}
			}
			if _, err := m.Write(c.text); err != nil {
				t.Fatal(err)
			}
			err := errorOf(t, said, "a receive")
			if err == nil {
				err = errorOf(t, said, "the next")
			}
			var peer *wire.PeerError
			var length *wire.LengthError
			if !errors.As(err, &peer) && !errors.As(err, &length) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v; want something about %q", err, c.says)
			}
		})
	}
}

// TestMemoryThatIsNotThere: if a frame is not at the announced address, it comes over another stream, even if other
// frames wait.
func TestMemoryThatIsNotThere(t *testing.T) {
	lends(t)
	a, _ := listen(t, Config{Process: 0, limits: quick()})
	b, log := listen(t, Config{Process: 1, limits: quick()})
	to := carriersOf(t, 1, a, b)[1]
	said, room := make(chan error, 1), make([]byte, 2*chunkBytes)
	to.Recv(wire.Edge{ID: 5, From: 0, To: 1}, 0, bufferOf(room), func(err error) { said <- err })
	h := hello{service: frames, from: 0, to: 1, session: 1, streams: 2}
	m := member(t, a, b, h)
	h.stream = 1
	again := member(t, a, b, h)
	l, _ := memory.Lends(&m.proof)
	data := bytes.Repeat([]byte{3}, len(room))
	tag := wire.TagOf(1, 5, 0)
	text := appendPrefix(nil, kindOffer, offer(l))
	text = appendPrefix(text, kindLent, chunk{tag: tag, total: int64(len(room)), at: 8})
	text = append(text, framesOf(7, []byte("not awaited yet"))...)
	if _, err := m.Write(text); err != nil {
		t.Fatal(err)
	}
	want := appendPrefix(appendPrefix(nil, kindReads, chunk{}), kindBack, chunk{tag: tag})
	got := make([]byte, len(want))
	if _, err := io.ReadFull(m, got); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("it answers %x, %v; want %x", got, err, want)
	}
	log.says(t, "memory cannot be read")
	if _, err := again.Write(framesOf(5, data)); err != nil {
		t.Fatal(err)
	}
	if err := errorOf(t, said, "the receive"); err != nil || !bytes.Equal(room, data) {
		t.Errorf("%v, and the same bytes: %v", err, bytes.Equal(room, data))
	}
}

// TestLendersThatAreGone: the disappearance of a lender is noticed, even if earlier frames wait for receives that are
// never posted.
func TestLendersThatAreGone(t *testing.T) {
	lends(t)
	_, m, said := receiver(t)
	l, _ := memory.Lends(&m.proof)
	answer := make([]byte, prefixBytes)
	if _, err := m.Write(appendPrefix(nil, kindOffer, offer(l))); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(m, answer); err != nil {
		t.Fatal(err)
	}
	clear(m.proof[:])
	lent := chunk{tag: wire.TagOf(1, 5, 0), total: 8, at: memory.At(loan.data[:])}
	next := chunk{tag: wire.TagOf(1, 5, 1), total: 8} // no receive is posted for it
	text := append(appendPrefix(appendPrefix(nil, kindLent, lent), kindChunk, next), loan.data[:8]...)
	next.tag, next.at = next.tag+1, lent.at
	if _, err := m.Write(appendPrefix(text, kindLent, next)); err != nil {
		t.Fatal(err)
	}
	m.raw.Close()
	var peer *wire.PeerError
	if err := errorOf(t, said, "the receive"); !errors.As(err, &peer) || peer.Rank != 0 || !peer.Lost {
		t.Error(err)
	}
}

// TestReceiversThatReadWhatIsNotLent: a receiver that answers loans which were never made is refused.
func TestReceiversThatReadWhatIsNotLent(t *testing.T) {
	for name, text := range map[string][]byte{
		"nothing was lent": appendPrefix(nil, kindTaken, chunk{tag: 5}),
		"nothing is back":  appendPrefix(nil, kindBack, chunk{tag: 5}),
		"it reads, twice":  append(appendPrefix(nil, kindReads, chunk{}), appendPrefix(nil, kindReads, chunk{})...),
		"it lends":         appendPrefix(nil, kindOffer, chunk{}),
	} {
		t.Run(name, func(t *testing.T) {
			to, near, far := stubborn(t)
			w := to.streams[0]
			over := make(chan error, 1)
			go func() { over <- w.heed(func() {}, func(*stream) {}) }()
			if _, err := far.Write(text); err != nil {
				t.Fatal(err)
			}
			if err := errorOf(t, over, "the end"); err == nil || errors.Is(err, io.EOF) {
				t.Error(err)
			}
			near.Close()
		})
	}
}

// TestAProcessThatMayNotRead: only one of two processes may read the other's memory. The frames that it sends travel as
// bytes, since the other process cannot read them. The data are right in both directions.
func TestAProcessThatMayNotRead(t *testing.T) {
	lends(t)
	p := begin(t, task{Rank: 1, Does: "exchange", Lent: allLent, Apart: true})
	k := task{Rank: 0, Lent: allLent}
	e, _ := listen(t, k.config())
	at := []wire.Address{e.Address(), p.at}
	all, err := e.Carriers(1, at, []int{0}, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.in.Encode(at); err != nil {
		t.Fatal(err)
	}
	inside, err := wire.InProcess(2)
	if err != nil {
		t.Fatal(err)
	}
	var want [2]string
	twin := make(chan error, 1)
	go func() {
		var err error
		want[1], err = exchange(inside, 1)
		twin <- err
	}()
	if want[0], err = exchange(inside, 0); err == nil {
		err = errorOf(t, twin, "the exchange inside a process")
	}
	if err != nil {
		t.Fatal(err)
	}
	c := all[0].(*carrier)
	c.mu.Lock()
	other, _ := c.peer(1)
	c.mu.Unlock()
	got, err := exchange(all, 0)
	if theirs := p.line(t); err != nil || got != want[0] || theirs != want[1] {
		t.Errorf("%s and %s, %v; in one process it is %v", got, theirs, err, want)
	}
	_, out := other.out.ways()
	_, in := other.in.ways()
	if wantOut, wantIn := reads(t); out != wantOut || in != wantIn {
		t.Errorf("it reads this process %v, want %v, and is read %v, want %v", out, wantOut, in, wantIn)
	}
}
