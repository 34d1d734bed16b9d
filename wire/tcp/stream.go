package tcp

import (
	"bufio"
	"errors"
	"io"
)

// writeNow writes a batch as far as the kernel takes it at once, and leaves the rest to the stream's goroutine.
func (w *stream) writeNow() {
	all := w.copied[:0]
	for _, p := range w.batch {
		all = append(appendPrefix(all, kindChunk, p.chunk()), p.data()...)
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

// write writes a batch in one go, or what is left of it.
func (w *stream) write(batch []piece) error {
	if w.rest != nil {
		_, err := w.conn.Write(w.rest)
		return err
	}
	room := w.prefixes[:0]
	w.buffers = w.buffers[:0]
	for _, p := range batch {
		at := len(room)
		room = appendPrefix(room, kindChunk, p.chunk())
		w.buffers = append(w.buffers, room[at:])
		if data := p.data(); len(data) > 0 {
			w.buffers = append(w.buffers, data)
		}
	}
	if w.small == nil {
		all := w.buffers // WriteTo shortens it
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

// written says that nobody reads the memory of the batch any more.
func (w *stream) written(err error) {
	t := w.to
	var few [4]*send
	over := few[:0]
	t.mu.Lock()
	for _, p := range w.batch {
		s := p.of
		s.busy--
		s.torn = s.torn || err != nil
		if whole := s.frame == len(s.frames) && !s.torn; s.busy == 0 && (whole || t.err != nil) {
			delete(t.open, s)
			over = append(over, s)
		}
	}
	clear(w.batch) // whose memory is not this worker's any more
	clear(w.buffers)
	w.writing, w.failed, w.rest = false, err != nil, nil
	if len(t.urgent)+len(t.queue) > 0 || t.err != nil {
		t.more.Broadcast()
	}
	ended := t.err
	t.mu.Unlock()
	for _, s := range over {
		if s.torn || s.frame < len(s.frames) {
			s.done(ended)
		} else {
			s.done(nil)
		}
	}
}

// run writes what is posted until the target ends.
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

// up says that a stream is dialled; false where the target has ended.
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

// errTalks is a receiver that sends.
var errTalks = errors.New("it sends frames on a connection that it is to receive on")

// heed waits for the receiver to leave, or for the connection to end.
func (w *stream) heed() error {
	prefix := make([]byte, prefixBytes)
	if _, err := io.ReadFull(w.conn, prefix); err != nil {
		return err
	}
	_, leaves, err := readPrefix(prefix)
	if err == nil && !leaves {
		err = errTalks
	}
	return err
}
