package rendezvous

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Processes of another run, or of another start of this run, do not end a meeting. They are refused.
func TestStrangersOfAnotherRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		other := rank(1, 2)
		other.Own.Run = "other"
		old := rank(1, 2)
		old.Own.Restart = 7
		results := meet(t, newFakeNet(), func(i int) time.Duration {
			return map[int]time.Duration{1: 20 * time.Second}[i] // rank 1 comes after both strangers
		}, rank(0, 2), rank(1, 2), other, old)
		for _, r := range results[:2] {
			if r.err != nil {
				t.Errorf("rank %d: %v", r.Own.Rank, r.err)
			}
		}
		for i, want := range []string{`this is the meeting of run "run", not of "other"`,
			"this is start 0 of the run, not 7"} {
			var refused *Refused
			if err := results[2+i].err; !errors.As(err, &refused) || !strings.Contains(err.Error(), "nobody listens") &&
				!strings.Contains(err.Error(), want) {
				t.Errorf("%v; want %q", err, want)
			}
		}
	})
}

// Garbage, oversized words, silence and slowness are refused, and the processes still meet.
func TestStrangersAreRefused(t *testing.T) {
	attacks := map[string]func(net.Conn){
		"silence":  func(net.Conn) {},
		"garbage":  func(c net.Conn) { _, _ = c.Write([]byte("GET / HTTP/1.1\r\nHost: millrace\r\n\r\n")) },
		"oversize": func(c net.Conn) { _, _ = c.Write([]byte{0xff, 0xff, 0xff, 0xff}) },
		"much":     func(c net.Conn) { _, _ = c.Write(append([]byte{0, 0x40, 0, 0}, make([]byte, 1<<20)...)) },
		"no JSON":  func(c net.Conn) { _, _ = c.Write(append([]byte{4, 0, 0, 0}, "nope"...)) },
		"no rank":  func(c net.Conn) { _ = say(c, Hello{Version: version, Rank: -1, Size: 3, Run: "run"}) },
		"huge":     func(c net.Conn) { _ = say(c, Hello{Version: version, Rank: 1 << 30, Size: 1<<30 + 1, Run: "run"}) },
		"slow": func(c net.Conn) {
			for _, b := range binary.LittleEndian.AppendUint32(nil, 1000) {
				_, _ = c.Write([]byte{b})
				time.Sleep(3 * time.Second)
			}
			for {
				if _, err := c.Write([]byte{' '}); err != nil {
					return
				}
				time.Sleep(3 * time.Second)
			}
		},
	}
	for name, attack := range attacks {
		synctest.Test(t, func(t *testing.T) {
			f := newFakeNet()
			ctx, stop := context.WithCancel(t.Context())
			var strangers sync.WaitGroup
			for range 200 { // more than are admitted at once
				strangers.Go(func() {
					for range 3 {
						c, err := f.dial(ctx)
						if err != nil {
							return
						}
						strangers.Go(func() { _, _ = io.Copy(io.Discard, c) })
						attack(c)
						select {
						case <-ctx.Done():
						case <-time.After(8 * time.Second):
						}
						_ = c.Close()
					}
				})
			}
			delay := func(i int) time.Duration { return time.Duration(i) * 6 * time.Second }
			for _, r := range meet(t, f, delay, ranks(3, func(*Config) {})...) {
				if r.err != nil {
					t.Errorf("%s: rank %d: %v", name, r.Own.Rank, r.err)
				}
			}
			stop()
			strangers.Wait()
		})
	}
}

// A connection that the guard refuses cannot reach the meeting in any way.
func TestTheGuardDecides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet()
		lead := rank(0, 2)
		lead.Guard = func(c net.Conn) (net.Conn, error) {
			secret := make([]byte, 6)
			if _, err := io.ReadFull(c, secret); err != nil {
				return nil, err
			}
			if string(secret) != "secret" {
				return nil, errors.New("wrong token")
			}
			return c, nil
		}
		dial := func(word string) func(context.Context) (net.Conn, error) {
			return func(ctx context.Context) (net.Conn, error) {
				c, err := f.dial(ctx)
				if err == nil {
					_, err = io.WriteString(c, word)
				}
				return c, err
			}
		}
		wrong := make(chan error)
		go func() {
			c := rank(1, 2)
			c.Wait = 10 * time.Second
			_, err := Join(t.Context(), dial("public"), c)
			wrong <- err
		}()
		joined := make(chan struct{})
		go func() {
			defer close(joined)
			time.Sleep(20 * time.Second)
			m, err := Join(t.Context(), dial("secret"), rank(1, 2))
			if err != nil {
				t.Error(err)
				return
			}
			_ = m.Close()
		}()
		m, err := Lead(t.Context(), f, lead)
		if err != nil {
			t.Fatal(err)
		}
		<-joined
		_ = m.Close()
		var refused *Refused
		if err := <-wrong; !errors.As(err, &refused) {
			t.Error(err)
		}
	})
}

// A process refuses a message that rank 0 cannot have sent.
func TestWrongWordsOfRank0(t *testing.T) {
	tables := map[string][]byte{
		"a table of 1 processes": (&packed{Hosts: []string{"a"}, At: []int{0}, Addresses: make([][]byte, 1)}).encode(),
		"a table that is damag":  (&packed{Hosts: []string{"a"}, At: []int{0, 7}, Addresses: make([][]byte, 2)}).encode(),
		"table that is damaged": (&packed{Hosts: []string{"a", "b", "c"}, At: []int{0, 1}, Addresses: make([][]byte,
			2)}).encode(),
		"that is damaged": append((&packed{Hosts: []string{"a"}, At: []int{0, 0}, Addresses: make([][]byte,
			2)}).encode(), 0),
		"is damaged": {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
		"damaged":    {},
	}
	words := map[string]func(net.Conn){
		"said go before":       func(c net.Conn) { _ = say(c, word{Kind: goAhead}) },
		`said "jump", which`:   func(c net.Conn) { _ = say(c, word{Kind: "jump"}) },
		"a word of 4294967295": func(c net.Conn) { _, _ = c.Write([]byte{0xff, 0xff, 0xff, 0xff}) },
		"no JSON of its kind":  func(c net.Conn) { _, _ = c.Write([]byte{2, 0, 0, 0, '[', ']'}) },
	}
	for want, table := range tables {
		words[want] = func(c net.Conn) { _ = say(c, word{Kind: "table"}); _, _ = c.Write(asWord(table)) }
	}
	for want, do := range words {
		synctest.Test(t, func(t *testing.T) {
			own, other := net.Pipe()
			defer other.Close()
			go func() {
				var h Hello
				_ = hear(other, maxHello, &h)
				_ = exchange(other, word{Kind: ping}, nil, &answer{})
				do(other)
				_, _ = io.Copy(io.Discard, other)
			}()
			if _, err := Join(t.Context(), func(context.Context) (net.Conn, error) { return own, nil }, rank(1,
				2)); err == nil ||
				!strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %q", err, want)
			}
		})
	}
}

// An invalid Config is refused before the process tries to meet.
func TestConfigsAreChecked(t *testing.T) {
	far := rank(0, 2)
	far.Own.Rank = 5
	long := rank(0, 2)
	long.Own.Host = strings.Repeat("h", 1000)
	for want, c := range map[string]Config{"rank 5 of 2": far, "name has 1000 bytes": long, "rank 1 cannot lead": rank(1,
		2)} {
		if _, err := Lead(t.Context(), newFakeNet(), c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	if _, err := Join(t.Context(), nil, rank(0, 2)); err == nil || !strings.Contains(err.Error(), "it leads") {
		t.Error(err)
	}
}

func TestRanksInWords(t *testing.T) {
	many := []int{}
	for i := range 100 {
		many = append(many, 2*i)
	}
	for want, of := range map[string][]int{
		"no ranks": nil, "rank 3": {3}, "ranks 0-3": {0, 1, 2, 3}, "ranks 0, 2-3, 9": {0, 2, 3, 9},
	} {
		if got := Ranks(of); got != want {
			t.Errorf("%v: %q, want %q", of, got, want)
		}
	}
	if got := Ranks(many); !strings.HasSuffix(got, ", 62, and 68 more") {
		t.Errorf("%q", got)
	}
}
