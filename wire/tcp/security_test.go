package tcp

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/wire"
	"github.com/millrace-ml/millrace/wire/wiretest"
)

// traffic sends frames from one worker to another all the time, and compares what arrives with what was sent.
type traffic struct {
	count atomic.Int64
	stop  chan struct{}
	over  chan struct{}
}

func busy(t testing.TB, from, to wire.Carrier) *traffic {
	x := &traffic{stop: make(chan struct{}), over: make(chan struct{})}
	e := wire.Edge{ID: 1, From: from.Rank(), To: to.Rank()}
	go func() {
		defer close(x.over)
		sent, got := make([]byte, chunkBytes+1000), make([]byte, chunkBytes+1000)
		for n := uint32(0); ; n++ {
			select {
			case <-x.stop:
				return
			default:
			}
			_, _ = rand.Read(sent)
			said := make(chan error, 2)
			to.Recv(e, n, bufferOf(got), func(err error) { said <- err })
			from.Send(1, e, n, []*wire.Buffer{bufferOf(sent)}, func(err error) { said <- err })
			for range 2 {
				if err := <-said; err != nil {
					t.Errorf("frame %d: %v", n, err)
					return
				}
			}
			if !bytes.Equal(sent, got) {
				t.Errorf("frame %d differs", n)
			}
			x.count.Add(1)
		}
	}()
	return x
}

// goesOn fails the test if no more frames arrive.
func (x *traffic) goesOn(t testing.TB) {
	t.Helper()
	since := time.Now()
	for n := x.count.Load(); x.count.Load() < n+3; time.Sleep(time.Millisecond) {
		if time.Since(since) > soon {
			t.Fatal("the run does not go on")
		}
	}
}

func (x *traffic) end() {
	close(x.stop)
	<-x.over
}

// quick returns short limits for tests.
func quick() limits {
	l := usual
	l.handshake, l.dial, l.grace = 300*time.Millisecond, 2*time.Second, 100*time.Millisecond
	l.pending, l.lines = 32, 1000
	return l
}

// helloOf returns a hello that is correct except for a change. No proof of the token follows it.
func helloOf(change func(*hello)) []byte {
	h := hello{service: frames, from: 0, to: 1, session: 1, stream: 1, streams: 2}
	change(&h)
	return h.encode()
}

// TestStrangers: a dialler that does not know the token is refused and logged, whatever it sends, and the run goes on.
func TestStrangers(t *testing.T) {
	a, _ := listen(t, Config{Process: 0, limits: quick()})
	b, log := listen(t, Config{Process: 1, limits: quick()})
	all := carriersOf(t, 1, a, b)
	defer closeAll(t, all)
	x := busy(t, all[0], all[1])
	defer x.end()
	x.goesOn(t)
	garbage := make([]byte, 1<<16)
	_, _ = rand.Read(garbage)
	older := helloOf(func(*hello) {})
	older[4] = 9
	for _, c := range []struct {
		name, says string
		text       []byte
	}{
		{"nothing", "it says no hello: EOF", nil},
		{"half a hello", "it says no hello: unexpected EOF", older[:40]},
		{"garbage", "and is no hello of millrace", garbage},
		{"a browser", `it begins with \"GET \"`, []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n" + strings.Repeat(" ", 100))},
		{"a later version", "it speaks version 9; this is version 1", older},
		{"another service", "it asks for service 77", helloOf(func(h *hello) { h.service = 77 })},
		{"a stream too many", "it is stream 2 of 2", helloOf(func(h *hello) { h.stream = 2 })},
		{"too many streams", "it is stream 1 of 17", helloOf(func(h *hello) { h.streams = 17 })},
		{"a number too large", "it is from number 4294967295", helloOf(func(h *hello) { h.from = 1<<32 - 1 })},
		{"no proof", "it proves nothing: EOF", helloOf(func(*hello) {})},
		{"a wrong proof", "its token is not this run's", append(helloOf(func(*hello) {}), garbage[:32]...)},
	} {
		raw, err := net.Dial("tcp", b.at.String())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = raw.Write(c.text) // an error only means that the rest is not read
		_ = raw.(*net.TCPConn).CloseWrite()
		_ = raw.SetReadDeadline(time.Now().Add(soon))
		if said, err := io.ReadAll(raw); len(said) > headBytes+nonceBytes+headBytes+mostText {
			t.Errorf("%s: it is told %d bytes (%v)", c.name, len(said), err)
		}
		raw.Close()
		log.says(t, c.says)
		x.goesOn(t)
	}
	if strings.Contains(log.String(), string(token)) {
		t.Error("the token is logged")
	}
}

// TestWhoeverIsNotWanted: a dialler is refused if it has another token, is of another run or session, asks for a worker
// or process that is not here, or claims a stream that is connected already.
func TestWhoeverIsNotWanted(t *testing.T) {
	a, _ := listen(t, Config{Process: 0, Run: "r", limits: quick()})
	b, log := listen(t, Config{Process: 1, Run: "r", limits: quick()})
	all := carriersOf(t, 2, a, b)
	defer closeAll(t, all)
	x := busy(t, all[0], all[1])
	defer x.end()
	x.goesOn(t)
	for _, c := range []struct {
		says string
		of   Config
		h    hello
	}{
		{"its token is not this run's", Config{Token: []byte("another token, as long"), Run: "r"},
			hello{service: frames, to: 1, session: 2}},
		{"of another run, or of another start of it", Config{Run: "r, again"}, hello{service: frames, to: 1, session: 2}},
		{"session 1 of worker 1 is over", Config{Run: "r"}, hello{service: frames, to: 1, session: 1}},
		{"worker 0 is not of this process, which has [1]", Config{Run: "r"}, hello{service: frames, to: 0, session: 2}},
		{"there is no worker 2 of 2", Config{Run: "r"}, hello{service: frames, from: 2, to: 1, session: 2}},
		{"worker 1 has stream 0 from worker 0 already", Config{Run: "r"}, hello{service: frames, to: 1, session: 2}},
		{"this is process 1; it wants 0", Config{Run: "r"}, hello{service: Control, to: 0}},
	} {
		c.of.limits = quick()
		e, _ := listen(t, c.of)
		c.h.streams = 1
		_, err := e.dial(t.Context(), b.at, c.h)
		if r, ok := errors.AsType[*refused](err); !ok || !strings.Contains(r.text, c.says) {
			t.Errorf("it is told %v; want something about %q", err, c.says)
		}
		log.says(t, c.says)
		x.goesOn(t)
	}
}

// TestReplay: a recorded handshake with its frames is refused when it is replayed.
func TestReplay(t *testing.T) {
	a, _ := listen(t, Config{Process: 0, limits: quick()})
	b, log := listen(t, Config{Process: 1, limits: quick()})
	way, recorded := wiretest.Recorder(t, b.at.String())
	at, err := AddressOf(way, nil)
	if err != nil {
		t.Fatal(err)
	}
	one, err := a.Carriers(1, []wire.Address{a.Address(), at}, []int{0}, 1)
	if err != nil {
		t.Fatal(err)
	}
	two, err := b.Carriers(1, []wire.Address{a.Address(), b.Address()}, []int{1}, 1)
	if err != nil {
		t.Fatal(err)
	}
	all := []wire.Carrier{one[0], two[1]}
	defer closeAll(t, all)
	x := busy(t, all[0], all[1])
	defer x.end()
	x.goesOn(t)
	text := recorded()
	if len(text) < helloBytes+32+chunkBytes {
		t.Fatalf("%d bytes were recorded", len(text))
	}
	if bytes.Contains(text, token) {
		t.Error("the token travels")
	}
	for range 3 {
		raw, err := net.Dial("tcp", b.at.String())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = raw.Write(text) // an error only means that the rest is not read
		_ = raw.SetReadDeadline(time.Now().Add(soon))
		_, _ = io.Copy(io.Discard, raw)
		raw.Close()
		x.goesOn(t)
	}
	log.says(t, "its token is not this run's")
}

// TestSlowStrangers: diallers that send a byte now and then, or nothing at all, are dropped in time. Many such diallers
// delay neither the run nor valid connections, and use little memory.
func TestSlowStrangers(t *testing.T) {
	for name, of := range map[string]*TLS{"plain": nil, "tls": {}} {
		t.Run(name, func(t *testing.T) {
			a, _ := listen(t, Config{Process: 0, TLS: of, limits: quick()})
			few := quick()
			few.lines = 10
			b, log := listen(t, Config{Process: 1, TLS: of, limits: few})
			all := carriersOf(t, 1, a, b)
			defer closeAll(t, all)
			x := busy(t, all[0], all[1])
			defer x.end()
			x.goesOn(t)
			slow, err := net.Dial("tcp", b.at.String())
			if err != nil {
				t.Fatal(err)
			}
			text, since := helloOf(func(*hello) {}), time.Now()
			if of != nil {
				copy(text, []byte{22, 3, 1, 2, 0}) // the head of a record of 512 bytes
			}
			for at := 0; ; at++ {
				if _, err := slow.Write(text[at%len(text) : at%len(text)+1]); err != nil {
					break
				}
				time.Sleep(10 * time.Millisecond)
				if time.Since(since) > soon {
					t.Fatal("whoever is slow may stay")
				}
			}
			slow.Close()
			log.says(t, "i/o timeout")
			before, memory := goroutines(), inUse()
			var crowd []net.Conn
			for range 400 {
				raw, err := net.Dial("tcp", b.at.String())
				if err != nil {
					t.Fatal(err)
				}
				crowd = append(crowd, raw)
				if n := goroutines() - before; n > 2*quick().pending+10 {
					t.Fatalf("%d goroutines for %d strangers", n, len(crowd))
				}
			}
			if n := inUse() - memory; n > 64<<20 {
				t.Errorf("%d bytes for %d strangers", n, len(crowd))
			}
			c, err := a.Dial(t.Context(), b.Address(), Control, 1)
			if err != nil {
				t.Error("somebody who comes rightly: ", err)
			} else {
				c.Close()
			}
			x.goesOn(t)
			for _, raw := range crowd {
				raw.Close()
			}
			log.says(t, "others have dialled since")
			if n := strings.Count(log.String(), "\n"); n > 20*few.lines {
				t.Errorf("%d lines are logged", n)
			}
		})
	}
}

// TestAllMembersShakeHandsAtOnce: all connections of a session may shake hands at the same time, without closing each
// other.
func TestAllMembersShakeHandsAtOnce(t *testing.T) {
	const workers = 100
	e, log := listen(t, Config{Process: 0, limits: quick()})
	at := make([]wire.Address, workers)
	for w := range at {
		at[w] = e.Address()
	}
	all, err := e.Carriers(1, at, []int{0}, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer all[0].Close()
	var members []net.Conn
	for range workers - 1 {
		raw, err := net.Dial("tcp", e.at.String())
		if err != nil {
			t.Fatal(err)
		}
		defer raw.Close()
		members = append(members, raw)
	}
	for since := time.Now(); time.Since(since) < quick().handshake/2; time.Sleep(time.Millisecond) {
		e.mu.Lock()
		n := len(e.pending)
		e.mu.Unlock()
		if n == len(members) {
			return
		}
	}
	t.Errorf("of %d members some are sent away: %s", len(members), log.String())
}

// TestAllMembersHaveTimeEnough: all members of a session can shake hands at the same time. Together they get more time
// than a single member. In this test, a single member's time is half of what all of them need.
func TestAllMembersHaveTimeEnough(t *testing.T) {
	const workers = 400
	shake := func(each time.Duration) (took time.Duration, failed error) {
		c := Config{TLS: &TLS{}, limits: usual}
		c.limits.dial, c.limits.handshake = each, each
		to, _ := listen(t, c)
		c.Process = 1
		from, _ := listen(t, c)
		at, mine := []wire.Address{to.Address()}, []int(nil)
		for w := range workers {
			at, mine = append(at, from.Address()), append(mine, w+1)
		}
		one, err := to.Carriers(1, at, []int{0}, 1)
		if err != nil {
			t.Fatal(err)
		}
		all, err := from.Carriers(1, at, mine, 1)
		if err != nil {
			t.Fatal(err)
		}
		began, said := time.Now(), make(chan error, 2*workers)
		for _, w := range mine {
			e := wire.Edge{ID: uint32(w), From: w, To: 0}
			one[0].Recv(e, 0, bufferOf(make([]byte, 8)), func(err error) { said <- err })
			all[w].Send(1, e, 0, []*wire.Buffer{bufferOf(make([]byte, 8))}, func(err error) { said <- err })
		}
		for left := cap(said); left > 0 && failed == nil; left-- {
			failed = errorOf(t, said, "a frame")
		}
		took = time.Since(began)
		all[0] = one[0]
		closeAll(t, all)
		return took, failed
	}
	took, err := shake(soon)
	if err == nil {
		_, err = shake(took / 2)
	}
	if err != nil {
		t.Errorf("all take %v; where each has half of that: %v", took, err)
	}
}

func inUse() int64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}

func goroutines() int {
	runtime.Gosched()
	return runtime.NumGoroutine()
}
