package pipe

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"

	"github.com/millrace-ml/millrace/wire"
)

// reader reads the frames from one peer.
type reader struct {
	file    *os.File
	stopped chan struct{} // closed by the method `end`
	count   func(bytes int)
	once    sync.Once

	mu    sync.Mutex
	lanes map[uint32]*lane // by edge
	err   error
}

// lane is the queue of an edge: receives that wait for frames, or frames that wait for receives.
type lane struct {
	posted []frame
	early  []early
}

// early is a frame that came before its receive was posted.
type early struct {
	tag  uint64
	data []byte
}

// lane returns the queue of an edge. The caller holds mu.
func (r *reader) lane(id uint32) *lane {
	l := r.lanes[id]
	if l == nil {
		l = &lane{}
		r.lanes[id] = l
	}
	return l
}

func (r *reader) post(f frame) {
	r.mu.Lock()
	if err := r.err; err != nil {
		r.mu.Unlock()
		f.done(err)
		return
	}
	l := r.lane(f.edge.ID)
	if len(l.early) == 0 {
		l.posted = append(l.posted, f)
		r.mu.Unlock()
		return
	}
	came := l.early[0]
	l.early = slices.Delete(l.early, 0, 1)
	r.mu.Unlock()
	f.done(f.fill(came))
}

// fill copies an early frame into a receive, or returns an error if it belongs to another receive.
func (f *frame) fill(came early) error {
	err := f.fits(came.tag, int64(len(came.data)))
	if err == nil {
		copy(f.b.Data, came.data)
	}
	return err
}

// fits returns an error if a frame is not the frame that the receive is posted for.
func (f *frame) fits(tag uint64, size int64) error {
	if n, due := uint32(tag), uint32(f.tag); n != due {
		return fmt.Errorf("pipe: frame %d from worker %d to worker %d comes where %d is due", n, f.edge.From, f.edge.To, due)
	}
	if size != int64(len(f.b.Data)) {
		return &wire.LengthError{Edge: f.edge, N: uint32(tag), Sent: size, Room: int64(len(f.b.Data))}
	}
	return nil
}

func (r *reader) run() {
	err := r.read()
	r.mu.Lock()
	if r.err == nil && !gone(err) {
		r.err = err
	}
	r.mu.Unlock()
	if !gone(err) {
		r.fail(err)
		return
	}
	<-r.stopped // a closed pipe does not yet prove the peer dead; wait for Fail or Close
	r.mu.Lock()
	err = r.err
	r.mu.Unlock()
	r.fail(err)
}

// gone says whether an error means that either end of the pipe was closed.
func gone(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, os.ErrClosed)
}

// fail ends every posted receive.
func (r *reader) fail(err error) {
	r.mu.Lock()
	var all []frame
	for _, l := range r.lanes {
		all = append(all, l.posted...)
		l.posted = nil
	}
	r.mu.Unlock()
	for _, f := range all {
		f.done(err)
	}
}

// counted counts the bytes that are read.
type counted struct {
	from  io.Reader
	count func(bytes int)
}

func (c counted) Read(to []byte) (int, error) {
	n, err := c.from.Read(to)
	c.count(n)
	return n, err
}

// read reads frames until the pipe ends or something in it is not a frame.
func (r *reader) read() error {
	in := bufio.NewReaderSize(counted{r.file, r.count}, 1<<12)
	var prefix [prefixBytes]byte
	for {
		if _, err := io.ReadFull(in, prefix[:]); err != nil {
			return err
		}
		tag, size := binary.LittleEndian.Uint64(prefix[:]), binary.LittleEndian.Uint64(prefix[8:])
		if size > wire.MaxBytes {
			return fmt.Errorf("pipe: a frame of %d bytes; it has at most %d", size, uint64(wire.MaxBytes))
		}
		f, posted := r.next(tag, nil)
		if posted {
			if err := f.fits(tag, int64(size)); err != nil {
				f.done(err)
				return err
			}
			if _, err := io.ReadFull(in, f.b.Data); err != nil {
				<-r.stopped
				f.done(r.reason())
				return err
			}
			f.done(nil)
			continue
		}
		came := early{tag, make([]byte, size)}
		if _, err := io.ReadFull(in, came.data); err != nil {
			return err
		}
		if f, posted = r.next(tag, &came); posted { // the receive was posted meanwhile
			err := f.fill(came)
			f.done(err)
			if err != nil {
				return err
			}
		}
	}
}

// next returns the receive that is posted for the next frame of an edge. If there is none, it keeps the early frame.
func (r *reader) next(tag uint64, came *early) (f frame, posted bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.lane(uint32(tag >> wire.NumberBits & (wire.MaxEdges - 1)))
	if len(l.posted) > 0 {
		f = l.posted[0]
		l.posted = slices.Delete(l.posted, 0, 1)
		return f, true
	}
	if came != nil {
		l.early = append(l.early, *came)
	}
	return frame{}, false
}

// reason returns why the reader was ended.
func (r *reader) reason() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

func (r *reader) end(err error) {
	r.mu.Lock()
	if r.err == nil {
		r.err = err
	}
	r.mu.Unlock()
	r.once.Do(func() { close(r.stopped) })
	r.file.Close()
}
