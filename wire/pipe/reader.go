package pipe

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/millrace-ml/millrace/wire"
)

// reader reads the frames of one peer.
type reader struct {
	file    *os.File
	stopped chan struct{} // closed by end
	once    sync.Once

	mu    sync.Mutex
	lanes map[uint32]*lane // by edge
	err   error
}

// lane is an edge: receives that wait for frames, or frames that wait for receives.
type lane struct {
	edge   wire.Edge
	posted []frame
	early  []early
}

// early is a frame that came before its receive.
type early struct {
	tag  uint64
	data []byte
}

func (r *reader) lane(id uint32) *lane {
	l := r.lanes[id]
	if l == nil {
		l = &lane{}
		r.lanes[id] = l
	}
	return l
}

func (r *reader) post(e wire.Edge, f frame) {
	r.mu.Lock()
	if err := r.err; err != nil {
		r.mu.Unlock()
		f.done(err)
		return
	}
	l := r.lane(e.ID)
	l.edge = e
	if len(l.early) == 0 {
		l.posted = append(l.posted, f)
		r.mu.Unlock()
		return
	}
	came := l.early[0]
	l.early = l.early[1:]
	r.mu.Unlock()
	err := fits(e, f, came.tag, int64(len(came.data)))
	if err == nil {
		copy(f.b.Data, came.data)
	}
	f.done(err)
}

// fits says why a frame is not the one that a receive is posted for.
func fits(e wire.Edge, f frame, tag uint64, size int64) error {
	if n, due := uint32(tag), uint32(f.tag); n != due {
		return fmt.Errorf("pipe: frame %d from worker %d to worker %d comes where %d is due", n, e.From, e.To, due)
	}
	if size != int64(len(f.b.Data)) {
		return &wire.LengthError{Edge: e, N: uint32(tag), Sent: size, Room: int64(len(f.b.Data))}
	}
	return nil
}

func (r *reader) run() {
	err := r.read()
	r.mu.Lock()
	if r.err == nil && err != nil && !gone(err) {
		r.err = err
	}
	r.mu.Unlock()
	if !gone(err) {
		r.fail(err)
		return
	}
	<-r.stopped // until then nobody is known to be dead
	r.mu.Lock()
	err = r.err
	r.mu.Unlock()
	r.fail(err)
}

// gone says whether an error is that the other end, or this one, was closed.
func gone(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, os.ErrClosed)
}

// fail ends every receive that is posted.
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

// longest bounds a frame.
const longest = wire.MaxBytes

// read takes frame after frame until the pipe ends.
func (r *reader) read() error {
	in := bufio.NewReaderSize(r.file, 1<<12)
	var prefix [prefixBytes]byte
	for {
		if _, err := io.ReadFull(in, prefix[:]); err != nil {
			return err
		}
		tag, size := binary.LittleEndian.Uint64(prefix[:]), binary.LittleEndian.Uint64(prefix[8:])
		if size > longest {
			return fmt.Errorf("pipe: a frame of %d bytes; it has at most %d", size, uint64(longest))
		}
		edge := uint32(tag >> wire.NumberBits & (wire.MaxEdges - 1))
		r.mu.Lock()
		l := r.lane(edge)
		if len(l.posted) == 0 {
			r.mu.Unlock()
			data := make([]byte, size)
			if _, err := io.ReadFull(in, data); err != nil {
				return err
			}
			r.keep(l, early{tag, data})
			continue
		}
		f := l.posted[0]
		l.posted = l.posted[1:]
		e := l.edge
		r.mu.Unlock()
		err := fits(e, f, tag, int64(size))
		if err != nil {
			f.done(err)
			return err
		}
		if _, err := io.ReadFull(in, f.b.Data); err != nil {
			<-r.stopped
			f.done(r.reason())
			return err
		}
		f.done(nil)
	}
}

// reason is why the reader was ended.
func (r *reader) reason() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// keep gives a frame to a receive that was posted meanwhile, or keeps it.
func (r *reader) keep(l *lane, came early) {
	r.mu.Lock()
	if len(l.posted) == 0 {
		l.early = append(l.early, came)
		r.mu.Unlock()
		return
	}
	f := l.posted[0]
	l.posted = l.posted[1:]
	r.mu.Unlock()
	err := fits(l.edge, f, came.tag, int64(len(came.data)))
	if err == nil {
		copy(f.b.Data, came.data)
	}
	f.done(err)
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
