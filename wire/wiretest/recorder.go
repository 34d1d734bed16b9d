package wiretest

import (
	"bytes"
	"io"
	"net"
	"sync"
	"testing"
)

// Recorder forwards one connection to an address, and records what the dialler sends, before the listener gets it.
func Recorder(t testing.TB, to string) (at string, recorded func() []byte) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &recording{}
	var all sync.WaitGroup
	all.Go(func() {
		in, err := l.Accept()
		if err != nil {
			return
		}
		defer in.Close()
		out, err := net.Dial("tcp", to)
		if err != nil {
			t.Error(err)
			return
		}
		all.Go(func() {
			_, _ = io.Copy(in, out) // until either end closes
			in.Close()
		})
		_, _ = io.Copy(io.MultiWriter(r, out), in) // until either end closes
		out.Close()
	})
	t.Cleanup(func() {
		l.Close()
		all.Wait()
	})
	return l.Addr().String(), r.said
}

// recording holds what was sent so far.
type recording struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (r *recording) Write(text []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(text)
}

func (r *recording) said() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return bytes.Clone(r.text.Bytes())
}
