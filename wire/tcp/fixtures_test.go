package tcp

import (
	"bufio"
	"bytes"
	"encoding/json"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/wire"
	"github.com/millrace-ml/millrace/wire/wiretest"
)

// soon is the longest time that an expected event may take on a busy machine.
const soon = 20 * time.Second

type authority struct{ *wiretest.Authority }

func newAuthority(t testing.TB) *authority { return &authority{wiretest.NewAuthority(t)} }

// signed returns TLS settings with a certificate for a host, for diallers and listeners.
func (a *authority) signed(t testing.TB, host string) *TLS {
	t.Helper()
	own := a.Signed(t, host)
	return &TLS{Certificate: &own, Roots: a.Roots()}
}

// token is the token of all tests' runs.
var token = []byte("0123456789abcdef0123456789abcdef")

// logged collects what Endpoints log.
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

// says waits until a text is logged.
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

// carriersOf makes the carriers of a session, with one worker for each Endpoint.
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

// bufferOf returns a buffer of bytes.
func bufferOf(data []byte) *wire.Buffer {
	return &wire.Buffer{DType: wire.U8, Shape: []int64{int64(len(data))}, Data: data}
}

// errorOf waits for an error on a channel.
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

// process is a worker in another process.
type process struct {
	command *exec.Cmd
	in      *json.Encoder
	out     *bufio.Reader
	at      wire.Address
}

// begin starts a worker in a process of its own. If the command `behind` is given, begin starts the process through
// that command.
func begin(t testing.TB, k task, behind ...string) *process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	line := append(behind, self)
	c := exec.CommandContext(t.Context(), line[0], line[1:]...)
	c.Env, c.Stderr = append(os.Environ(), childVariable+"=1"), os.Stderr
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	p := &process{command: c, in: json.NewEncoder(in), out: bufio.NewReader(out)}
	if err := p.in.Encode(k); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(p.line(t)), &p.at); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *process) line(t testing.TB) string {
	t.Helper()
	text, err := p.out.ReadString('\n')
	if err != nil {
		t.Fatalf("worker: %q, %v", text, err)
	}
	return strings.TrimSpace(text)
}
