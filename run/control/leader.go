package control

import (
	"fmt"

	"github.com/millrace-ml/millrace/schedule/machine"
)

// Leader is the protocol state of the leading process. The Messages that its methods return are for every process.
// Other methods tell where the processes stand.
type Leader struct {
	workers int
	out     uint64 // messages sent
	epoch   uint32
	process []told

	under    bool // a Program is running
	period   int  // minibatches of the Program that one update of every stage covers
	trains   bool
	barrier  *machine.Barrier
	stopping bool // Stop was sent in the Program
	limited  bool // Limit was sent
	asked    bool // Beat was sent, and not all processes have answered
	shows    bool // Show was sent, and not all processes have answered
	show     Show
	order    Body // the order that not all processes have answered with Done; nil means none
	failed   *Failed
	leaving  bool
}

// told holds what a process has told the leader.
type told struct {
	n                  uint64 // number of the process's last message
	ready, ended, left bool
	done               Ended
	begun              *Begun // the answer to the current Program's Stop
	needs              *Needs // the answer to the last Beat
	shown              bool   // the last Show was answered
	did                *Done  // the answer to the last order
}

// NewLeader returns a Leader of this many processes with this many workers in all.
func NewLeader(processes, workers int) *Leader {
	return &Leader{workers: workers, process: make([]told, processes)}
}

func (l *Leader) say(body Body) []Message {
	l.out++
	return []Message{{N: l.out, Epoch: l.epoch, Body: body}}
}

// Unsay takes back the last Message, which could not be sent to any process.
func (l *Leader) Unsay() { l.out-- }

// Begin starts a Program by a Load, Evaluate or Save. All processes must be Ready, and the Program before must be over.
// One update of every stage covers `period` minibatches. Only a Program that trains can be stopped before its end.
func (l *Leader) Begin(body Body, period int) []Message {
	l.mustBeIdle(body)
	_, l.trains = body.(Load)
	l.epoch++
	l.under, l.period, l.stopping, l.limited = true, max(period, 1), false, false
	l.barrier = machine.NewBarrier(l.workers)
	for i := range l.process {
		p := &l.process[i]
		p.ended, p.begun = false, nil
	}
	return l.say(body)
}

// mustBeIdle panics unless all processes can be given something to do.
func (l *Leader) mustBeIdle(body Body) {
	if !l.Ready() || l.under && !meanwhile(body) || l.order != nil || l.failed != nil || l.leaving {
		panic(fmt.Sprintf("control: a %s before the processes are ready for it", body.kind()))
	}
}

// meanwhile reports whether processes can carry out an order while a Program is running.
func meanwhile(body Body) bool {
	switch body.(type) {
	case Commit, Prune:
		return true
	}
	return false
}

// Order makes all processes carry out an order: Mark or Look between two Programs, Commit or Prune at any time.
func (l *Leader) Order(body Body) []Message {
	l.mustBeIdle(body)
	l.order = body
	for i := range l.process {
		p := &l.process[i]
		p.did = nil
		if p.needs != nil {
			p.needs.Owes = false // this value was reported for the previous order
		}
	}
	return l.say(body)
}

// Ordered reports whether an order is in progress.
func (l *Leader) Ordered() bool { return l.order != nil }

// Keepers returns for each process the keeper of its folder, as the process has answered Look.
func (l *Leader) Keepers() []int {
	keepers := make([]int, len(l.process))
	for i, p := range l.process {
		keepers[i] = p.did.Keeper
	}
	return keepers
}

// Refused returns why the last order was refused; nil if it was carried out. A refused order has changed nothing.
func (l *Leader) Refused() *Failed {
	for _, p := range l.process {
		if p.did.Refused != nil {
			return p.did.Refused
		}
	}
	return nil
}

// Stop makes the current Program end as soon as possible, if it trains. A second call does nothing.
func (l *Leader) Stop() []Message {
	if !l.under || !l.trains || l.stopping || l.failed != nil {
		return nil
	}
	l.stopping = true
	return l.say(Stop{})
}

// Beat asks all processes for their Needs, unless an earlier Beat is not fully answered or the run is over.
func (l *Leader) Beat() []Message {
	if l.asked || l.failed != nil || l.leaving {
		return nil
	}
	l.asked = true
	for i := range l.process {
		l.process[i].needs = nil
	}
	return l.say(Beat{})
}

// Show asks all processes for their record of a step. It does nothing if an earlier Show is not fully answered or the
// run is over.
func (l *Leader) Show(body Show) []Message {
	if l.shows || l.failed != nil || l.leaving {
		return nil
	}
	l.shows, l.show = true, body
	for i := range l.process {
		l.process[i].shown = false
	}
	return l.say(body)
}

// Showing reports whether an answer to a Show is missing.
func (l *Leader) Showing() bool { return l.shows }

// Fail ends the run with this reason, unless it has one already. After Leave no process is told.
func (l *Leader) Fail(f Failed) []Message {
	if l.failed != nil {
		return nil
	}
	l.failed, l.under, l.order = &f, false, nil
	if l.leaving {
		return nil
	}
	return l.say(f)
}

// Leave ends the run and is the last message to the processes. A Program or order that is not over ends with it.
func (l *Leader) Leave(body Leave) []Message {
	if l.leaving {
		return nil
	}
	l.leaving, l.under, l.order = true, false, nil
	return l.say(body)
}

// refused returns the error for a Message that its process may not send now.
func (m Message) refused(why string) error {
	return fmt.Errorf("control: message %d of process %d, %s of program %d: %s", m.N, m.From, m.Body.kind(), m.Epoch, why)
}

// Receive handles a message of a process. If it returns an error, the caller must call Fail.
func (l *Leader) Receive(m Message) ([]Message, error) {
	if m.From < 0 || m.From >= len(l.process) {
		return nil, fmt.Errorf("control: a message from process %d of %d", m.From, len(l.process))
	}
	p := &l.process[m.From]
	if m.N != p.n+1 {
		return nil, m.refused(fmt.Sprintf("its last one was number %d", p.n))
	}
	if p.left {
		return nil, m.refused("it has left")
	}
	p.n = m.N
	switch body := m.Body.(type) {
	case Failed:
		return l.Fail(body), nil
	case Stop:
		return l.Stop(), nil
	case Record, Left:
		return nil, l.receiveLeaving(p, m)
	}
	if l.failed != nil || l.leaving {
		return nil, nil
	}
	switch m.Body.(type) {
	case Ready, Needs, Shown, Done:
		return nil, l.receiveAnswer(p, m)
	}
	return l.receiveOfProgram(p, m)
}

// receiveLeaving handles a message after Leave: a part of the record, or Left.
func (l *Leader) receiveLeaving(p *told, m Message) error {
	if !l.leaving {
		return m.refused("nobody was told to leave")
	}
	switch body := m.Body.(type) {
	case Record:
		if body.Timeline == nil {
			return m.refused("it has no timeline")
		}
	case Left:
		p.left = true
	}
	return nil
}

// receiveAnswer handles an answer that may come at any time, with or without a running Program.
func (l *Leader) receiveAnswer(p *told, m Message) error {
	switch body := m.Body.(type) {
	case Ready:
		if p.ready {
			return m.refused("it was ready before")
		}
		p.ready = true
	case Needs:
		p.needs = &body
		l.asked = l.asked && !l.answered()
	case Shown:
		if !l.shows || p.shown || body.Step != l.show.Step {
			return m.refused("nobody asked")
		}
		p.shown, l.shows = true, false
		for _, p := range l.process {
			l.shows = l.shows || !p.shown
		}
	case Done:
		_, looks := l.order.(Look)
		switch {
		case l.order == nil || p.did != nil:
			return m.refused("nothing was ordered")
		case looks && (body.Keeper < 0 || body.Keeper > m.From):
			return m.refused(fmt.Sprintf("it says that process %d keeps its folder; the first that has it does", body.Keeper))
		}
		p.did = &body
		for _, p := range l.process {
			if p.did == nil {
				return nil
			}
		}
		l.order = nil
	}
	return nil
}

// receiveOfProgram handles a message about the current Program.
func (l *Leader) receiveOfProgram(p *told, m Message) ([]Message, error) {
	switch {
	case m.Epoch != l.epoch || !l.under:
		return nil, m.refused(fmt.Sprintf("program %d is the last", l.epoch))
	case p.ended:
		if body, late := m.Body.(Begun); late && l.stopping && p.begun == nil { // Stop and Ended have crossed
			p.begun = &body
			return l.limit(), nil
		}
		return nil, m.refused("it has ended the program")
	}
	switch body := m.Body.(type) {
	case Step, Result, Saved:
		return nil, nil
	case Begun:
		if !l.stopping || p.begun != nil {
			return nil, m.refused("nobody asked")
		}
		p.begun = &body
		return l.limit(), nil
	case Reached:
		released, err := l.barrier.Reach(body.Drain, body.Workers)
		if err != nil {
			return nil, m.refused(err.Error())
		}
		if released {
			return l.say(Release(Release{Drain: body.Drain})), nil
		}
		return nil, nil
	case Ended:
		p.ended, p.done = true, body
		l.close()
		return nil, nil
	}
	return nil, m.refused("a process does not say this")
}

// limit answers a Stop once all processes have sent Begun.
func (l *Leader) limit() []Message {
	most := -1
	for _, p := range l.process {
		if p.begun == nil {
			return nil
		}
		most = max(most, p.begun.Minibatch)
	}
	l.limited = true
	out := l.say(Limit{Minibatches: (most + l.period) / l.period * l.period})
	l.close()
	return out
}

// close notes that the Program is over, once all processes have ended it and, if Stop was sent, Limit was sent too.
func (l *Leader) close() {
	for _, p := range l.process {
		if !p.ended {
			return
		}
	}
	l.under = l.stopping && !l.limited
}

// Asked reports whether an answer to a Beat is missing.
func (l *Leader) Asked() bool { return l.asked && l.failed == nil }

func (l *Leader) answered() bool {
	for _, p := range l.process {
		if p.needs == nil {
			return false
		}
	}
	return true
}

// Ready reports whether all processes are ready.
func (l *Leader) Ready() bool {
	for _, p := range l.process {
		if !p.ready {
			return false
		}
	}
	return true
}

// Under reports whether a Program is running.
func (l *Leader) Under() bool { return l.under }

// Failed returns the failure that ended the run, or nil.
func (l *Leader) Failed() *Failed { return l.failed }

// Gone reports whether all processes have left or are lost.
func (l *Leader) Gone() bool {
	for _, p := range l.process {
		if !p.left {
			return false
		}
	}
	return true
}

// HasLeft reports whether a process has left or is lost.
func (l *Leader) HasLeft(process int) bool { return l.process[process].left }

// Lose marks a process as gone, because it sends no messages any more.
func (l *Leader) Lose(process int) { l.process[process].left = true }

// Outcome returns how many minibatches of a finished Program all processes have completed. If the last update was taken
// back and not repeated, `refused` is the reason.
func (l *Leader) Outcome() (minibatches int, refused *Failed) {
	for i, p := range l.process {
		if i == 0 || p.done.Minibatches < minibatches {
			minibatches = p.done.Minibatches
		}
		if refused == nil {
			refused = p.done.Refused
		}
	}
	return minibatches, refused
}
