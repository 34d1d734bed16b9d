// Package shape slows the carriers of one process down to the speed of other hardware's links.
//
// In: carriers, and the latency and bandwidth between each pair of workers. Out: carriers that delay each frame until
// such a link would have delivered it. Headers and credits take only the latency. What a worker sends to itself is not
// slowed. Refused: latencies and bandwidths that are negative or not a number.
package shape

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/millrace-ml/millrace/internal/crash"
	"github.com/millrace-ml/millrace/wire"
)

// Link describes a link between two workers. A transfer takes Latency plus bytes / BytesPerSecond. Transfers on one
// link follow each other; the latency of a transfer overlaps the next transfer.
type Link struct {
	Latency        time.Duration
	BytesPerSecond float64 // 0: no limit
	// Shared lists the numbers of the shared links that a transfer takes. Several pairs of workers use a shared link in
	// turn, like workers behind one network card. A transfer takes all of its links at the same time, as soon as all
	// are free. If Shared is empty, each direction of the pair has a link of its own.
	Shared []int
}

// longest limits the time that a transfer's bytes may take.
const longest = 100 * 365 * 24 * time.Hour

// takes returns how long a number of bytes needs, without the latency.
func (l *Link) takes(bytes int64) time.Duration {
	if l.BytesPerSecond == 0 {
		return 0
	}
	if seconds := float64(bytes) / l.BytesPerSecond; seconds < longest.Seconds() {
		return time.Duration(seconds * float64(time.Second))
	}
	return longest
}

// New wraps the carriers of one process's workers. The new carriers own the old ones.
func New(carriers []wire.Carrier, links func(from, to int) Link) ([]wire.Carrier, error) {
	n := &net{free: map[key]time.Time{}}
	all := make([]wire.Carrier, len(carriers))
	for from, c := range carriers {
		shaped := &carrier{Carrier: c, net: n, links: make([]Link, len(carriers)), lines: map[int]*line{}}
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

// net holds the state of all links, because several carriers may share a link.
type net struct {
	mu   sync.Mutex
	free map[key]time.Time // when the bytes of the last transfer have passed
}

// key identifies the link of a pair of workers, or a shared one.
type key struct{ from, to, shared int }

// keys returns the links between two workers.
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

// take occupies all the given links for the time `takes`, as soon as all of them are free. It returns the time at which
// they become free again.
func (n *net) take(way []key, takes time.Duration) (until time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	start := time.Now()
	for _, k := range way {
		if free := n.free[k]; free.After(start) {
			start = free
		}
	}
	for _, k := range way {
		n.free[k] = start.Add(takes)
	}
	return start.Add(takes)
}

// carrier is one worker's shaped carrier.
type carrier struct {
	wire.Carrier
	wire.Refusals
	net   *net
	links []Link // by destination worker

	mu      sync.Mutex
	lines   map[int]*line // by destination worker; only workers with transfers on their way
	running sync.WaitGroup
}

// line holds the transfers on their way to a worker. They are due in the order in which they were sent.
type line struct {
	queue []transfer
	ended chan struct{} // closed by the method `end`
}

// transfer holds the frames that were posted in one call and are on their way.
type transfer struct {
	edge   wire.Edge
	epoch  uint32
	n      uint32
	frames []*wire.Buffer
	done   func(error)
	due    time.Time
}

// Describe adds the link's latency and bandwidth.
func (c *carrier) Describe(e wire.Edge) string {
	l := c.links[e.To]
	return fmt.Sprintf("%s, shaped to %v and %g bytes/s", c.Carrier.Describe(e), l.Latency, l.BytesPerSecond)
}

func (c *carrier) Send(epoch uint32, e wire.Edge, n uint32, frames []*wire.Buffer, done func(error)) {
	l := &c.links[e.To]
	if e.To == e.From || l.Latency == 0 && l.BytesPerSecond == 0 && len(l.Shared) == 0 {
		c.Carrier.Send(epoch, e, n, frames, done)
		return
	}
	c.mu.Lock()
	if err := c.Refusal(e.To); err != nil {
		c.mu.Unlock()
		done(err)
		return
	}
	defer c.mu.Unlock()
	payload := int64(0)
	for _, b := range frames {
		payload += b.Payload()
	}
	due := c.net.take(l.keys(e.From, e.To), l.takes(payload)).Add(l.Latency)
	at := c.lines[e.To]
	if at == nil {
		at = &line{ended: make(chan struct{})}
		c.lines[e.To] = at
		c.running.Go(crash.Caught(func() { c.run(e.To, at) }))
	}
	at.queue = append(at.queue, transfer{e, epoch, n, frames, done, due})
}

// run posts each transfer of a line when it is due, until the line is empty.
func (c *carrier) run(to int, l *line) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		t, wait, more := c.next(to, l)
		switch {
		case !more:
			return
		case wait > 0:
			timer.Reset(wait)
			select {
			case <-l.ended:
			case <-timer.C:
			}
			continue
		}
		c.Carrier.Send(t.epoch, t.edge, t.n, t.frames, t.done)
	}
}

// next takes the first transfer off a line if it is due. If it is not due, next returns how long it must wait. If the
// line is empty, the line ends and `more` is false.
func (c *carrier) next(to int, l *line) (t transfer, wait time.Duration, more bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(l.queue) == 0 {
		if c.lines[to] == l {
			delete(c.lines, to)
		}
		return transfer{}, 0, false
	}
	t = l.queue[0]
	if wait = time.Until(t.due); wait <= 0 {
		l.queue = slices.Delete(l.queue, 0, 1)
	}
	return t, wait, true
}

// Fail also ends what is still on a link.
func (c *carrier) Fail(rank int, err error) {
	c.Refuse(rank, err)
	c.end(err, func(to int) bool { return to == rank })
	c.Carrier.Fail(rank, err)
}

// Close also ends what is still on a link.
func (c *carrier) Close() error {
	c.RefuseAll()
	c.end(wire.ErrClosed, func(int) bool { return true })
	c.running.Wait()
	return c.Carrier.Close()
}

// end ends the transfers on their way to the workers that pass the filter `with`.
func (c *carrier) end(err error, with func(to int) bool) {
	var ended []transfer
	c.mu.Lock()
	for to, l := range c.lines {
		if with(to) {
			ended = append(ended, l.queue...)
			l.queue = nil
			close(l.ended)
			delete(c.lines, to)
		}
	}
	c.mu.Unlock()
	for _, t := range ended {
		t.done(err)
	}
}
