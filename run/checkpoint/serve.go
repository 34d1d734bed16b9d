package checkpoint

import (
	"context"
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

// In this protocol a process requests bytes of a file from another process, one request at a time. A request is a
// length (32 bits) and JSON of that length. While the other process compares the file with its checksum, it sends busy
// bytes, one per second. Then it sends one byte, found or sorry. After this byte come a length (64 bits), the file's
// bytes or the reason as text, and their CRC-32C (32 bits). All numbers are little-endian.
const (
	busy  = 'w'
	found = 'b'
	sorry = 'e'
)

const (
	maxRequest = 4096
	maxSorry   = 4096
	pace       = time.Second     // time between two bytes that say busy
	silence    = 8 * time.Second // longest time that an answering process sends nothing
)

// request asks for bytes of a file.
type request struct {
	File   string `json:"file"`
	Offset int64  `json:"offset"`
	Bytes  int64  `json:"bytes"`
}

// Serve answers requests for files of the checkpoint over a connection until the connection ends, and closes it.
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

// answer sends the requested bytes, or the reason why it cannot.
func (s *Shelf) answer(to io.Writer, r request) error {
	f, err := s.file(r)
	if err == nil {
		err = s.wait(to, f.check)
	}
	if err != nil {
		text := err.Error()
		return frame(to, sorry, io.LimitReader(strings.NewReader(text), maxSorry), int64(min(len(text), maxSorry)))
	}
	return frame(to, found, io.NewSectionReader(f, r.Offset, r.Bytes), r.Bytes)
}

// file returns the file of a request.
func (s *Shelf) file(r request) (*local, error) {
	of, steps := s.listed(r.File)
	switch {
	case of == nil:
		return nil, fmt.Errorf("it has no file %q of step %d", r.File, steps)
	case r.Offset < 0 || r.Bytes < 0 || r.Offset > of.Bytes || r.Bytes > of.Bytes-r.Offset:
		return nil, fmt.Errorf("%d bytes from %d on of %s, which has %d", r.Bytes, r.Offset, r.File, of.Bytes)
	}
	return s.take(steps, *of)
}

// wait sends busy bytes until `work` is done. If they cannot be sent, it ends the work.
func (s *Shelf) wait(to io.Writer, work func(context.Context) error) error {
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	done := make(chan error, 1)
	crash.Go(func() { done <- work(ctx) })
	for {
		select {
		case err := <-done:
			return err
		case <-time.After(pace):
			if _, err := to.Write([]byte{busy}); err != nil {
				cancel()
				<-done
				return err
			}
		}
	}
}

// frame sends n bytes of a reader.
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

// remote is another process that has files of a checkpoint.
type remote struct {
	ctx     context.Context // ends the connection and all reads
	process int
	dial    func() (io.ReadWriteCloser, error)
	silence time.Duration // how long the process may send nothing

	mu         sync.Mutex // held during a request and its answer
	connection io.ReadWriteCloser
	broken     error // the first failure of an open connection; after it nothing is requested, as late answers may come
}

// elsewhere is a file of another process. That process compares the file with its checksum before it sends any of it.
type elsewhere struct {
	of   *remote
	want File
}

func (e *elsewhere) ReadAt(into []byte, at int64) (int, error) {
	if err := e.of.read(request{File: e.want.Name, Offset: at, Bytes: int64(len(into))}, into); err != nil {
		return 0, &PeerError{e.of.process, e.want.Name, err}
	}
	return len(into), nil
}

// PeerError reports that another process did not send the requested bytes of a file. Err is the reason that the process
// gave, or the error of the connection.
type PeerError struct {
	Process int
	File    string
	Err     error
}

func (e *PeerError) Error() string {
	return fmt.Sprintf("%s, which rank %d has: %v", e.File, e.Process, e.Err)
}

// Unwrap returns the reason.
func (e *PeerError) Unwrap() error { return e.Err }

// read requests bytes. Once an open connection has failed, every later read fails too.
func (r *remote) read(q request, into []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ctx.Err() != nil {
		return context.Cause(r.ctx)
	}
	if r.broken != nil {
		return r.broken
	}
	if r.connection == nil {
		c, err := r.dial()
		if err != nil {
			return err
		}
		r.connection = c
		context.AfterFunc(r.ctx, crash.Caught(func() { _ = c.Close() })) // nothing is requested any more
	}
	text, err := json.Marshal(q)
	if err != nil {
		return err
	}
	text = append(binary.LittleEndian.AppendUint32(nil, uint32(len(text))), text...)
	if _, err = r.connection.Write(text); err == nil {
		err = readAnswer(&patient{r.connection, r.silence}, into)
	}
	var refused refusal
	if !errors.As(err, &refused) {
		r.broken = err
	}
	return err
}

// refusal is the reason that a process gives for not sending bytes.
type refusal string

func (r refusal) Error() string { return string(r) }

// patient reads until a pause is longer than `silence`.
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
	n, err := p.Reader.Read(b)
	moved.Add(int64(n))
	return n, err
}

// readAnswer reads what the method answer of a Shelf sends.
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
	case head[0] == found && n == uint64(len(into)):
		return readSummed(from, into, crc32.New(castagnoli))
	case head[0] == sorry && n <= maxSorry:
		text := make([]byte, n)
		if err := readSummed(from, text, crc32.New(castagnoli)); err != nil {
			return err
		}
		return refusal(text)
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
