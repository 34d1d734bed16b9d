package tcp

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/wire"
	"github.com/millrace-ml/millrace/wire/wiretest"
)

// soon is how long what must happen may take on a loaded machine.
const soon = 20 * time.Second

// authority signs certificates.
type authority struct{ *wiretest.Authority }

func newAuthority(t testing.TB) *authority { return &authority{wiretest.NewAuthority(t)} }

// signed is TLS with a certificate of a host, for both roles.
func (a *authority) signed(t testing.TB, host string) *TLS {
	t.Helper()
	own := a.Signed(t, host)
	return &TLS{Certificate: &own, Roots: a.Roots()}
}

// token is a run's.
var token = []byte("0123456789abcdef0123456789abcdef")

// logged is what Endpoints log.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// says waits until something is logged.
func (l *logged) says(t testing.TB, what string) {
	t.Helper()
	for since := time.Now(); time.Since(since) < soon; time.Sleep(time.Millisecond) {
		if strings.Contains(l.String(), what) {
			return
		}
	}
	t.Fatalf("%q was not logged:\n%s", what, l)
}

// listen makes an Endpoint that ends with the test.
func listen(t testing.TB, c Config) (*Endpoint, *logged) {
	t.Helper()
	l := &logged{}
	c.Log = slog.New(slog.NewTextHandler(l, nil))
	if c.Token == nil {
		c.Token = token
	}
	e, err := Listen(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e, l
}

// carriersOf makes the carriers of a session of one worker an Endpoint.
func carriersOf(t testing.TB, session uint32, ends ...*Endpoint) []wire.Carrier {
	t.Helper()
	var at []wire.Address
	for _, e := range ends {
		at = append(at, e.Address())
	}
	var all []wire.Carrier
	for rank, e := range ends {
		one, err := e.Carriers(session, at, []int{rank}, 1)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, one[rank])
	}
	return all
}

func closeAll(t testing.TB, all []wire.Carrier) {
	t.Helper()
	for _, c := range all {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

// bufferOf is a buffer of bytes.
func bufferOf(data []byte) *wire.Buffer {
	return &wire.Buffer{DType: wire.U8, Shape: []int64{int64(len(data))}, Data: data}
}

// errorOf waits for one.
func errorOf(t testing.TB, c <-chan error, what string) error {
	t.Helper()
	select {
	case err := <-c:
		return err
	case <-time.After(soon):
		t.Fatalf("%s: nothing for %v", what, soon)
		panic("unreachable")
	}
}
