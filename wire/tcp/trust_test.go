package tcp

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/wire"
)

// TestCertificates: certificates that the right authority has not signed are refused on both sides, and so are peers
// without TLS.
func TestCertificates(t *testing.T) {
	right, wrong := newAuthority(t), newAuthority(t)
	one := func(a *authority, mutual bool, change func(*TLS)) *TLS {
		s := a.signed(t, "127.0.0.1")
		s.Mutual = mutual
		change(s)
		return s
	}
	same := func(*TLS) {}
	for name, c := range map[string]struct {
		listener, dialler *TLS
		says, logs        string // parts of the dialler's error and the listener's log; "": the connection is accepted
	}{
		"one side's":              {one(right, false, same), one(right, false, same), "", ""},
		"both":                    {one(right, true, same), one(right, true, same), "", ""},
		"names that nobody dials": {right.signed(t, "a.example"), right.signed(t, "b.example"), "", ""},
		"another authority":       {one(wrong, false, same), one(right, false, same), "unknown authority", "bad certificate"},
		"a stranger's": {one(right, true, same),
			one(wrong, true, func(s *TLS) { s.Roots = one(right, true, same).Roots }), "certificate", "unknown authority"},
		"none": {one(right, true, same), one(right, false, same), "certificate required",
			"didn't provide a certificate"},
		"self-made": {&TLS{}, one(right, false, same), "certificate", "bad certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			l, log := listen(t, Config{TLS: c.listener, limits: quick()})
			d, _ := listen(t, Config{TLS: c.dialler, limits: quick()})
			conn, err := d.Dial(t.Context(), l.Address(), Control, 0)
			switch {
			case err == nil && c.says == "":
				conn.Close()
			case err == nil:
				conn.Close()
				t.Error("it was let in")
			case c.says == "" || !strings.Contains(err.Error(), c.says):
				t.Errorf("%v; want something about %q", err, c.says)
			default:
				log.says(t, c.logs)
			}
		})
	}
	l, log := listen(t, Config{TLS: &TLS{}, limits: quick()})
	p, _ := listen(t, Config{limits: quick()})
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := p.dial(ctx, l.at, hello{service: Control, streams: 1}); err == nil {
		t.Error("whoever speaks no TLS was let in")
	}
	log.says(t, "first record does not look like a TLS handshake")
	if _, err := l.dial(t.Context(), p.at, hello{service: Control, streams: 1}); err == nil {
		t.Error("whoever speaks TLS to one who does not was let in")
	}
}

// TestWhoeverSitsBetween: an attacker in the middle, with a TLS channel to each end, cannot use the proofs that it
// receives.
func TestWhoeverSitsBetween(t *testing.T) {
	l, log := listen(t, Config{TLS: &TLS{}, limits: quick()})
	d, _ := listen(t, Config{TLS: &TLS{}, limits: quick()})
	own, err := made()
	if err != nil {
		t.Fatal(err)
	}
	between, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{*own}})
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		in, err := between.Accept()
		if err != nil {
			t.Error(err)
			return
		}
		out, err := tls.Dial("tcp", l.at.String(), &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			t.Error(err)
			return
		}
		all.Go(func() {
			_, _ = io.Copy(out, in)
			out.Close()
		})
		_, _ = io.Copy(in, out)
		in.Close()
	})
	at, err := AddressOf(between.Addr().String(), &TLS{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Dial(t.Context(), at, Control, 0); err == nil ||
		!strings.Contains(err.Error(), "its token is not this run's") {
		t.Error(err)
	}
	log.says(t, "its token is not this run's")
	between.Close()
	all.Wait()
}

// TestFalseListeners: a listener that does not know the token is detected, even if it accepts everybody or repeats what
// it hears.
func TestFalseListeners(t *testing.T) {
	d, _ := listen(t, Config{limits: quick()})
	for name, c := range map[string]struct {
		says string
		talk func(net.Conn) error
	}{
		"any proof": {"it does not know this run's token", func(c net.Conn) error {
			return errors.Join(answer(c, challenge, 0, make([]byte, 32)), answer(c, welcome, 0, make([]byte, 32)))
		}},
		"the dialler's": {"it does not know this run's token", func(c net.Conn) error {
			said := make([]byte, helloBytes+32)
			_, err := io.ReadFull(c, said[:helloBytes])
			err = errors.Join(err, answer(c, challenge, 0, make([]byte, 32)))
			_, more := io.ReadFull(c, said[helloBytes:])
			return errors.Join(err, more, answer(c, welcome, 0, said[helloBytes:]))
		}},
		"no proof at all": {"does not speak as millrace does", func(c net.Conn) error {
			return errors.Join(answer(c, challenge, 0, make([]byte, 32)), answer(c, welcome, 0, nil))
		}},
		"another service": {"does not speak as millrace does", func(c net.Conn) error {
			_, err := c.Write([]byte("220 mail.example ESMTP\r\n"))
			return err
		}},
		"a long refusal": {"does not speak as millrace does", func(c net.Conn) error {
			return answer(c, refusal, notOne, make([]byte, 60000))
		}},
		"terminal escapes": {`it refuses: "\x1b[31m"`, func(c net.Conn) error {
			return answer(c, refusal, notOne, []byte("\x1b[31m"))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			var all sync.WaitGroup
			defer all.Wait()
			all.Go(func() {
				in, err := l.Accept()
				if err != nil {
					t.Error(err)
					return
				}
				_ = in.SetDeadline(time.Now().Add(soon))
				if err := c.talk(in); err != nil {
					t.Error(err)
				}
				_, _ = io.Copy(io.Discard, in) // until the dialler closes
				in.Close()
			})
			at, err := AddressOf(l.Addr().String(), nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := d.Dial(t.Context(), at, Control, 0); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v; want something about %q", err, c.says)
			}
		})
	}
}

// TestWhatIsFinal: a wrong token is a final refusal. A refusal by another start of the run is not final, since that
// start may end soon.
func TestWhatIsFinal(t *testing.T) {
	l, _ := listen(t, Config{Run: "run 1"})
	for _, c := range []struct {
		run   string
		token string
		final bool
	}{{"run 2", "", false}, {"run 1", "another token of somebody", true}} {
		d := Config{Run: c.run, Process: 1}
		if c.token != "" {
			d.Token = []byte(c.token)
		}
		other, _ := listen(t, d)
		if _, err := other.Dial(t.Context(), l.Address(), Control, 0); err == nil || Final(err) != c.final {
			t.Errorf("%+v: %v", c, err)
		}
	}
	gone := l.Address()
	l.Close()
	other, _ := listen(t, Config{Process: 1})
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := other.Dial(ctx, gone, Control, 0); err == nil || Final(err) || Final(nil) {
		t.Error(err)
	}
}

// TestAnotherStartIsThere: if another start of the run has taken a worker's address, sends to this worker end with a
// PeerError. The error says that the worker is lost, so the failure is not blamed on the sender.
func TestAnotherStartIsThere(t *testing.T) {
	gone, _ := listen(t, Config{Run: "run 0", Process: 1})
	at := gone.Address()
	where := gone.at.String()
	if err := gone.Close(); err != nil {
		t.Fatal(err)
	}
	listen(t, Config{Run: "run 1", Process: 1, Address: where})
	late, _ := listen(t, Config{Run: "run 0"})
	all, err := late.Carriers(1, []wire.Address{late.Address(), at}, []int{0}, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll(t, all[:1])
	said := make(chan error, 1)
	all[0].Send(1, wire.Edge{ID: 5, From: 0, To: 1}, 0, []*wire.Buffer{bufferOf(nil)}, func(err error) { said <- err })
	var peer *wire.PeerError
	if err := errorOf(t, said, "the send"); !errors.As(err, &peer) || !peer.Lost || peer.Rank != 1 ||
		!strings.Contains(err.Error(), "another start of it") {
		t.Error(err)
	}
}
