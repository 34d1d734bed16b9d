package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/millrace-ml/millrace/internal/crash"
)

// Lead holds the meeting at rank 0. It accepts connections from l until all have met, or until the meeting has failed.
// Then it closes l.
func Lead(ctx context.Context, l net.Listener, c Config) (*Meeting, error) {
	defer l.Close()
	if err := c.complete(); err != nil {
		return nil, err
	}
	if c.Own.Rank != 0 {
		return nil, fmt.Errorf("rendezvous: rank %d cannot lead; rank 0 does", c.Own.Rank)
	}
	h := &leader{Config: c, roll: newRoll(c.Own, c.MaxClock), turn: make(chan struct{}), doubt: make(chan struct{}),
		links: make([]net.Conn, c.Own.Size), told: make([]bool, c.Own.Size), untold: c.Own.Size - 1}
	h.strangers.most = c.Own.Size + maxStrangers
	accepted := make(chan struct{})
	crash.Go(func() {
		defer close(accepted)
		h.accept(l)
	})
	h.wait(ctx)
	_ = l.Close()
	<-accepted
	h.strangers.closeAll()
	h.talks.Wait() // each talk ends in time, since its last word has a deadline
	h.log()
	return h.meeting()
}

// leader is rank 0's state during the meeting.
type leader struct {
	Config
	talks     sync.WaitGroup
	strangers strangers

	mu     sync.Mutex
	roll   *roll
	table  []byte        // the encoded table; nil until all processes are here
	turn   chan struct{} // closed at the next phase
	doubt  chan struct{} // closed at the first reason to fail
	links  []net.Conn    // by rank: connections of processes that have received the last word
	told   []bool        // by rank: whether the process is gone, or knows that the meeting has failed
	untold int
}

// change changes the roll, and wakes the goroutines that wait for the outcome.
func (h *leader) change(tell func(*roll)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	phase, reasons := h.roll.phase, len(h.roll.reasons)
	tell(h.roll)
	if reasons == 0 && len(h.roll.reasons) > 0 {
		close(h.doubt)
	}
	if h.roll.phase == phase {
		return
	}
	if phase == gathering && h.roll.phase != failed {
		t := h.roll.pack()
		h.table = asWord(t.encode())
	}
	close(h.turn)
	h.turn = make(chan struct{})
}

// state returns the phase, and a channel that is closed at the next one.
func (h *leader) state() (phase, <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.roll.phase, h.turn
}

// wait returns once all have the table. If the meeting fails, it first calls `linger`.
func (h *leader) wait(ctx context.Context) {
	late := time.NewTimer(h.Wait)
	defer late.Stop()
	tell := time.NewTicker(tellEvery)
	defer tell.Stop()
	doubt, stopped := (<-chan struct{})(h.doubt), ctx.Done()
	var settled <-chan time.Time
	for {
		phase, turn := h.state()
		switch phase {
		case going:
			return
		case failed:
			h.linger(ctx)
			return
		}
		select {
		case <-turn:
		case <-doubt:
			doubt, settled = nil, time.After(settle)
		case <-settled:
			h.change((*roll).end)
		case <-late.C:
			h.change(func(r *roll) { r.late(h.Wait) })
		case <-stopped:
			stopped = nil
			h.change(func(r *roll) { r.fail(true, "rank 0 was stopped: %v", context.Cause(ctx)); r.end() })
		case <-tell.C:
			h.mu.Lock()
			awaited := h.roll.awaited()
			h.mu.Unlock()
			h.Log.Info("waiting for other processes", "awaited", awaited)
		}
	}
}

// tellEvery is the interval at which the missing processes are logged.
const tellEvery = 10 * time.Second

// linger gives late processes some time to come and be told that the meeting has failed.
func (h *leader) linger(ctx context.Context) {
	enough := time.NewTimer(min(linger, h.Wait))
	defer enough.Stop()
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		h.mu.Lock()
		untold := h.untold
		h.mu.Unlock()
		if untold == 0 {
			return
		}
		select {
		case <-enough.C:
			return
		case <-ctx.Done():
			return
		case <-look.C:
		}
	}
}

// lookEvery is how often a failed meeting checks whether all processes have been told.
const lookEvery = 20 * time.Millisecond

// accept takes connections until the Listener is closed.
func (h *leader) accept(l net.Listener) {
	for {
		plain, err := l.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			if phase, _ := h.state(); phase == going || phase == failed {
				return
			}
			h.Log.Warn("a connection could not be accepted", "error", err)
			time.Sleep(acceptAgain) // most likely no file descriptors are left; some will be closed soon
			continue
		}
		h.strangers.add(plain)
		h.talks.Add(1)
		crash.Go(func() {
			defer h.talks.Done()
			h.attend(plain)
		})
	}
}

// acceptAgain is the pause after an error of Accept.
const acceptAgain = 50 * time.Millisecond

// attend does all of the meeting's communication on one connection.
func (h *leader) attend(plain net.Conn) {
	conn, hello, err := h.greet(plain)
	if known := h.strangers.remove(plain); err != nil || !known {
		if known { // otherwise the connection was closed to make room, or the meeting is over
			h.refuse(plain, err)
			if conn != nil {
				_ = say(conn, word{Kind: notOurs, Reasons: []string{err.Error()}}) // an error only means that the stranger is gone
			}
		}
		_ = plain.Close()
		return
	}
	var entered bool
	h.change(func(r *roll) { entered, err = r.add(hello) })
	if err != nil {
		_ = conn.SetDeadline(time.Now().Add(wordWait))
		_ = say(conn, word{Kind: notOurs, Reasons: []string{err.Error()}}) // an error only means that the stranger is gone
		_ = conn.Close()
		h.refuse(plain, err)
		return
	}
	if entered {
		err = h.measure(conn, hello.Rank)
	}
	if err == nil {
		err = h.talk(conn, hello.Rank, entered)
	}
	if err != nil {
		_ = conn.Close()
		if entered {
			h.change(func(r *roll) {
				r.lost(hello.Rank, err)
				h.knows(hello.Rank)
			})
		}
	}
}

// greet authenticates a stranger and reads its Hello. If the stranger is authenticated, greet returns the connection,
// even if the Hello is missing or wrong and there is an error.
func (h *leader) greet(plain net.Conn) (net.Conn, Hello, error) {
	var hello Hello
	if err := plain.SetDeadline(time.Now().Add(helloWait)); err != nil {
		return nil, hello, err
	}
	conn, err := h.Guard(plain)
	if err != nil {
		return nil, hello, err
	}
	if err := hear(conn, maxHello, &hello); err != nil {
		return conn, hello, err
	}
	return conn, hello, hello.check()
}

// measure finds the offset of a process's clock.
func (h *leader) measure(conn net.Conn, rank int) error {
	best := Clock{ErrorS: wordWait.Seconds()}
	for range pings {
		asked := h.Clock()
		var a answer
		if err := exchange(conn, word{Kind: ping}, nil, &a); err != nil {
			return err
		}
		if a.At <= 0 || a.At > 1<<62 {
			return fmt.Errorf("its clock says %d ns", a.At)
		}
		took := h.Clock().Sub(asked)
		if e := took.Seconds() / 2; e <= best.ErrorS {
			best = Clock{OffsetS: float64(asked.Add(took/2).UnixNano()-a.At) / 1e9, ErrorS: e}
		}
	}
	h.change(func(r *roll) { r.clock(rank, best) })
	return nil
}

// talk keeps a process informed until it has received the last word. A process that was not admitted is only kept
// waiting until the meeting fails.
func (h *leader) talk(conn net.Conn, rank int, entered bool) error {
	tick := time.NewTicker(beatEvery)
	defer tick.Stop()
	for {
		h.mu.Lock()
		w, turn, text := h.roll.word(rank), h.turn, h.table
		h.mu.Unlock()
		if !entered && w.Kind != refused {
			w = word{Kind: beat, Reasons: w.Reasons}
		}
		if w.Kind == beat {
			select {
			case <-turn:
				continue
			case <-tick.C:
			}
		}
		if w.Kind != table {
			text = nil
		}
		if w.Kind == goAhead || w.Kind == refused {
			return h.last(conn, rank, entered, w)
		}
		var a answer
		if err := exchange(conn, w, text, &a); err != nil {
			return err
		}
		if w.Kind == table {
			h.change(func(r *roll) { r.took(rank) })
		}
	}
}

// last sends the last word, and keeps the connection or closes it.
func (h *leader) last(conn net.Conn, rank int, entered bool, w word) error {
	_ = conn.SetDeadline(time.Now().Add(wordWait))
	err := say(conn, w)
	h.mu.Lock()
	defer h.mu.Unlock()
	if w.Kind == goAhead && err == nil {
		h.links[rank] = conn
		return conn.SetDeadline(time.Time{})
	}
	h.knows(rank)
	return errors.Join(err, conn.Close())
}

// knows records that a process is gone, or has been told that the meeting has failed. The caller holds h.mu.
func (h *leader) knows(rank int) {
	if rank > 0 && rank < len(h.told) && !h.told[rank] {
		h.told[rank] = true
		h.untold--
	}
}

// meeting returns the meeting's result. If the meeting failed, it closes all connections, and the error says why.
func (h *leader) meeting() (*Meeting, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.roll.phase == going {
		h.roll.phase = failed
		for rank, link := range h.links {
			if rank > 0 && link == nil {
				h.roll.retry = true
				h.roll.reasons = append(h.roll.reasons, who(h.roll.hellos[rank])+" was lost as all had met")
			}
		}
	}
	if len(h.roll.reasons) > 0 {
		for _, link := range h.links {
			if link != nil {
				_ = link.Close()
			}
		}
		return nil, &Refused{h.roll.reasons, h.roll.retry}
	}
	t := h.roll.pack()
	m := &Meeting{Places: t.places(), Links: h.links, Differ: t.Differ}
	for _, c := range h.roll.clocks {
		m.Clocks = append(m.Clocks, *c)
	}
	return m, nil
}

// exchange sends a word, followed by text, and receives the answer.
func exchange(conn net.Conn, w word, text []byte, a *answer) error {
	if err := conn.SetDeadline(time.Now().Add(wordWait)); err != nil {
		return err
	}
	said, err := encode(w)
	if err != nil {
		return err
	}
	if _, err := conn.Write(said); err != nil {
		return err
	}
	if len(text) > 0 {
		if _, err := conn.Write(text); err != nil {
			return err
		}
	}
	return hear(conn, maxAnswer, a)
}
