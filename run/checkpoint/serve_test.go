package checkpoint

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// shelf returns the Shelf of a checkpoint of one stage on this host, and its folder.
func shelf(t *testing.T) (*Shelf, string) {
	t.Helper()
	dirs := folders(t, 1)
	spread(t, dirs, 2, 0)
	s, err := Among(dirs[0], &hosts{dirs: dirs})
	if err != nil {
		t.Fatal(err)
	}
	shelf := NewShelf(dirs[0])
	if _, _, err := shelf.Take(s); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { shelf.Close() })
	return shelf, dirs[0]
}

// ask returns a remote that sends requests to this shelf.
func ask(s *Shelf) *remote {
	return &remote{ctx: s.ctx, silence: time.Second, dial: func() (io.ReadWriteCloser, error) {
		here, there := net.Pipe()
		go s.Serve(there)
		return here, nil
	}}
}

func TestBytesOfFilesAreServed(t *testing.T) {
	s, dir := shelf(t)
	whole, err := os.ReadFile(filepath.Join(dir, "step-00000002", "stage-0.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	r := ask(s)
	for _, at := range [][2]int{{0, len(whole)}, {0, 8}, {8, 1}, {len(whole) - 1, 1}, {len(whole), 0}, {3, 0}} {
		into := make([]byte, at[1])
		err := r.read(request{File: "stage-0.safetensors", Offset: int64(at[0]), Bytes: int64(at[1])}, into)
		if err != nil || !bytes.Equal(into, whole[at[0]:at[0]+at[1]]) {
			t.Errorf("%v: %v", at, err)
		}
	}
	for says, q := range map[string]request{
		`no file "manifest.json"`: {File: "manifest.json"},
		`no file "../x"`:          {File: "../x"},
		`no file ""`:              {},
		"which has":               {File: "stage-0.safetensors", Offset: int64(len(whole)), Bytes: 1},
		"bytes from -1 on":        {File: "stage-0.safetensors", Offset: -1, Bytes: 2},
		"-1 bytes from":           {File: "stage-0.safetensors", Bytes: -1},
		"9223372036854775807":     {File: "stage-0.safetensors", Offset: 1, Bytes: 1<<63 - 1},
	} {
		if err := r.read(q, nil); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%+v: %v; want something about %q", q, err, says)
		}
	}
	into := make([]byte, 4) // further requests still work
	if err := r.read(request{File: "stage-0.safetensors", Bytes: 4}, into); err != nil {
		t.Error(err)
	}
}

// No part of a changed file is sent, not even a part that has not changed.
func TestADamagedFileIsNotServed(t *testing.T) {
	s, dir := shelf(t)
	flip(t, filepath.Join(dir, "step-00000002", "stage-0.safetensors"))
	r := ask(s)
	if err := r.read(request{File: "stage-0.safetensors", Bytes: 8}, make([]byte, 8)); err == nil ||
		!strings.Contains(err.Error(), "it has changed since") && !strings.Contains(err.Error(), "has changed since") {
		t.Error(err)
	}
}

// scripted is a connection whose other end sends this text, whatever is requested.
type scripted struct {
	io.Reader
	closed bool
}

func (s *scripted) Write(p []byte) (int, error) { return len(p), nil }
func (s *scripted) Close() error                { s.closed = true; return nil }

func TestABadAnswerIsRefused(t *testing.T) {
	head := func(kind byte, n uint64, text string) []byte {
		return append(binary.LittleEndian.AppendUint64([]byte{kind}, n), text...)
	}
	for says, answer := range map[string][]byte{
		"EOF":                           nil,
		"unexpected EOF":                head(found, 4, "abc"),
		"an answer of kind 120":         head('x', 4, "abcd"),
		"kind 98 with 5 bytes; 4 were":  head(found, 5, "abcde"),
		"kind 101 with 4294967296 byte": head(sorry, 1<<32, "abcde"),
		"checksum 00000000":             head(found, 4, "abcd\x00\x00\x00\x00"),
	} {
		r := &remote{ctx: t.Context(), dial: func() (io.ReadWriteCloser, error) {
			return &scripted{Reader: bytes.NewReader(append([]byte("www"), answer...))}, nil
		}}
		if err := r.read(request{Bytes: 4}, make([]byte, 4)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v; want something about %q", answer, err, says)
		}
	}
}

func TestABadRequestEndsTheConnection(t *testing.T) {
	s, _ := shelf(t)
	for says, text := range map[string][]byte{
		"it has 4294967295 bytes": {255, 255, 255, 255},
		"cut short":               {9, 0, 0, 0, '{'},
		"looking for beginning":   {2, 0, 0, 0, 'x', 'y'},
		"a request: ":             {4, 0},
	} {
		c := &scripted{Reader: bytes.NewReader(text)}
		if err := s.Serve(c); err == nil || !strings.Contains(err.Error(), says) || !c.closed {
			t.Errorf("%q: %v, closed: %v; want something about %q", text, err, c.closed, says)
		}
	}
	if err := s.Serve(&scripted{Reader: bytes.NewReader(nil)}); err != nil {
		t.Error(err)
	}
}

// A read fails if the other process is silent for too long. If that process answers later, its answer is not taken for
// the answer to another read. A process that checks a file sends a busy byte every second. If it cannot send one, it
// ends the check.
func TestSilenceIsNotWaitedFor(t *testing.T) {
	here, there := net.Pipe()
	defer there.Close()
	go io.Copy(io.Discard, there)
	r := &remote{ctx: t.Context(), silence: 20 * time.Millisecond,
		dial: func() (io.ReadWriteCloser, error) { return here, nil }}
	if err := r.read(request{Bytes: 4}, make([]byte, 4)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error(err)
	}
	go frame(there, found, strings.NewReader("late"), 4)
	if err := r.read(request{Offset: 4, Bytes: 4}, make([]byte, 4)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the answer to the request before is taken: %v", err)
	}
	var said bytes.Buffer
	s, _ := shelf(t)
	err := s.wait(&said, func(context.Context) error { time.Sleep(pace + pace/5); return io.EOF })
	if err != io.EOF || said.String() != string(rune(busy)) {
		t.Errorf("%q, %v", said.String(), err)
	}
	until := func(ctx context.Context) error { <-ctx.Done(); return nil }
	if here.Close(); !errors.Is(s.wait(here, until), io.ErrClosedPipe) { // its busy bytes cannot be sent
		t.Error("a file is checked for nobody")
	}
}

// If the run ends during a read, the read returns an error, and so does a later read.
func TestAReadEndsWithTheRun(t *testing.T) {
	here, there := net.Pipe()
	defer there.Close()
	ctx, cancel := context.WithCancelCause(t.Context())
	r := &remote{ctx: ctx, silence: time.Minute, dial: func() (io.ReadWriteCloser, error) { return here, nil }}
	done := make(chan error, 1)
	go func() { done <- r.read(request{Bytes: 4}, make([]byte, 4)) }()
	if _, err := there.Read(make([]byte, 4)); err != nil { // reads the request
		t.Fatal(err)
	}
	cancel(errEnded)
	if err := <-done; err == nil {
		t.Error("it has read")
	}
	late := &remote{ctx: ctx, dial: r.dial}
	if err := late.read(request{}, nil); !errors.Is(err, errEnded) {
		t.Error(err)
	}
}

func FuzzRequests(f *testing.F) {
	f.Add([]byte("\x02\x00\x00\x00{}"))
	f.Add([]byte("\x2a\x00\x00\x00{\"file\":\"stage-0.safetensors\",\"bytes\": 44}"))
	f.Add([]byte{255, 255, 255, 255})
	f.Fuzz(func(t *testing.T, text []byte) {
		s := NewShelf("none")
		s.manifest = &Manifest{}
		_ = s.Serve(&scripted{Reader: bytes.NewReader(text)})
		_ = readAnswer(bytes.NewReader(text), make([]byte, 8))
	})
}
