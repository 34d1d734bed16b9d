package wire

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/millrace-ml/millrace/internal/crash"
)

// Link is what a transfer from one rank to another takes: Latency plus the bytes over
// BytesPerSecond. Transfers on one link follow each other; the latency of one overlaps
// the next.
type Link struct {
	Latency        time.Duration
	BytesPerSecond float64 // 0: as fast as memory
	// Shared numbers the links on the way that several pairs of ranks use in turns, as workers behind
	// one network card do: a transfer takes all of them at once, as soon as all are free. None: the pair
	// has the link for itself, each direction apart.
	Shared []int
}

// NewShaped is a mesh within one process whose messages take the time that links says
// they would on other hardware. Only messages between different ranks are shaped.
func NewShaped(size int, links func(from, to int) Link) (*Shaped, error) {
	local, err := NewLocal(size)
	if err != nil {
		return nil, err
	}
	s := &Shaped{local: local, lines: map[lineKey]*line{}, free: map[lineKey]time.Time{}, links: make([][]Link, size)}
	for from := range size {
		s.links[from] = make([]Link, size)
		for to := range size {
			l := links(from, to)
			if l.Latency < 0 || l.BytesPerSecond < 0 || l.BytesPerSecond != l.BytesPerSecond {
				return nil, fmt.Errorf("wire: link %d to %d: latency %v and %v bytes/s; neither may be negative", from, to, l.Latency, l.BytesPerSecond)
			}
			s.links[from][to] = l
		}
	}
	return s, nil
}

// Shaped is a Local mesh with links that take time.
type Shaped struct {
	local *Local
	links [][]Link

	mu     sync.Mutex
	lines  map[lineKey]*line
	free   map[lineKey]time.Time // when the last transfer's bytes are through, by link
	closed bool
	wg     sync.WaitGroup
}

// lineKey is a link of a pair of ranks, or a shared one.
type lineKey struct{ from, to, shared int }

// keys are the links on a way.
func (l *Link) keys(from, to int) []lineKey {
	if len(l.Shared) == 0 {
		return []lineKey{{from: from, to: to}}
	}
	keys := make([]lineKey, len(l.Shared))
	for i, shared := range l.Shared {
		keys[i] = lineKey{from: -1, to: -1, shared: shared}
	}
	return keys
}

// Size is the number of ranks.
func (s *Shaped) Size() int { return s.local.Size() }

// Endpoint is a rank of the mesh.
func (s *Shaped) Endpoint(rank int) Endpoint {
	return &shapedEndpoint{mailbox: s.local.boxes[rank], mesh: s}
}

// Close ends the mesh and drops what is still on its way.
func (s *Shaped) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.local.stop(ErrClosed) // the lines leave
	s.wg.Wait()
	return s.local.Close()
}

// line delivers the messages of a way when they are due.
type line struct {
	mesh *Shaped
	more chan struct{} // capacity 1: there may be something in queue

	mu    sync.Mutex
	queue []transfer // by due time; equal ones in the order they were sent
	ended bool
}

type transfer struct {
	due      time.Time
	from, to int
	tag      Tag
	message  Message
}

type shapedEndpoint struct {
	*mailbox
	mesh *Shaped
}

func (e *shapedEndpoint) Send(to int, tag Tag, m Message) error {
	if to < 0 || to >= e.Size() || to == e.rank {
		return e.mailbox.Send(to, tag, m)
	}
	l := &e.mesh.links[e.rank][to]
	if l.Latency == 0 && l.BytesPerSecond == 0 && len(l.Shared) == 0 {
		return e.mailbox.Send(to, tag, m)
	}
	if err := e.mailbox.mesh.reason(); err != nil {
		m.Release()
		return err
	}
	var takes time.Duration
	if l.BytesPerSecond > 0 {
		takes = time.Duration(float64(m.Bytes()) / l.BytesPerSecond * float64(time.Second))
	}
	line, through, err := e.mesh.take(l.keys(e.rank, to), takes)
	if err != nil {
		m.Release()
		return err
	}
	return line.add(transfer{due: through.Add(l.Latency), from: e.rank, to: to, tag: tag, message: m})
}

// add queues a transfer.
func (l *line) add(t transfer) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		t.message.Release()
		return l.mesh.local.reason()
	}
	at := len(l.queue)
	for at > 0 && l.queue[at-1].due.After(t.due) {
		at--
	}
	l.queue = slices.Insert(l.queue, at, t)
	select {
	case l.more <- struct{}{}:
	default:
	}
	return nil
}

// take has a transfer of so long take all links of its way as soon as all are free, and says when it is through
// and which line delivers it, started when first used.
func (s *Shaped) take(way []lineKey, takes time.Duration) (l *line, through time.Time, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, time.Time{}, ErrClosed
	}
	start := time.Now()
	for _, key := range way {
		if free := s.free[key]; free.After(start) {
			start = free
		}
	}
	through = start.Add(takes)
	for _, key := range way {
		s.free[key] = through
	}
	if l = s.lines[way[0]]; l == nil {
		l = &line{mesh: s, more: make(chan struct{}, 1)}
		s.lines[way[0]] = l
		s.wg.Go(crash.Caught(l.run))
	}
	return l, through, nil
}

// run delivers each transfer when it is due, until the mesh ends.
func (l *line) run() {
	done := l.mesh.local.done
	timer := time.NewTimer(0)
	defer timer.Stop()
	defer l.drop()
	for {
		t, wait, any := l.next(time.Now())
		var due <-chan time.Time
		switch {
		case any && wait <= 0:
			// An error here is the mesh's end, which the select below sees the next time round.
			_ = l.mesh.local.boxes[t.to].deliver(t.from, t.tag, t.message)
			continue
		case any:
			timer.Reset(wait)
			due = timer.C
		}
		select {
		case <-l.more:
		case <-due:
		case <-done:
			return
		}
	}
}

// next takes the first transfer off the queue if it is due, or says how long it is until then.
func (l *line) next(now time.Time) (t transfer, wait time.Duration, any bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) == 0 {
		return transfer{}, 0, false
	}
	t = l.queue[0]
	if wait = t.due.Sub(now); wait <= 0 {
		l.queue = slices.Delete(l.queue, 0, 1)
	}
	return t, wait, true
}

// drop releases what is still on the line.
func (l *line) drop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, t := range l.queue {
		t.message.Release()
	}
	l.queue, l.ended = nil, true
}
