package tcp

import (
	"bufio"
	"math"
	"net"
	"sync"
	"sync/atomic"

	"github.com/millrace-ml/millrace/wire"
	"github.com/millrace-ml/millrace/wire/tcp/memory"
)

const (
	mostChunks = 64       // most small chunks in one write
	nowBytes   = 16 << 10 // most bytes that the posting goroutine writes itself
)

// target holds everything to be sent to one worker.
type target struct {
	mu      sync.Mutex
	more    *sync.Cond // signals that something was posted, a stream has become free, or `err` was set
	urgent  []*send    // credits, which are sent first
	held    int        // readers that are telling their worker of a message; credits wait for the worker's answer
	queue   []*send
	back    []*send            // lent frames that could not be read; they get a stream of their own
	open    map[*send]struct{} // the sends whose `done` has not been called
	streams []*stream          // nil: nothing has been posted yet
	moved   *atomic.Int64
	lends   int   // streams whose receiver reads lent memory
	least   int   // smallest frame that is lent, in bytes; MaxInt once a frame could not be read
	err     error // not nil: nothing more is sent
}

// send holds the frames that were posted in one call.
type send struct {
	tag    uint64 // tag of the first frame
	frames []*wire.Buffer
	done   func(error)
	least  int   // smallest frame that is lent, in bytes
	size   int64 // bytes of all frames that are not lent
	short  bool  // each frame fits into one chunk
	frame  int   // frame of the next chunk; len(frames) when all are taken
	index  int64 // index of the next chunk in its frame
	busy   int   // chunks being written, plus frames being lent
	torn   bool  // a chunk could not be written
}

// stream is one connection to a worker. One goroutine at a time writes to it: the stream's own goroutine, or a
// goroutine that posts.
type stream struct {
	to      *target
	number  int
	again   bool    // this stream is for frames that were lent and could not be read
	conn    *Conn   // nil until it is dialled
	writing bool    // a batch is being written
	failed  bool    // nothing is written any more
	lends   bool    // the receiver reads this worker's memory
	lent    []piece // lent frames that the receiver has not read yet, in order

	batch    []piece
	prefixes [mostChunks * prefixBytes]byte
	buffers  net.Buffers
	small    *bufio.Writer // joins small chunks into one TLS record; nil without TLS
	now      func(b []byte) int
	copied   []byte // a batch that is written immediately (writeNow)
	rest     []byte // the part of `copied` that the kernel did not take
}

// piece is a chunk of a frame.
type piece struct {
	of    *send
	frame int
	index int64
	lent  bool // the whole frame is lent, so its bytes are not sent
}

func newTarget(least int) *target {
	t := &target{open: map[*send]struct{}{}, least: least, moved: new(atomic.Int64)}
	t.more = sync.NewCond(&t.mu)
	return t
}

// begin makes the streams. It returns nil if they exist already or the target has ended.
func (t *target) begin(streams int) []*stream {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.streams != nil || t.err != nil {
		return nil
	}
	for i := range streams {
		t.streams = append(t.streams, &stream{to: t, number: i})
	}
	return t.streams
}

// post queues frames for a stream's goroutine, or writes them itself if that does not block.
func (t *target) post(e wire.Edge, tag uint64, frames []*wire.Buffer, done func(error)) {
	s := &send{tag: tag, frames: frames, done: done, short: true, least: math.MaxInt}
	t.mu.Lock()
	if err := t.err; err != nil {
		t.mu.Unlock()
		done(err)
		return
	}
	if t.lending() && t.lendable(frames) {
		s.least = t.least
	}
	for i, b := range frames {
		if n := len(b.Data); !s.lent(i) {
			s.size += int64(n)
			s.short = s.short && n <= chunkBytes
		}
	}
	t.open[s] = struct{}{}
	if e.Class == wire.Credits && s.short {
		t.urgent = append(t.urgent, s)
	} else {
		t.queue = append(t.queue, s)
	}
	if e.Class == wire.Credits && t.held > 0 {
		t.mu.Unlock()
		return
	}
	t.start()
}

// lending says whether long frames are lent. The caller holds mu.
func (t *target) lending() bool {
	return t.lends > 0 && t.lends == len(t.streams) && t.least < math.MaxInt
}

// lendable says whether another process can read all the long frames.
func (t *target) lendable(frames []*wire.Buffer) bool {
	for _, b := range frames {
		if len(b.Data) >= t.least && !memory.Readable(b.Data) {
			return false
		}
	}
	return true
}

// lent says whether the frame with the index `frame` is lent.
func (s *send) lent(frame int) bool { return len(s.frames[frame].Data) >= s.least }

// lend records that a stream's receiver reads lent memory. It returns true for the last stream: frames are lent once
// all receivers can read.
func (t *target) lend(w *stream) (all bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	w.lends = true
	t.lends++
	return t.lending()
}

// takeBack stops all lending, and queues a frame that was lent but could not be read, to be sent as bytes. The frame
// needs a stream of its own: until a receiver has the frame, it may not read the other streams further. takeBack
// returns that stream if it is new. The caller holds mu.
func (t *target) takeBack(p piece) (fresh *stream) {
	t.least = math.MaxInt
	whole, data := p.of, p.of.frames[p.frame:p.frame+1]
	s := &send{tag: p.chunk().tag, frames: data, least: math.MaxInt, size: int64(len(data[0].Data))}
	s.done = func(err error) {
		t.mu.Lock()
		whole.torn = whole.torn || err != nil
		over, ended := t.settle(whole), t.err
		t.mu.Unlock()
		if over {
			whole.end(ended)
		}
	}
	t.open[s] = struct{}{}
	t.back = append(t.back, s)
	t.more.Broadcast()
	if last := t.streams[len(t.streams)-1]; !last.again {
		fresh = &stream{to: t, number: len(t.streams), again: true}
		t.streams = append(t.streams, fresh)
	}
	return fresh
}

// end calls `done` of a finished send. The error is nil if all its frames were sent, even when the target has ended
// since.
func (s *send) end(ended error) {
	if !s.torn && s.frame == len(s.frames) {
		ended = nil
	}
	s.done(ended)
}

// settle records that one chunk of a send is finished, and returns whether the whole send is finished. The caller holds
// mu.
func (t *target) settle(s *send) (over bool) {
	s.busy--
	whole := s.frame == len(s.frames) && !s.torn
	if over = s.busy == 0 && (whole || t.err != nil); over {
		delete(t.open, s)
	}
	return over
}

// start makes a stream write posted frames. The caller holds mu; start releases it.
func (t *target) start() {
	if w := t.free(); w != nil && w.fill() {
		t.mu.Unlock()
		w.writeNow()
		return
	}
	t.more.Broadcast()
	t.mu.Unlock()
}

// hold delays credits while a worker is told of a message. Usually the worker answers, and the credits are sent
// together with the answer.
func (t *target) hold() {
	t.mu.Lock()
	t.held++
	t.mu.Unlock()
}

// release sends the credits that were not sent together with a message.
func (t *target) release() {
	t.mu.Lock()
	if t.held--; t.held > 0 || len(t.urgent) == 0 || t.err != nil {
		t.mu.Unlock()
		return
	}
	t.start()
}

// free returns the stream that can immediately write everything that is queued, or nil if too much is queued or no
// stream is free. The caller holds mu.
func (t *target) free() *stream {
	if len(t.streams) == 0 || len(t.queue) > 1 || len(t.queue) == 1 && t.queue[0].size > nowBytes {
		return nil
	}
	if w := t.streams[0]; w.now != nil && !w.writing && !w.failed {
		return w
	}
	return nil
}

// take waits for pieces that must be written, and returns them. A partly written batch comes first. Once the target has
// ended and nothing is partly written, take returns nil.
func (w *stream) take() []piece {
	t := w.to
	t.mu.Lock()
	defer t.mu.Unlock()
	for {
		switch {
		case w.rest != nil:
			return w.batch
		case w.writing:
		case t.err != nil:
			return nil
		case w.fill():
			return w.batch
		}
		t.more.Wait()
	}
}

// fill makes a batch of chunks, about chunkBytes in total; false if there are none. Streams other than the first
// take only long frames, so that short frames arrive in the order of posting. The caller holds mu.
func (w *stream) fill() bool {
	w.batch = w.batch[:0]
	for size := 0; size < chunkBytes && len(w.batch) < mostChunks; {
		p, more := w.next()
		if !more {
			break
		}
		size += len(p.data())
		if w.batch = append(w.batch, p); p.lent {
			w.lent = append(w.lent, p)
		}
	}
	w.writing = len(w.batch) > 0
	return w.writing
}

// next takes the next chunk from the stream's queue. The caller holds mu.
func (w *stream) next() (p piece, more bool) {
	queue := &w.to.queue
	switch {
	case w.again:
		queue = &w.to.back
	case w.number == 0 && len(w.to.urgent) > 0:
		queue = &w.to.urgent
	}
	for i, s := range *queue {
		if w.number > 0 && s.short {
			continue
		}
		p = s.take()
		if s.frame == len(s.frames) {
			*queue = without(*queue, i)
		}
		return p, true
	}
	return p, false
}

// take takes the next chunk of a send.
func (s *send) take() piece {
	p := piece{s, s.frame, s.index, s.lent(s.frame)}
	s.busy++
	if s.index++; p.lent || s.index == chunksOf(int64(len(s.frames[s.frame].Data))) {
		s.frame, s.index = s.frame+1, 0
	}
	return p
}

// without removes element i of a queue.
func without(queue []*send, i int) []*send {
	copy(queue[1:i+1], queue[:i])
	return withoutFirst(queue)
}

func (p piece) chunk() chunk {
	first, data := p.of.tag, p.of.frames[p.frame].Data
	tag := first>>wire.NumberBits<<wire.NumberBits | uint64(uint32(first)+uint32(p.frame))
	c := chunk{tag: tag, total: int64(len(data)), index: uint32(p.index)}
	if p.lent {
		c.at = memory.At(data)
	}
	return c
}

// prefix appends the prefix of the chunk.
func (p piece) prefix(to []byte) []byte {
	if p.lent {
		return appendPrefix(to, kindLent, p.chunk())
	}
	return appendPrefix(to, kindChunk, p.chunk())
}

// data returns the bytes of the chunk that must be sent: none for a lent frame.
func (p piece) data() []byte {
	if p.lent {
		return nil
	}
	begin, end := p.chunk().span()
	return p.of.frames[p.frame].Data[begin:end]
}

// end ends every send, posted now or later. Writes in progress end first. Lent memory is taken back: a receiver that
// still reads it no longer finds the proof.
func (t *target) end(err error) {
	t.mu.Lock()
	if t.err != nil {
		t.mu.Unlock()
		return
	}
	t.err = err
	t.urgent, t.queue, t.back = nil, nil, nil
	for _, w := range t.streams {
		if w.conn != nil {
			clear(w.conn.proof[:])
		}
		for _, p := range w.lent {
			p.of.busy, p.of.torn = p.of.busy-1, true
		}
		w.lent = nil
	}
	var over []*send
	for s := range t.open {
		if s.busy == 0 {
			delete(t.open, s)
			over = append(over, s)
		}
	}
	var cut []*Conn
	for _, w := range t.streams {
		if w.writing || w.failed {
			cut = append(cut, w.conn)
		}
	}
	t.more.Broadcast()
	t.mu.Unlock()
	for _, c := range cut {
		c.cut(err)
	}
	for _, s := range over {
		s.done(err)
	}
}

// ways returns the open connections, and whether the receiver reads lent memory.
func (t *target) ways() (all []*Conn, reads bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, w := range t.streams {
		if w.conn != nil {
			all = append(all, w.conn)
		}
	}
	return all, t.lending()
}
