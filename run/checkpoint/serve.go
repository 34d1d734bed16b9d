package checkpoint

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/millrace-ml/millrace/internal/crash"
)

// Between two processes one asks for bytes of files, one request at a time, and the other answers. A request is
// its length, 32 bits, and JSON. An answer is some bytes of busy, one a second while the file is held against its
// checksum; one of data or of sorry; a length, 64 bits; and so much data or text, with its CRC-32C, 32 bits. All
// numbers are little-endian.
const (
	busy  = 'w'
	data  = 'b'
	sorry = 'e'
)

const (
	maxRequest = 4096
	maxSorry   = 4096
	pace       = time.Second     // between two bytes of busy
	silence    = 8 * time.Second // that one who answers never takes
)

// request is what is asked for.
type request struct {
	File   string `json:"file"`
	Offset int64  `json:"offset"`
	Bytes  int64  `json:"bytes"`
}

// Shelf is the files of a checkpoint that are on this host.
type Shelf struct {
	path     string // of the checkpoint
	manifest *Manifest
	files    map[string]*local
}

// Close closes the files.
func (s *Shelf) Close() error {
	var all error
	for _, f := range s.files {
		all = errors.Join(all, f.Close())
	}
	return all
}

// Serve answers, over a connection, whoever lacks files of the checkpoint, until that ends. It closes the
// connection.
func (s *Shelf) Serve(connection io.ReadWriteCloser) error {
	defer connection.Close()
	for {
		var r request
		if err := readRequest(connection, &r); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return fmt.Errorf("checkpoint: a request: %w", err)
		}
		if err := s.answer(connection, r); err != nil {
			return fmt.Errorf("checkpoint: %s is asked for: %w", r.File, err)
		}
	}
}

func readRequest(from io.Reader, r *request) error {
	var head [4]byte
	if _, err := io.ReadFull(from, head[:]); err != nil {
		return err
	}
	n := binary.LittleEndian.Uint32(head[:])
	if n > maxRequest {
		return fmt.Errorf("it has %d bytes; one has at most %d", n, maxRequest)
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(from, text); err != nil {
		return fmt.Errorf("it is cut short: %w", err)
	}
	return json.Unmarshal(text, r)
}

// answer sends what is asked for, or why not.
func (s *Shelf) answer(to io.Writer, r request) error {
	f, err := s.file(r)
	if err == nil {
		err = wait(to, f.check)
	}
	if err != nil {
		text := err.Error()
		return frame(to, sorry, io.LimitReader(strings.NewReader(text), maxSorry), int64(min(len(text), maxSorry)))
	}
	return frame(to, data, io.NewSectionReader(f, r.Offset, r.Bytes), r.Bytes)
}

// file is the one that a request is of.
func (s *Shelf) file(r request) (*local, error) {
	f := s.files[r.File]
	switch {
	case f == nil:
		return nil, fmt.Errorf("it has no file %q of step %d", r.File, s.manifest.Steps)
	case r.Offset < 0 || r.Bytes < 0 || r.Offset > f.want.Bytes || r.Bytes > f.want.Bytes-r.Offset:
		return nil, fmt.Errorf("%d bytes from %d on of %s, which has %d", r.Bytes, r.Offset, r.File, f.want.Bytes)
	}
	return f, nil
}

// wait says that it is busy until work is done.
func wait(to io.Writer, work func() error) error {
	done := make(chan error, 1)
	crash.Go(func() { done <- work() })
	for {
		select {
		case err := <-done:
			return err
		case <-time.After(pace):
			if _, err := to.Write([]byte{busy}); err != nil {
				return errors.Join(err, <-done)
			}
		}
	}
}

// frame sends so many bytes of a reader.
func frame(to io.Writer, kind byte, from io.Reader, n int64) error {
	head := binary.LittleEndian.AppendUint64([]byte{kind}, uint64(n))
	if _, err := to.Write(head); err != nil {
		return err
	}
	sum := crc32.New(castagnoli)
	if _, err := io.CopyN(to, io.TeeReader(from, sum), n); err != nil {
		return err
	}
	_, err := to.Write(binary.LittleEndian.AppendUint32(nil, sum.Sum32()))
	return err
}

// remote is another process, which has files of a checkpoint.
type remote struct {
	process int
	dial    func() (io.ReadWriteCloser, error)
	silence time.Duration // that it never takes

	mu         sync.Mutex // one request at a time
	connection io.ReadWriteCloser

	ending sync.Mutex // guards open and ended
	open   io.Closer
	ended  bool
}

// elsewhere is a file of another process.
type elsewhere struct {
	of   *remote
	want File
}

// check has nothing to do: whoever has the file holds it against its checksum before anything of it is sent.
func (e *elsewhere) check() error { return nil }

func (e *elsewhere) Close() error { return nil }

func (e *elsewhere) ReadAt(into []byte, at int64) (int, error) {
	if err := e.of.read(request{File: e.want.Name, Offset: at, Bytes: int64(len(into))}, into); err != nil {
		return 0, fmt.Errorf("%s, which process %d has: %w", e.want.Name, e.of.process, err)
	}
	return len(into), nil
}

// read asks for bytes. What is wrong with a connection stays wrong.
func (r *remote) read(q request, into []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.connection == nil {
		c, err := r.dial()
		if err != nil {
			return err
		}
		if !r.take(c) {
			return errors.Join(errEnded, c.Close())
		}
		r.connection = c
	}
	text, err := json.Marshal(q)
	if err != nil {
		return err
	}
	text = append(binary.LittleEndian.AppendUint32(nil, uint32(len(text))), text...)
	if _, err := r.connection.Write(text); err != nil {
		return err
	}
	return readAnswer(&patient{r.connection, r.silence}, into)
}

var errEnded = errors.New("nobody wants it any more")

// take notes a connection that close ends; false where it was called before.
func (r *remote) take(c io.Closer) bool {
	r.ending.Lock()
	defer r.ending.Unlock()
	if !r.ended {
		r.open = c
	}
	return !r.ended
}

// close ends the connection, and whoever reads from it.
func (r *remote) close() error {
	r.ending.Lock()
	defer r.ending.Unlock()
	c := r.open
	if r.open, r.ended = nil, true; c == nil {
		return nil
	}
	return c.Close()
}

// patient reads for as long as something comes now and then.
type patient struct {
	io.Reader
	silence time.Duration
}

func (p *patient) Read(b []byte) (int, error) {
	if c, ok := p.Reader.(interface{ SetReadDeadline(time.Time) error }); ok {
		if err := c.SetReadDeadline(time.Now().Add(p.silence)); err != nil {
			return 0, err
		}
	}
	return p.Reader.Read(b)
}

// readAnswer reads what answer sends.
func readAnswer(from io.Reader, into []byte) error {
	var head [9]byte
	for head[0] = busy; head[0] == busy; {
		if _, err := io.ReadFull(from, head[:1]); err != nil {
			return err
		}
	}
	if _, err := io.ReadFull(from, head[1:]); err != nil {
		return err
	}
	n := binary.LittleEndian.Uint64(head[1:])
	switch {
	case head[0] == data && n == uint64(len(into)):
		return readSummed(from, into, crc32.New(castagnoli))
	case head[0] == sorry && n <= maxSorry:
		text := make([]byte, n)
		if err := readSummed(from, text, crc32.New(castagnoli)); err != nil {
			return err
		}
		return errors.New(string(text))
	}
	return fmt.Errorf("an answer of kind %d with %d bytes; %d were asked for", head[0], n, len(into))
}

// readSummed reads bytes and their checksum.
func readSummed(from io.Reader, into []byte, sum hash.Hash32) error {
	if _, err := io.ReadFull(from, into); err != nil {
		return err
	}
	var end [4]byte
	if _, err := io.ReadFull(from, end[:]); err != nil {
		return err
	}
	_, _ = sum.Write(into)
	if got := binary.LittleEndian.Uint32(end[:]); got != sum.Sum32() {
		return fmt.Errorf("checksum %08x; what has come has %08x", got, sum.Sum32())
	}
	return nil
}
