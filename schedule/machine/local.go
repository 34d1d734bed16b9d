package machine

import (
	"fmt"
	"math"

	"github.com/millrace-ml/millrace/schedule"
)

// Options are limits on what workers may do. They are not part of a Program.
type Options struct {
	Cores Pools // processors that workers share
	Ahead int   // how many computations may be issued and not done when the next one starts; 0 with Cores
	Slots int   // the most untaken messages on an edge; 0 means no limit
}

func (o Options) check() error {
	switch {
	case o.Ahead < 0 || o.Ahead > 0 && len(o.Cores) > 0:
		return fmt.Errorf("machine: computations issued %d ahead on %d shared cores; use 0, or more where cores are "+
			"not shared", o.Ahead, o.Cores.Tokens())
	case o.Slots < 0:
		return fmt.Errorf("machine: %d slots an edge; use 0 for no bound, or more", o.Slots)
	}
	return o.Cores.check()
}

// never is a minibatch number that no Program has.
const never = math.MaxInt

// Local is one worker's list: its position, what has arrived, what is issued and not done. It has a method for each
// transition and each question of the package's contract, and works out what the head lacks from its parts.
type Local struct {
	o       Options
	worker  int
	p       *schedule.Program
	head    head
	need    Need // what the head needs, except a core; valid only if known is true
	known   bool // nothing has happened since need was computed
	ready   bool // Poll has reported that the head may start
	running bool // the head is started

	begun      begun
	arrived    map[schedule.Key]struct{} // messages that have arrived and are not yet taken
	open       open
	slots      slots
	drains     drains
	passing    passing
	strands    strands
	references references
	token      token
}

// head is the next instruction of a list.
type head struct {
	at    schedule.Cursor
	in    schedule.Instruction
	more  bool      // false at the end of the list
	takes []message // if the head is a receive: the messages that it takes
}

// begun holds the greatest minibatch and micro-batch that a worker has begun; -1 means none.
type begun struct{ mini, micro int32 }

func (b *begun) add(in schedule.Instruction) {
	switch {
	case in.Kind == schedule.DR:
	case in.Kind.OfMinibatch():
		b.mini = max(b.mini, in.Micro)
	default:
		b.micro = max(b.micro, in.Micro)
	}
}

// drains counts the DR instructions that a worker has passed, and those released.
type drains struct {
	passed, released int
	counted          bool // the worker has been counted at its current drain
}

// token is a worker's token for a core, or its place in the queue for one. A worker never has both.
type token struct {
	core   int  // the token's processor, or none
	used   bool // the token's computation has started
	stands bool // the worker is in the queue: it lacks only a core
}

// slots holds the slots that a worker has taken on its edges, by receiver.
type slots struct {
	most  int // slots of an edge; 0 means no limit
	taken []int
}

// full returns the first receiver to which a send has no free slot.
func (s *slots) full(p *schedule.Program, in schedule.Instruction) (peer int, is bool) {
	if s.most == 0 {
		return 0, false
	}
	p.Recipients(in, func(to, _, _, _ int) bool {
		if s.taken[to] >= s.most {
			peer, is = to, true
		}
		return !is
	})
	return peer, is
}

// take takes the slots of a send.
func (s *slots) take(p *schedule.Program, in schedule.Instruction) {
	if s.most > 0 {
		p.Recipients(in, func(to, _, _, _ int) bool {
			s.taken[to]++
			return true
		})
	}
}

// none is the processor number of a worker without a token.
const none = -1

// message is one of the messages that a receive takes.
type message struct {
	key  schedule.Key // the key of the send
	from int
}

// NewLocal makes a worker's Local with a Program loaded.
func NewLocal(p *schedule.Program, worker int, o Options) (*Local, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	l := &Local{o: o, worker: worker, arrived: map[schedule.Key]struct{}{}, token: token{core: none},
		slots: slots{most: o.Slots}}
	return l, l.Load(p)
}

// Load starts a Program, the first or the next one. It refuses a Program that is not lowered or has another number of
// workers, and any Program before the list has ended with nothing open. Messages that have arrived and were not taken
// stay; after the end of a list they can only belong to the next Program.
func (l *Local) Load(p *schedule.Program) error {
	if err := l.mayLoad(p); err != nil {
		return err
	}
	if l.slots.most > 0 && l.slots.taken == nil {
		l.slots.taken = make([]int, p.Workers)
	}
	l.p, l.head.at = p, schedule.NewCursor(p, l.worker)
	l.drains.passed, l.drains.released, l.begun = 0, 0, begun{-1, -1}
	l.passing, l.strands = passesNothing(p), strandsOf(p, l.worker)
	l.references = referencesOf(p)
	l.look()
	return nil
}

func (l *Local) mayLoad(p *schedule.Program) error {
	switch {
	case !p.Lowered:
		return fmt.Errorf("machine: program %s is not lowered; lower.Lower adds its transfers and updates", p.Name)
	case l.worker < 0 || l.worker >= p.Workers:
		return fmt.Errorf("machine: program %s has %d workers, and no worker %d", p.Name, p.Workers, l.worker)
	case l.p != nil && l.p.Workers != p.Workers:
		return fmt.Errorf("machine: the next program has %d workers, this one %d; they must be as many", p.Workers,
			l.p.Workers)
	case l.head.more:
		return fmt.Errorf("machine: the next program cannot start: worker %d has not ended, its next instruction is %v",
			l.worker, l.head.in)
	case l.Open() > 0:
		return fmt.Errorf("machine: the next program cannot start: worker %d has issued what is not done yet",
			l.worker)
	}
	return nil
}

// Head returns the next instruction, with absolute ids, and false when the list has ended.
func (l *Local) Head() (schedule.Instruction, bool) { return l.head.in, l.head.more }

// Open returns how many instructions of the worker are issued and not done.
func (l *Local) Open() int { return l.open.count() }

// Begun returns the greatest minibatch for which the worker has started an instruction; -1 if it has started none.
func (l *Local) Begun() int {
	begun := int(l.begun.mini)
	if l.begun.micro >= 0 { // minibatches ascend with their micro-batches
		begun = max(begun, l.p.MinibatchOf(schedule.Instruction{Kind: schedule.F, Micro: l.begun.micro}))
	}
	return begun
}

// Poll returns what the head still needs. Need.Ready means that it may start now.
func (l *Local) Poll() Need {
	n := Need{Worker: l.worker, At: l.head.in}
	switch {
	case !l.head.more:
		n.Lack = Ended
	case l.running:
		n.Lack = Running
	case l.passing.holds(l.head.in):
		n.Lack = Held
	default:
		n = *l.needs()
		if n.Lack == Nothing && l.token.stands {
			n.Lack = Core
		}
	}
	l.ready = n.Lack == Nothing
	return n
}

// needs returns what the head needs, except a core. It is computed once between two transitions.
func (l *Local) needs() *Need {
	if !l.known {
		l.need, l.known = Need{Worker: l.worker, At: l.head.in}, true
		l.lacks(&l.need)
	}
	return &l.need
}

// lacks sets what an instruction lacks, except a core, once all instructions before it have been issued.
func (l *Local) lacks(n *Need) {
	switch in := n.At; in.Kind {
	case schedule.RF, schedule.RB, schedule.RG, schedule.RW:
		l.lacksMessage(n)
	case schedule.SF, schedule.SB, schedule.SG, schedule.SW:
		if slower, ahead := l.strands.ahead(in, &l.passing); ahead {
			n.Lack, n.Peer = Ahead, slower
		} else if peer, full := l.slots.full(l.p, in); full {
			n.Lack, n.Peer = Slot, peer
		}
	case schedule.F, schedule.B, schedule.I, schedule.W, schedule.EV:
		l.open.lacksDevice(n, l.o.Ahead)
	case schedule.U:
		if l.open.lacksSum(n, l.p); n.Lack == Nothing {
			l.open.lacksDevice(n, l.o.Ahead)
		}
	case schedule.CK:
		if l.open.lacksSum(n, l.p); n.Lack == Nothing {
			l.open.lacksDevice(n, 0)
		}
	case schedule.AR, schedule.TG, schedule.GN, schedule.PV:
		l.open.lacksSum(n, l.p)
	case schedule.DR:
		if l.drains.passed >= l.drains.released {
			n.Lack = Drain
		}
	}
}

// lacksMessage sets in a Need the first message that its receive waits for, if one has not arrived.
func (l *Local) lacksMessage(n *Need) {
	takes := l.head.takes
	if n.At != l.head.in {
		var room [4]message
		takes = l.passing.taking(n.At, room[:0])
	}
	for _, m := range takes {
		if _, here := l.arrived[m.key]; !here {
			n.Lack, n.For, n.Peer = Message, m.key.Instruction(), m.from
			return
		}
	}
}

// AwaitsSum reports whether an update, collective, PV or CK waits for a collective that its worker issued before it.
func AwaitsSum(p *schedule.Program, in, collective schedule.Instruction) bool {
	if in.Kind == schedule.U && collective.Kind == schedule.GN && p.ValidatesLater() ||
		(in.Kind == schedule.U || in.Kind == schedule.GN) && collective.Micro > in.Micro {
		return false // the update's PV waits for the norm; an update or norm does not wait for a later sum
	}
	return in.Kind == schedule.CK || collective.Stage == in.Stage && collective.Pipeline == in.Pipeline
}

// Start begins the head, which Poll has reported as ready.
func (l *Local) Start() {
	if !l.ready {
		panic(fmt.Sprintf("machine: Start of worker %d at %v, which Poll has not called ready", l.worker, l.head.in))
	}
	in := l.head.in
	l.ready, l.running = false, true
	l.begun.add(in)
	l.open.start(in)
	switch {
	case in.Kind.IsCompute():
		l.token.used = true
	case in.Kind.IsReceive():
		for _, m := range l.head.takes {
			delete(l.arrived, m.key)
			l.strands.took(m.key)
		}
	case in.Kind.IsSend():
		l.slots.take(l.p, in)
	}
}

// Issued says that the worker's own time on its head is over. `done` says that the head is Done as well.
func (l *Local) Issued(done bool) {
	if !l.running {
		panic(fmt.Sprintf("machine: worker %d has issued something that it had not started", l.worker))
	}
	in := l.head.in
	if in.Kind == schedule.DR {
		l.drains.passed++
	}
	switch {
	case !done:
	case in.Kind.IsCompute():
		l.open.undo()
	case in.Kind.IsIssued():
		l.Done(in)
	}
	l.running = false
	l.head.at.Advance()
	l.strands.ended(in, l.head.at)
	l.look()
}

// Done says that an issued instruction is complete.
func (l *Local) Done(in schedule.Instruction) {
	if !l.open.end(in) {
		panic(fmt.Sprintf("machine: worker %d is done with %v, which it has not issued", l.worker, in))
	}
	l.references.moved(in)
	l.changed()
}

// Arrive says that a message has arrived. `in` is the send of the message.
func (l *Local) Arrive(in schedule.Instruction) {
	l.arrived[in.Key()] = struct{}{}
	l.strands.arrive(in.Key())
	l.changed()
}

// Credit gives back a slot of the edge from this worker to another one.
func (l *Local) Credit(to int) {
	if l.slots.most == 0 {
		return
	}
	if l.slots.taken[to] == 0 {
		panic(fmt.Sprintf("machine: worker %d is given back a slot of worker %d that it has not taken", l.worker, to))
	}
	l.slots.taken[to]--
	l.changed()
}

// AtDrain returns the drain that the worker has reached. `at` is true if the worker waits at that drain with nothing
// open.
func (l *Local) AtDrain() (drain int, at bool) {
	return l.drains.passed, l.head.more && !l.running && l.head.in.Kind == schedule.DR &&
		l.drains.passed >= l.drains.released && l.Open() == 0
}

// Release lets the worker go past its next drain.
func (l *Local) Release() {
	l.drains.released++
	l.drains.counted, l.known = false, false
}

// wants reports whether the worker lacks only a core for its next computation. All receives directly before it must
// have arrived.
func (l *Local) wants() bool {
	if !l.head.more || l.running || !l.head.in.Kind.IsReceive() && !l.head.in.Kind.IsCompute() {
		return false
	}
	if l.needs().Lack != Nothing || l.passing.holds(l.head.in) {
		return false
	}
	if l.head.in.Kind.IsCompute() {
		return true
	}
	var n Need
	for at := l.head.at; ; {
		at.Advance()
		in, more := at.Head()
		if !more || !in.Kind.IsReceive() && !in.Kind.IsCompute() || l.passing.holds(in) {
			return false
		}
		if !l.passing.passes(in) {
			n.At = in
			if l.lacks(&n); n.Lack != Nothing {
				return false
			}
			if in.Kind.IsCompute() {
				return true
			}
		}
	}
}

// keeps reports whether the worker may keep its token.
func (l *Local) keeps() bool {
	switch {
	case l.running || len(l.open.behind) > 0:
		return true
	case !l.token.used:
		return l.wants()
	case !l.head.more || l.head.in.Kind.IsCompute() || l.head.in.Kind.IsReceive():
		return false
	}
	return l.needs().Lack == Nothing
}
