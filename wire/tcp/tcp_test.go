package tcp

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/millrace-ml/millrace/wire"
	"github.com/millrace-ml/millrace/wire/wiretest"
)

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		if err := child(os.Stdin, os.Stdout); err != nil {
			os.Stderr.WriteString(err.Error() + "\n")
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

func TestItIsACarrier(t *testing.T) { wiretest.Conforms(t, New) }

func TestItIsACarrierOverSeveralStreams(t *testing.T) {
	wiretest.Conforms(t, func(n int) ([]wire.Carrier, error) { return open(n, 3, Config{}) })
}

func TestItIsACarrierOverTLS(t *testing.T) {
	wiretest.Conforms(t, func(n int) ([]wire.Carrier, error) { return open(n, 1, Config{TLS: &TLS{}}) })
}

func TestItIsACarrierOverTLSWithCertificatesOfBoth(t *testing.T) {
	a := newAuthority(t)
	both := a.signed(t, "127.0.0.1")
	both.Mutual = true
	wiretest.Conforms(t, func(n int) ([]wire.Carrier, error) { return open(n, 2, Config{TLS: both}) })
}

// TestItIsACarrierBesideMemory: workers of one process hand memory over, and messages between processes go over TCP, as
// in every run with several processes.
func TestItIsACarrierBesideMemory(t *testing.T) {
	for name, c := range map[string]Config{"plain": {}, "TLS": {TLS: &TLS{}}} {
		t.Run(name, func(t *testing.T) {
			wiretest.Conforms(t, func(n int) ([]wire.Carrier, error) {
				far := func(n int) ([]wire.Carrier, error) { return open(n, 1, c) }
				return wiretest.Split(far, []int{0, 1, 1, 0}[:n])
			})
		})
	}
}

// TestItIsACarrierOfSeveralWorkersAProcess: workers of one process share its Endpoint.
func TestItIsACarrierOfSeveralWorkersAProcess(t *testing.T) {
	wiretest.Conforms(t, func(n int) ([]wire.Carrier, error) {
		ends, at := make([]*Endpoint, (n+1)/2), make([]wire.Address, n)
		for p := range ends {
			ends[p], _ = listen(t, Config{Process: p})
		}
		for k := range at {
			at[k] = ends[k/2].Address()
		}
		all := make([]wire.Carrier, n)
		for p, e := range ends {
			mine := []int{2 * p, 2*p + 1}[:min(2, n-2*p)]
			one, err := e.Carriers(1, at, mine, 1)
			if err != nil {
				return nil, err
			}
			for _, k := range mine {
				all[k] = one[k]
			}
		}
		return all, nil
	})
}

func TestWhatItListensOn(t *testing.T) {
	e, _ := listen(t, Config{Address: ":0"})
	if at := string(e.Address().Data); !strings.HasPrefix(at, "plain 127.0.0.1:") {
		t.Errorf("without a host it listens on %s", at)
	}
	e, _ = listen(t, Config{Address: "0.0.0.0:0", Advertise: "host.example", TLS: &TLS{}})
	if at := string(e.Address().Data); !strings.HasPrefix(at, "tls host.example:") {
		t.Errorf("advertised: %s", at)
	}
}

func TestWhatListenRefuses(t *testing.T) {
	e, _ := listen(t, Config{})
	a := newAuthority(t).signed(t, "x")
	for says, c := range map[string]Config{
		"a token of 15 bytes; it has at least 16":  {Token: token[:15]},
		"a token of 0 bytes":                       {Token: []byte{}},
		"this is process -1":                       {Token: token, Process: -1},
		`"nowhere"; it is HOST:PORT`:               {Token: token, Address: "nowhere"},
		"address already in use":                   {Token: token, Address: e.at.String()},
		"say by which one others reach it":         {Token: token, Address: "0.0.0.0:0"},
		"without a certificate of this process's":  {Token: token, TLS: &TLS{Mutual: true}},
		"a certificate of this process's; give on": {Token: token, TLS: &TLS{Roots: a.Roots}},
	} {
		if e, err := Listen(t.Context(), c); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v; want something about %q", err, says)
			if err == nil {
				e.Close()
			}
		}
	}
	if _, err := New(0); err == nil {
		t.Error("carriers of no workers were made")
	}
}

func TestAddresses(t *testing.T) {
	e, _ := listen(t, Config{})
	at, err := AddressOf(e.at.String(), nil)
	if err != nil || string(at.Data) != string(e.Address().Data) {
		t.Errorf("%s, %v; want %s", at.Data, err, e.Address().Data)
	}
	if _, err := AddressOf("host", nil); err == nil {
		t.Error("an address without a port was taken")
	}
	other := func(data string) wire.Address {
		a := e.Address()
		a.Data = []byte(data)
		return a
	}
	for says, a := range map[string]wire.Address{
		"tls, and this process plain; both must":  other("tls 127.0.0.1:1"),
		"it is plain or tls, and HOST:PORT":       other("127.0.0.1:1"),
		`is "plain :1"`:                           other("plain :1"),
		"both must be the same":                   {Engine: "pipe", Version: "1"},
		`the peer's tcp is version "2", this one`: {Engine: "tcp", Version: "2", Data: []byte("plain a:1")},
	} {
		if _, err := e.Carriers(1, []wire.Address{e.Address(), a}, []int{0}, 1); err == nil ||
			!strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v; want something about %q", a.Data, err, says)
		}
	}
	for _, mine := range [][]int{{2}, {-1}, {0, 0}} {
		if _, err := e.Carriers(1, []wire.Address{e.Address(), e.Address()}, mine, 1); err == nil {
			t.Errorf("workers %v of 2 were taken", mine)
		}
	}
	for _, streams := range []int{-1, 0, 17} {
		_, err := e.Carriers(1, []wire.Address{e.Address(), e.Address()}, []int{0}, streams)
		if err == nil || !strings.HasSuffix(err.Error(), "streams; there are 1 to 15") {
			t.Errorf("%d streams: %v", streams, err)
		}
	}
}

// TestSessions: connections for a later session wait for its carriers. If a worker has closed its carrier before
// another worker dials, it has left in good order.
func TestSessions(t *testing.T) {
	a, _ := listen(t, Config{Process: 0})
	b, _ := listen(t, Config{Process: 1})
	at := []wire.Address{a.Address(), b.Address()}
	e := wire.Edge{ID: 1, From: 0, To: 1}
	for session := range uint32(3) {
		first, err := a.Carriers(session+1, at, []int{0}, 1)
		if err != nil {
			t.Fatal(err)
		}
		said := make(chan error, 2)
		first[0].Send(0, e, 0, []*wire.Buffer{bufferOf([]byte{byte(session)})}, func(err error) { said <- err })
		if err := errorOf(t, said, "a send to a carrier to come"); err != nil {
			t.Fatal(err)
		}
		second, err := b.Carriers(session+1, at, []int{1}, 1)
		if err != nil {
			t.Fatal(err)
		}
		got := make([]byte, 1)
		second[1].Recv(e, 0, bufferOf(got), func(err error) { said <- err })
		if err := errorOf(t, said, "a receive"); err != nil || got[0] != byte(session) {
			t.Fatalf("session %d: %v, %v", session, got, err)
		}
		if _, err := b.Carriers(session+2, at, []int{1}, 1); err == nil {
			t.Error("a session begins while carriers of another are open")
		}
		if err := first[0].Close(); err != nil {
			t.Error(err)
		}
		if err := second[1].Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := a.Carriers(3, at, []int{0}, 1); err == nil {
		t.Error("a session was begun twice")
	}
	// Worker 1 has left before worker 0 first dials.
	last := carriersOf(t, 9, a, b)
	if err := last[1].Close(); err != nil {
		t.Fatal(err)
	}
	said := make(chan error, 1)
	last[0].Send(0, e, 0, []*wire.Buffer{bufferOf([]byte{1})}, func(err error) { said <- err })
	select {
	case err := <-said:
		t.Error("a send to a worker that has left in good order ended: ", err)
	case <-time.After(100 * time.Millisecond):
	}
	closeAll(t, last[:1])
	if err := errorOf(t, said, "the send"); err != wire.ErrClosed {
		t.Error(err)
	}
}

// TestServices: services have their own connections, and the accepting side knows who dials.
func TestServices(t *testing.T) {
	for name, of := range map[string]*TLS{"plain": nil, "tls": {}} {
		leader, l := listen(t, Config{Process: 0, TLS: of})
		other, _ := listen(t, Config{Process: 7, TLS: of})
		control, files := leader.Listener(Control), leader.Listener(Files)
		for _, s := range []Service{Files, Control} {
			c, err := other.Dial(t.Context(), leader.Address(), s, 0)
			if err != nil {
				t.Fatal(name, err)
			}
			from := map[Service]net.Listener{Control: control, Files: files}[s]
			got, err := from.Accept()
			if err != nil {
				t.Fatal(err)
			}
			if n := got.(*Conn).From; n != 7 {
				t.Errorf("%s: it is from process %d", name, n)
			}
			for _, way := range [][2]net.Conn{{c, got}, {got, c}} {
				if _, err := way[0].Write([]byte("good day")); err != nil {
					t.Fatal(err)
				}
				b := make([]byte, 8)
				if _, err := io.ReadFull(way[1], b); err != nil || string(b) != "good day" {
					t.Errorf("%s: %q, %v", name, b, err)
				}
			}
			c.Close()
			if _, err := got.Read(make([]byte, 1)); err != io.EOF {
				t.Errorf("%s: behind the end: %v", name, err)
			}
			got.Close()
		}
		if _, err := other.Dial(t.Context(), leader.Address(), Control, 3); err == nil ||
			!strings.Contains(err.Error(), "this is process 0; it wants 3") {
			t.Error(err)
		}
		l.says(t, "this is process 0; it wants 3")
		if err := files.Close(); err != nil {
			t.Error(err)
		}
		if _, err := files.Accept(); err == nil {
			t.Error("a closed listener accepts")
		}
		gone := leader.Address()
		leader.Close()
		if _, err := control.Accept(); err == nil {
			t.Error("a listener of a closed Endpoint accepts")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		if _, err := other.Dial(ctx, gone, Control, 0); err == nil || !strings.Contains(err.Error(), "connection refused") ||
			!strings.Contains(err.Error(), "process 0 at 127.0.0.1:") {
			t.Error(err)
		}
		cancel()
	}
}

// TestHTTP: HTTP works over a service, after the handshake.
func TestHTTP(t *testing.T) {
	leader, _ := listen(t, Config{Process: 0, TLS: &TLS{}})
	other, _ := listen(t, Config{Process: 1, TLS: &TLS{}})
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, r.Body)
	})}
	over := make(chan error, 1)
	go func() { over <- s.Serve(leader.Listener(Files)) }()
	way := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return other.Dial(ctx, leader.Address(), Files, 0)
	}}
	client := &http.Client{Transport: way}
	for range 3 {
		got, err := client.Post("http://leader/", "text/plain", strings.NewReader("good day"))
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(got.Body)
		if err != nil || string(text) != "good day" {
			t.Errorf("%q, %v", text, err)
		}
		got.Body.Close()
	}
	way.CloseIdleConnections()
	if err := s.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if err := errorOf(t, over, "the server"); !errors.Is(err, http.ErrServerClosed) {
		t.Error(err)
	}
}

func TestReadTLS(t *testing.T) {
	dir := t.TempDir()
	a := newAuthority(t)
	certificate, private, roots := a.Files(t, dir, "127.0.0.1")
	got, err := ReadTLS(certificate, private, roots)
	if err != nil || !got.Roots.Equal(a.Roots()) {
		t.Fatal(err)
	}
	if got, err := ReadTLS(certificate, private, ""); err != nil || got.Roots != nil {
		t.Error(err)
	}
	for _, files := range [][3]string{{private, private, roots}, {certificate, private, private},
		{certificate, private, filepath.Join(dir, "none")}} {
		if _, err := ReadTLS(files[0], files[1], files[2]); err == nil || !strings.Contains(err.Error(), dir) {
			t.Errorf("%v: %v", files, err)
		}
	}
}
