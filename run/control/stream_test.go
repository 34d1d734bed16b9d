package control

import (
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// slow is an end of a connection that reads at most `size` bytes at a time, after a pause.
type slow struct {
	net.Conn
	pause time.Duration // before each read
	stop  atomic.Bool   // if set, nothing more is read
	size  int
}

func (s *slow) Read(b []byte) (int, error) {
	for s.stop.Load() {
		time.Sleep(s.pause)
	}
	time.Sleep(s.pause)
	return s.Conn.Read(b[:min(len(b), s.size)])
}

// patient is the timing of an end that never finds the other one lost.
var patient = pace{beat: time.Second, silence: 1000 * time.Hour}

// joined returns two Links over a connection that can be cut.
func joined(ofB pace) (a, b *stream, cut *wires) {
	x, y := net.Pipe()
	cut = &wires{}
	return over(&wired{x, cut}, usual), over(&wired{y, cut}, ofB), cut
}

// wires can cut a connection. Both ends of a cut connection can write, but receive nothing.
type wires struct{ cut atomic.Bool }

type wired struct {
	net.Conn
	*wires
}

func (w *wired) Write(b []byte) (int, error) {
	if w.cut.Load() {
		return len(b), nil
	}
	return w.Conn.Write(b)
}

// until waits until an end is lost. It returns the time from `since` to the loss, and the reason.
func until(h *heard, since time.Time) (time.Duration, error) {
	<-h.done
	return time.Since(since), h.end
}

// Ends without messages stay connected indefinitely.
func TestALinkWithNothingToSayStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, _ := joined(usual)
		atA, atB := hear(a), hear(b)
		time.Sleep(time.Hour)
		if err := a.Send(Message{N: 1, Body: Stop{}}); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if len(atB.all) != 1 || len(atA.all) != 0 || atA.end != nil || atB.end != nil {
			t.Errorf("behind an hour %v came, and the ends are %v and %v", atB.all, atA.end, atB.end)
		}
		closeBoth(t, a, b)
	})
}

func closeBoth(t *testing.T, a, b Link) {
	t.Helper()
	var both sync.WaitGroup
	for _, l := range []Link{a, b} {
		both.Go(func() {
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	both.Wait()
}

// If an end is cut off, the other end finds it lost within seconds. Closing the Link then takes no time.
func TestASilentEndIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, cut := joined(patient)
		atA := hear(a)
		hear(b)
		time.Sleep(10 * time.Second)
		since := time.Now()
		cut.cut.Store(true)
		took, err := until(atA, since)
		if err == nil || !strings.Contains(err.Error(), "nothing was heard of it for 6s") || took < 5*time.Second ||
			took > 7*time.Second {
			t.Errorf("lost behind %v: %v", took, err)
		}
		since = time.Now()
		closeBoth(t, a, b)
		if took := time.Since(since); took > 0 {
			t.Errorf("closing what is lost took %v", took)
		}
	})
}

// If an end takes long to handle a message, it goes on reading meanwhile, and then handles the arrived messages in
// order.
func TestWhoTakesLongOverAMessageHears(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, _ := joined(usual)
		atA := hear(a)
		var came []uint64
		b.Start(func(m Message, err error) {
			if err == nil {
				time.Sleep(4 * usual.silence)
				came = append(came, m.N)
			}
		})
		for n := range uint64(3) {
			if err := a.Send(Message{N: n + 1, Body: Load{Program: strings.Repeat("p", 1<<20)}}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(usual.silence)
		}
		time.Sleep(20 * usual.silence)
		synctest.Wait()
		if !slices.Equal(came, []uint64{1, 2, 3}) || atA.end != nil {
			t.Errorf("%v were taken, and the other end: %v", came, atA.end)
		}
		closeBoth(t, a, b)
	})
}

// A Message that cannot be encoded is its sender's error: the Link stays, and the other end gets later messages.
func TestAMessageThatCannotBeSentLosesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, _ := joined(usual)
		hear(a)
		atB := hear(b)
		for says, body := range map[string]Body{
			"load has 67108917 bytes; a message has at most 67108863": Load{Program: strings.Repeat("p", MaxLine)},
			"step: json: unsupported value: NaN":                      Step{Norm: math.NaN()},
		} {
			if err := a.Send(Message{N: 1, Body: body}); err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("%v; want something about %q", err, says)
			}
		}
		if err := a.Send(Message{N: 1, Body: Stop{}}); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(atB.all) != 1 || atB.end != nil {
			t.Errorf("%v came, and %v", atB.all, atB.end)
		}
		closeBoth(t, a, b)
	})
}

// An end is not lost as long as messages arrive from it, or parts of a long message, however slowly.
func TestALongMessageOverASlowConnectionIsHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, y := net.Pipe()
		a := over(x, usual)
		b := over(&slow{Conn: y, pause: time.Second, size: 32 << 10}, usual)
		atB := hear(b)
		hear(a)
		text := strings.Repeat("p", 1<<20)
		if err := a.Send(Message{N: 1, Body: Load{Program: text}}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if len(atB.all) != 1 || atB.all[0].Body.(Load).Program != text || atB.end != nil {
			t.Errorf("%d messages, and %v", len(atB.all), atB.end)
		}
		closeBoth(t, a, b)
		time.Sleep(time.Minute) // until the goroutines of the type `slow` have ended
	})
}

// An end that delivers slowly is sent no more than it has room for, and is not lost. Senders do not wait for it.
func TestWhoDeliversSlowlyIsSentNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, _ := joined(usual)
		atA := hear(a)
		const n, size = 200, 256 << 10
		free, came := make(chan struct{}), 0
		b.Start(func(_ Message, err error) {
			if <-free; err == nil {
				came++
			}
		})
		before := alive()
		m := Message{N: 1, Body: Load{Program: strings.Repeat("p", size)}}.Shared()
		since := time.Now()
		for range n {
			if err := a.Send(m); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(since); took > 0 {
			t.Errorf("sending took %v", took)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if more := int64(alive()) - int64(before); more > 10*size || atA.end != nil {
			t.Errorf("%d bytes are held of messages of %d each; the end: %v", more, size, atA.end)
		}
		close(free)
		time.Sleep(time.Hour)
		synctest.Wait()
		if came != n || atA.end != nil {
			t.Errorf("%d messages of %d were delivered; the end: %v", came, n, atA.end)
		}
		closeBoth(t, a, b)
	})
}

// alive returns the number of bytes on the heap.
func alive() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// An end that is lost without a closing line, such as the end of a killed process, is not taken for a closed end.
func TestADeadEndIsNotAClosedOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, end := range map[string]func(b *stream){
			"closed":    func(b *stream) { _ = b.Close() },
			"has ended": func(b *stream) { _ = b.connection.Close() },
			"middle of a message": func(b *stream) {
				_, _ = io.WriteString(b.connection, `{"n":1,`)
				_ = b.connection.Close()
			},
		} {
			a, b, _ := joined(usual)
			atA := hear(a)
			hear(b)
			time.Sleep(time.Second / 2)
			end(b)
			<-atA.done
			closed := errors.Is(atA.end, ErrClosed)
			if closed != (name == "closed") || !strings.Contains(atA.end.Error(), name) {
				t.Errorf("%s: %v", name, atA.end)
			}
			closeBoth(t, a, b)
		}
	})
}

// The other end's last messages are read even if writing to it fails.
func TestTheLastWordIsHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, y := net.Pipe()
		a := over(&deaf{x}, usual)
		time.Sleep(5 * time.Second)
		atA := hear(a)
		if err := a.Send(Message{N: 1, Body: Stop{}}); err != nil {
			t.Error(err)
		}
		last, err := Encode(Message{N: 1, From: 1, Body: Failed{Process: 1, Text: "why"}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := y.Write(last); err != nil {
			t.Fatal(err)
		}
		y.Close()
		<-atA.done
		if len(atA.all) != 1 || !strings.Contains(atA.end.Error(), "has ended") {
			t.Errorf("%v, and then %v", atA.all, atA.end)
		}
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
}

// deaf is a connection whose other end reads nothing any more.
type deaf struct{ net.Conn }

func (deaf) Write([]byte) (int, error) { return 0, syscall.EPIPE }

// A line without an end takes no more memory than the longest message.
func TestALineWithoutEndIsRefused(t *testing.T) {
	x, y := net.Pipe()
	a := Over(x)
	atA := hear(a)
	chunk := []byte(strings.Repeat("x", 1<<20))
	var wrote int
	for {
		n, err := y.Write(chunk)
		if wrote += n; err != nil {
			break
		}
	}
	<-atA.done
	if wrote > MaxLine+2<<20 || !strings.Contains(atA.end.Error(), fmt.Sprintf("a line of more than %d bytes", MaxLine)) {
		t.Errorf("%d bytes were taken, and then: %v", wrote, atA.end)
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
}

// A process that was suspended first reads what has come meanwhile.
func TestWhoHasSleptReadsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, _ := joined(usual)
		atA := hear(a)
		hear(b)
		time.Sleep(time.Second / 2)
		a.mu.Lock()
		a.heard, a.due = a.heard.Add(-time.Minute), a.due.Add(-time.Minute)
		a.mu.Unlock()
		a.watch()
		time.Sleep(time.Minute)
		if atA.end != nil {
			t.Errorf("an end that was heard is lost: %v", atA.end)
		}
		closeBoth(t, a, b)
	})
}

// A Message for many Links is encoded once.
func TestASharedMessageIsEncodedOnce(t *testing.T) {
	m := Message{N: 1, Body: Load{Program: "a"}}.Shared()
	one, err := m.encoded()
	if err != nil {
		t.Fatal(err)
	}
	if again, err := m.encoded(); err != nil || &one[0] != &again[0] {
		t.Errorf("it was encoded again: %v", err)
	}
	if plain, err := Encode(m); err != nil || string(plain) != string(one) {
		t.Errorf("%q, and shared %q: %v", plain, one, err)
	}
}
