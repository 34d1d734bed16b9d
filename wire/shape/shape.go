// Package shape slows the carriers of one process down to the links of other hardware.
//
// In: carriers, and what a transfer between each pair of workers takes. Out: carriers over which a frame is posted once
// its bytes would be through, and its latency over. Headers and credits take latency alone. What a worker sends to
// itself is not shaped. Refused: latencies and bandwidths that are negative or no number.
package shape

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/millrace-ml/millrace/internal/crash"
	"github.com/millrace-ml/millrace/wire"
)

// Link is what a transfer from one worker to another takes: Latency plus the bytes over BytesPerSecond. Transfers on
// one link follow each other; the latency of one overlaps the next.
type Link struct {
	Latency        time.Duration
	BytesPerSecond float64 // 0: as fast as memory
	// Shared numbers the links on the way that several pairs of workers use in turns, as workers behind one network
	// card do: a transfer takes all of them at once, as soon as all are free. None: the pair has the link for itself,
	// each direction apart.
	Shared []int
}

// New wraps the carriers of one process's workers, and takes them over.
func New(carriers []wire.Carrier, links func(from, to int) Link) ([]wire.Carrier, error) {
	n := &net{lines: map[key]*line{}, free: map[key]time.Time{}}
	all := make([]wire.Carrier, len(carriers))
	for from, c := range carriers {
		shaped := &carrier{Carrier: c, net: n, links: make([]Link, len(carriers)), failed: map[int]error{}}
		for to := range carriers {
			l := links(from, to)
			if !(l.Latency >= 0 && l.BytesPerSecond >= 0) {
				return nil, fmt.Errorf("shape: link %d to %d: latency %v and %v bytes/s; neither may be negative",
					from, to, l.Latency, l.BytesPerSecond)
			}
			shaped.links[to] = l
		}
		all[from] = shaped
	}
	return all, nil
}

// net is what the carriers share.
type net struct {
	mu    sync.Mutex
	lines map[key]*line
	free  map[key]time.Time // when the last transfer's bytes are through, by link
}

// key is a link of a pair of workers, or a shared one.
type key struct{ from, to, shared int }

// keys are the links on a way.
func (l *Link) keys(from, to int) []key {
	if len(l.Shared) == 0 {
		return []key{{from: from, to: to}}
	}
	keys := make([]key, len(l.Shared))
	for i, shared := range l.Shared {
		keys[i] = key{from: -1, to: -1, shared: shared}
	}
	return keys
}

// carrier is one worker's.
type carrier struct {
	wire.Carrier
	net   *net
	links []Link

	mu     sync.Mutex
	failed map[int]error
	closed bool
}

func (c *carrier) refusal(rank int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return wire.ErrClosed
	}
	return c.failed[rank]
}

// Describe says what the link takes.
func (c *carrier) Describe(e wire.Edge) string {
	l := c.links[e.To]
	return fmt.Sprintf("%s, shaped to %v and %g bytes/s", c.Carrier.Describe(e), l.Latency, l.BytesPerSecond)
}

func (c *carrier) Send(epoch uint32, e wire.Edge, n uint32, b *wire.Buffer, done func(error)) {
	l := &c.links[e.To]
	if e.To == e.From || l.Latency == 0 && l.BytesPerSecond == 0 && len(l.Shared) == 0 {
		c.Carrier.Send(epoch, e, n, b, done)
		return
	}
	if err := c.refusal(e.To); err != nil {
		done(err)
		return
	}
	var takes time.Duration
	if l.BytesPerSecond > 0 {
		takes = time.Duration(float64(b.Payload()) / l.BytesPerSecond * float64(time.Second))
	}
	c.net.post(transfer{c, e, epoch, n, b, done, time.Time{}}, l, takes)
}

// Fail ends what is still on a link, too.
func (c *carrier) Fail(rank int, err error) {
	c.mu.Lock()
	if c.failed[rank] == nil {
		c.failed[rank] = err
	}
	c.mu.Unlock()
	c.net.end(err, func(t *transfer) bool { return t.c == c && t.edge.To == rank })
	c.Carrier.Fail(rank, err)
}

// Close ends what is still on a link, too.
func (c *carrier) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.net.end(wire.ErrClosed, func(t *transfer) bool { return t.c == c })
	c.net.leave()
	return c.Carrier.Close()
}

// transfer is a frame on its way.
type transfer struct {
	c     *carrier
	edge  wire.Edge
	epoch uint32
	n     uint32
	b     *wire.Buffer
	done  func(error)
	due   time.Time
}

// line posts the frames of a way when they are due. It runs while there are some.
type line struct {
	net   *net
	queue []transfer    // by due time; equal ones in the order they were sent
	more  chan struct{} // capacity 1: the first in the queue is another
	over  chan struct{} // closed when it has ended
}

// post has a frame take all links of its way as soon as all are free.
func (n *net) post(t transfer, l *Link, takes time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	way := l.keys(t.edge.From, t.edge.To)
	start := time.Now()
	for _, k := range way {
		if free := n.free[k]; free.After(start) {
			start = free
		}
	}
	for _, k := range way {
		n.free[k] = start.Add(takes)
	}
	t.due = start.Add(takes + l.Latency)
	at := n.lines[way[0]]
	if at == nil {
		at = &line{net: n, more: make(chan struct{}, 1), over: make(chan struct{})}
		n.lines[way[0]] = at
		crash.Go(func() {
			defer close(at.over)
			at.run(way[0])
		})
	}
	i := len(at.queue)
	for i > 0 && at.queue[i-1].due.After(t.due) {
		i--
	}
	at.queue = slices.Insert(at.queue, i, t)
	at.ring()
}

func (l *line) ring() {
	select {
	case l.more <- struct{}{}:
	default:
	}
}

// end ends frames on their way.
func (n *net) end(err error, which func(*transfer) bool) {
	var ended []transfer
	n.mu.Lock()
	for _, l := range n.lines {
		l.queue = slices.DeleteFunc(l.queue, func(t transfer) bool {
			if which(&t) {
				ended = append(ended, t)
				return true
			}
			return false
		})
		l.ring()
	}
	n.mu.Unlock()
	for _, t := range ended {
		t.done(err)
	}
}

// leave waits until lines without frames have ended.
func (n *net) leave() {
	n.mu.Lock()
	var over []chan struct{}
	for _, l := range n.lines {
		if len(l.queue) == 0 {
			over = append(over, l.over)
		}
	}
	n.mu.Unlock()
	for _, c := range over {
		<-c
	}
}

// run posts each frame when it is due, until there is none.
func (l *line) run(k key) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		t, wait, more := l.next(k)
		switch {
		case !more:
			return
		case wait > 0:
			timer.Reset(wait)
			select {
			case <-l.more:
			case <-timer.C:
			}
			continue
		}
		t.c.Carrier.Send(t.epoch, t.edge, t.n, t.b, t.done)
	}
}

// next takes the first frame off the queue if it is due, or says how long it is until then; false where there is
// none, which ends the line.
func (l *line) next(k key) (t transfer, wait time.Duration, more bool) {
	l.net.mu.Lock()
	defer l.net.mu.Unlock()
	if len(l.queue) == 0 {
		delete(l.net.lines, k)
		return transfer{}, 0, false
	}
	t = l.queue[0]
	if wait = time.Until(t.due); wait <= 0 {
		l.queue = slices.Delete(l.queue, 0, 1)
	}
	return t, wait, true
}
