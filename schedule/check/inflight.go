package check

import (
	"slices"

	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/machine"
)

// Edge is a directed pair of workers.
type Edge struct{ From, To int }

// InFlight returns, for each edge of a lowered Program, the largest number of messages in flight or waiting. The
// numbers hold for any timing: with that many slots, no worker ever waits for a slot.
//
// When a worker starts a send, some earlier messages of the same edge must already have been received, whatever the
// timing. This follows from the order of lists, and from messages, collectives and drains. All other messages may still
// be in flight. So if workers share no cores, the number is reached in some timing. A run that skips instructions
// (machine.Local: Limit, Rollback) may wait for less, and then have more messages in flight.
//
// Each worker has a clock: how far it knows every other worker's list to be. Clocks travel with messages, collectives
// and drains. Passing on a clock takes one operation per worker, so the time grows with the number of messages times
// the number of workers. Repetitions of the body are followed only until each equals the one before, shifted by one
// repetition. All later repetitions then do the same.
func InFlight(p *schedule.Program) (map[Edge]int, error) {
	if !p.Lowered {
		return nil, &Error{Program: p.Name, Worker: -1, Position: -1,
			Why: "it is not lowered; lower.Lower adds its transfers"}
	}
	for n := firstRepeats; ; n *= 2 {
		short := *p
		short.Repeat = min(p.Repeat, n)
		if err := Playable(&short); err != nil {
			return nil, err
		}
		f := newFollowing(&short)
		if err := f.follow(); err != nil {
			return nil, err
		}
		if short.Repeat == p.Repeat || f.steady() {
			return f.most(), nil
		}
	}
}

// firstRepeats is how many repetitions are followed at first.
const firstRepeats = 8

// follower is the state of following one worker's list.
type follower struct {
	at      schedule.Cursor
	issued  int32
	repeat  int // repetition of the body: -1 in the prologue, Repeat in the epilogue
	clock   clock
	joined  []joining
	out     map[int]*traffic // by receiver
	drained bool             // all workers have reached the drain where this worker waited
	waits   bool             // the worker waits at a drain
	body    int32            // instructions in one repetition
	end     int32            // instructions before the epilogue
	clear   int              // repetitions that this worker ends before it knows that any worker has begun its epilogue
	print   uint64
	prints  []uint64 // by repetition: hash of the clocks at its sends and its end, with the repetition's shift removed
}

// following is the state of following the lists of all workers.
type following struct {
	p        *schedule.Program
	workers  []follower
	queue    []int // workers that may be able to go on
	messages map[schedule.Key]*carried
	meetings map[schedule.Instruction]*meeting
	waiting  int // workers that wait at the next drain
	free     []clock
	span     int // the most repetitions between an instruction and another that depends on it
}

func newFollowing(p *schedule.Program) *following {
	f := &following{p: p, messages: map[schedule.Key]*carried{}, meetings: map[schedule.Instruction]*meeting{}, span: 1}
	for w := range p.Workers {
		a := follower{at: schedule.NewCursor(p, w), repeat: -1, clock: make(clock, p.Workers), out: map[int]*traffic{}}
		if w < len(p.Body) {
			a.body = int32(len(p.Body[w]))
		}
		if a.end = a.body * int32(p.Repeat); w < len(p.Prologue) {
			a.end += int32(len(p.Prologue[w]))
		}
		f.workers = append(f.workers, a)
		f.queue = append(f.queue, w)
	}
	return f
}

// follow goes through all lists to their end.
func (f *following) follow() error {
	for len(f.queue) > 0 {
		w := f.queue[len(f.queue)-1]
		f.queue = f.queue[:len(f.queue)-1]
		for f.step(w) {
		}
	}
	for w := range f.workers {
		a := &f.workers[w]
		if in, more := a.at.Head(); more {
			e := &Error{Program: f.p.Name, Worker: w, Position: int(a.issued), Instruction: in,
				Why: "it would wait there for ever"}
			e.Locate(f.p, f.p)
			return e
		}
		f.enter(a, f.p.Repeat)
	}
	return nil
}

// step executes a worker's next instruction, if what the instruction waits for is there.
func (f *following) step(w int) bool {
	a := &f.workers[w]
	in, more := a.at.Head()
	if !more {
		return false
	}
	f.enter(a, a.at.Repetition())
	switch {
	case in.Kind.IsReceive():
		if !f.receive(w, in) {
			return false
		}
	case in.Kind.IsSend():
		f.send(w, in)
	case in.Kind == schedule.DR:
		if !f.drain(w, in) {
			return false
		}
	default:
		if !f.summed(a, in) {
			return false
		}
		if in.Kind.IsCollective() {
			f.join(w, in)
		}
	}
	a.issued++
	a.clock[w] = a.issued
	a.at.Advance()
	return true
}

// enter notes that a worker reaches a repetition of the body, or the end of the body.
func (f *following) enter(a *follower, repeat int) {
	for ; a.repeat < repeat; a.repeat++ {
		if a.repeat >= 0 {
			f.mark(a)
			a.prints = append(a.prints, a.print)
			if a.clear == a.repeat && !f.sees(a) {
				a.clear++
			}
		}
		a.print = 0
	}
}

// sees reports whether a worker knows of a worker that has begun its epilogue.
func (f *following) sees(a *follower) bool {
	for v, n := range a.clock {
		if n > f.workers[v].end {
			return true
		}
	}
	return false
}

// behind notes that an instruction of one repetition depends on an instruction of another.
func (f *following) behind(repeat, other int) { f.span = max(f.span, repeat-other, other-repeat) }

// mark adds a worker's clock to the worker's hash. For each worker it adds how far that worker's list is known to be,
// minus the instructions of the repetitions before this one. A worker about which nothing is known adds nothing.
func (f *following) mark(a *follower) {
	for v, n := range a.clock {
		if n > 0 {
			n -= f.workers[v].body * int32(a.repeat)
			a.print = (a.print ^ uint64(uint32(n)) ^ uint64(v+1)<<32) * 0x9e3779b97f4a7c15
			a.print ^= a.print >> 29
		}
	}
}

func (f *following) copied(c clock) clock {
	if len(f.free) == 0 {
		return slices.Clone(c)
	}
	to := f.free[len(f.free)-1]
	f.free = f.free[:len(f.free)-1]
	copy(to, c)
	return to
}

// send counts the messages on a send's edges when the send starts.
func (f *following) send(w int, in schedule.Instruction) {
	a := &f.workers[w]
	if a.repeat >= 0 && a.repeat < f.p.Repeat {
		f.mark(a)
	}
	m := &carried{repeat: a.repeat}
	f.p.Recipients(in, func(to, _, _, _ int) bool {
		t := a.out[to]
		if t == nil {
			t = &traffic{}
			a.out[to] = t
		}
		for len(t.taken) > 0 && t.taken[0] < a.clock[to] {
			t.taken = t.taken[1:]
			t.known++
		}
		t.sent++
		lie := t.sent - t.known
		t.most = max(t.most, lie)
		if a.repeat >= 0 && a.repeat < f.p.Repeat {
			for len(t.peaks) <= a.repeat {
				t.peaks = append(t.peaks, 0)
			}
			t.peaks[a.repeat] = max(t.peaks[a.repeat], lie)
		}
		m.left++
		f.queue = append(f.queue, to)
		return true
	})
	if m.left > 0 {
		m.clock = f.copied(a.clock)
		f.messages[in.Key()] = m
	}
}

// receive takes the messages of a receive, if all have been sent.
func (f *following) receive(w int, in schedule.Instruction) bool {
	a, all := &f.workers[w], true
	f.p.Expected(in, func(sent schedule.Instruction, _ int) bool {
		all = f.messages[sent.Key()] != nil
		return all
	})
	if !all {
		return false
	}
	f.p.Expected(in, func(sent schedule.Instruction, from int) bool {
		m := f.messages[sent.Key()]
		a.clock.learn(m.clock)
		f.behind(a.repeat, m.repeat)
		t := f.workers[from].out[w]
		t.taken = append(t.taken, a.issued)
		if m.left--; m.left == 0 {
			f.free = append(f.free, m.clock)
			delete(f.messages, sent.Key())
		}
		return true
	})
	return true
}

// join issues a collective.
func (f *following) join(w int, in schedule.Instruction) {
	a := &f.workers[w]
	members, workers := f.p.Group(in)
	m := f.meetings[members[0]]
	if m == nil {
		m = &meeting{clock: make(clock, f.p.Workers), first: a.repeat, last: a.repeat, left: len(members), who: workers}
		f.meetings[members[0]] = m
	}
	m.clock.learn(a.clock)
	m.first, m.last = min(m.first, a.repeat), max(m.last, a.repeat)
	a.joined = append(a.joined, joining{in, m})
	if m.left--; m.left == 0 {
		delete(f.meetings, members[0])
		f.queue = append(f.queue, m.who...)
	}
}

// summed makes an instruction wait for the collectives whose result it uses.
func (f *following) summed(a *follower, in schedule.Instruction) bool {
	if !in.Kind.OfMinibatch() {
		return true
	}
	for i := 0; i < len(a.joined); {
		c := a.joined[i]
		if in.Kind != schedule.DR && !machine.AwaitsSum(f.p, in, c.in) {
			i++
			continue
		}
		if c.left > 0 {
			return false
		}
		a.clock.learn(c.clock)
		f.behind(a.repeat, c.first)
		f.behind(a.repeat, c.last)
		a.joined = slices.Delete(a.joined, i, i+1)
	}
	return true
}

// drain makes a worker wait until all workers have reached the drain.
func (f *following) drain(w int, in schedule.Instruction) bool {
	a := &f.workers[w]
	if a.drained {
		a.drained, a.waits = false, false
		return true
	}
	if a.waits || !f.summed(a, in) {
		return false
	}
	a.waits = true
	if f.waiting++; f.waiting < len(f.workers) {
		return false
	}
	f.waiting = 0
	all := make(clock, len(f.workers))
	for v := range f.workers {
		all.learn(f.workers[v].clock)
		f.behind(a.repeat, f.workers[v].repeat)
		f.behind(f.workers[v].repeat, a.repeat)
	}
	for v := range f.workers {
		f.workers[v].clock.learn(all)
		f.workers[v].drained = true
		f.queue = append(f.queue, v)
	}
	return false
}

// steady reports whether the body repeats itself before any worker reaches the epilogue. The check covers as many
// repetitions as a message or a collective spans. If each of these repetitions equals the one before, shifted, then so
// does every later repetition, because it depends only on these repetitions.
func (f *following) steady() bool {
	clear := f.p.Repeat
	for w := range f.workers {
		clear = min(clear, f.workers[w].clear)
	}
	if f.span+1 > clear {
		return false
	}
	for w := range f.workers {
		a := &f.workers[w]
		last := a.prints[clear-1-f.span : clear]
		for _, print := range last {
			if print != last[0] {
				return false
			}
		}
		for _, t := range a.out {
			if n := min(len(t.peaks), clear); n > 1 && t.peaks[n-1] != t.peaks[n-2] {
				return false // this change is not in the sender's hashes, since the sender learns nothing of the receiver
			}
		}
	}
	return true
}

// most returns the greatest number of messages on each edge.
func (f *following) most() map[Edge]int {
	most := map[Edge]int{}
	for w := range f.workers {
		for to, t := range f.workers[w].out {
			most[Edge{w, to}] = t.most
		}
	}
	return most
}
