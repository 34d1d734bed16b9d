package tcp

import (
	"bufio"
	"errors"
	"fmt"
	"io"
)

// writeNow writes as much of a batch as the kernel takes without delay, and leaves the rest to the stream's goroutine.
func (w *stream) writeNow() {
	all := w.copied[:0]
	for _, p := range w.batch {
		all = append(p.prefix(all), p.data()...)
	}
	w.copied = all
	if n := w.now(all); n < len(all) {
		w.to.mu.Lock()
		w.rest = all[n:]
		w.to.more.Broadcast()
		w.to.mu.Unlock()
		return
	}
	w.written(nil)
}

// write writes a batch, or the rest of one. Without TLS it uses one call.
func (w *stream) write(batch []piece) error {
	if w.rest != nil {
		_, err := w.conn.Write(w.rest)
		return err
	}
	room := w.prefixes[:0]
	w.buffers = w.buffers[:0]
	for _, p := range batch {
		at := len(room)
		room = p.prefix(room)
		w.buffers = append(w.buffers, room[at:])
		if data := p.data(); len(data) > 0 {
			w.buffers = append(w.buffers, data)
		}
	}
	if w.small == nil {
		all := w.buffers // a copy of the slice, because WriteTo shortens it
		_, err := all.WriteTo(w.conn.Conn)
		return w.conn.why(err)
	}
	for _, b := range w.buffers {
		if _, err := w.small.Write(b); err != nil {
			return err
		}
	}
	return w.small.Flush()
}

// written settles the chunks of a batch after its write. Lent frames stay open until the receiver has read them.
func (w *stream) written(err error) {
	t := w.to
	var few [4]*send
	over := few[:0]
	t.mu.Lock()
	for _, p := range w.batch {
		if p.lent { // settled when the receiver answers
			continue
		}
		t.moved.Add(int64(len(p.data())))
		s := p.of
		s.torn = s.torn || err != nil
		if t.settle(s) {
			over = append(over, s)
		}
	}
	clear(w.batch) // their memory no longer belongs to this worker
	clear(w.buffers)
	w.writing, w.failed, w.rest = false, err != nil, nil
	if len(t.urgent)+len(t.queue) > 0 || t.err != nil {
		t.more.Broadcast()
	}
	ended := t.err
	t.mu.Unlock()
	for _, s := range over {
		s.end(ended)
	}
}

// run writes posted frames until the target ends.
func (w *stream) run() error {
	for {
		batch := w.take()
		if batch == nil {
			w.conn.leave()
			return nil
		}
		err := w.write(batch)
		w.written(err)
		if err != nil {
			return err
		}
	}
}

// up stores the dialled connection. It returns false if the target has ended.
func (w *stream) up(c *Conn) bool {
	w.to.mu.Lock()
	defer w.to.mu.Unlock()
	if w.to.err != nil {
		return false
	}
	if w.conn = c; c.Conn == c.raw {
		w.now = atOnce(c.raw)
	} else {
		w.small = bufio.NewWriterSize(c, readBytes)
	}
	return true
}

// errTalks reports a receiver that sends frames.
var errTalks = errors.New("it sends frames on a connection that it is to receive on")

// heed reads the receiver's answers about lent memory, until the receiver leaves or the connection ends. Once the
// receivers of all streams can read lent memory, heed calls `lending`. If a frame that cannot be read needs a new
// stream, heed calls `more`, which must dial it.
func (w *stream) heed(lending func(), more func(*stream)) error {
	prefix := make([]byte, prefixBytes)
	for {
		if _, err := io.ReadFull(w.conn, prefix); err != nil {
			return err
		}
		kind, c, err := readPrefix(prefix)
		switch {
		case err != nil || kind == kindLeave:
			return err
		case kind == kindReads && !w.lends:
			if w.to.lend(w) {
				lending()
			}
		case kind == kindTaken || kind == kindBack:
			if err := w.answered(kind, c.tag, more); err != nil {
				return err
			}
		default:
			return errTalks
		}
	}
}

// answered handles the receiver's answer to a lent frame: it was read, or it cannot be read.
func (w *stream) answered(kind byte, tag uint64, more func(*stream)) error {
	t := w.to
	t.mu.Lock()
	if t.err != nil { // all loans have been taken back
		t.mu.Unlock()
		return nil
	}
	if len(w.lent) == 0 || w.lent[0].chunk().tag != tag {
		t.mu.Unlock()
		return fmt.Errorf("it says that it has read what is not the next that was lent to it: %x", tag)
	}
	p := w.lent[0]
	w.lent = withoutFirst(w.lent)
	if kind == kindBack {
		fresh := t.takeBack(p)
		t.mu.Unlock()
		if fresh != nil {
			more(fresh)
		}
		return nil
	}
	t.moved.Add(p.chunk().total)
	over := t.settle(p.of)
	t.mu.Unlock()
	if over {
		p.of.done(nil)
	}
	return nil
}
