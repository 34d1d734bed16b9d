package machine

import (
	"fmt"
	"math"
	"slices"

	"github.com/millrace-ml/millrace/schedule"
)

// Options are what workers are given beside a Program.
type Options struct {
	Cores Pools // of processors that workers share
	Ahead int   // computations issued and not done that the next one may be issued behind; without Cores
	Slots int   // of an edge; 0: no bound
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

// never is a minibatch that no Program has.
const never = math.MaxInt

// Local is one worker's list: where it is, what has arrived, what is issued and not done.
type Local struct {
	o      Options
	worker int
	p      *schedule.Program
	at     schedule.Cursor
	in     schedule.Instruction // the head
	more   bool                 // there is one
	takes  []message            // of the head, where it is a receive

	need    Need                      // of the head, besides a core, where it is known
	known   bool                      // nothing has happened since need was worked out
	ready   bool                      // Poll has called the head so
	running bool                      // the head is started
	arrived map[schedule.Key]struct{} // messages not yet taken
	joined  []schedule.Instruction    // collectives not complete
	behind  []schedule.Instruction    // computations issued and not done
	sends   int                       // not complete
	taken   []int                     // slots, by the worker that has them; nil without a bound

	drains, released int   // DR instructions passed; drains let through
	mini, micro      int32 // greatest ids of minibatches and of micro-batches begun; -1 for none
	held, limit      int   // minibatches from here on wait, are passed
	undone           int   // minibatches from here on are passed, their dropped messages taken
	passing          bool
	dropped          map[schedule.Key]struct{}

	references []int          // updates of a reference beside it that are done, by stage; nil: there is none
	loose      []strand       // of a server that takes its instructions by readiness; nil: there is one list
	turn       int            // the strand that the head is of
	came       []schedule.Key // messages that have arrived for them, in their order

	core    int  // processor of its token, or none
	used    bool // the token's computation has started
	stands  bool // in the queue for a token: it lacks a core alone, as Process.look has found
	counted bool // as one at a drain
}

// none is the processor of a worker without a token.
const none = -1

// message is one that a receive takes.
type message struct {
	key  schedule.Key // of its send
	from int
}

// NewLocal makes a worker's Local with a Program loaded.
func NewLocal(p *schedule.Program, worker int, o Options) (*Local, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	l := &Local{o: o, worker: worker, arrived: map[schedule.Key]struct{}{}, core: none}
	return l, l.Load(p)
}

// Load starts a Program, the first or, once the list has ended with nothing open, the next one. Messages that
// have arrived and were not taken survive: only the next Program's can come behind the end of a list.
func (l *Local) Load(p *schedule.Program) error {
	if err := l.mayLoad(p); err != nil {
		return err
	}
	if l.o.Slots > 0 && l.taken == nil {
		l.taken = make([]int, p.Workers)
	}
	l.p, l.at = p, schedule.NewCursor(p, l.worker)
	l.drains, l.released, l.mini, l.micro = 0, 0, -1, -1
	l.held, l.limit, l.undone, l.passing, l.dropped = never, never, never, false, nil
	l.loose, l.came = strands(p, l.worker), nil
	l.references = references(p)
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
	case l.more:
		return fmt.Errorf("machine: the next program cannot start: worker %d has not ended, its next instruction is %v",
			l.worker, l.in)
	case l.Open() > 0:
		return fmt.Errorf("machine: the next program cannot start: worker %d has issued what is not done yet",
			l.worker)
	}
	return nil
}

// Head is the next instruction, with absolute ids; false when the list has ended.
func (l *Local) Head() (schedule.Instruction, bool) { return l.in, l.more }

// Open is how much the worker has issued that is not done.
func (l *Local) Open() int { return len(l.joined) + len(l.behind) + l.sends }

// Begun is the greatest minibatch of which it has started an instruction; -1 for none.
func (l *Local) Begun() int {
	begun := int(l.mini)
	if l.micro >= 0 { // minibatches ascend with their micro-batches
		begun = max(begun, l.p.MinibatchOf(schedule.Instruction{Kind: schedule.F, Micro: l.micro}))
	}
	return begun
}

// Poll says what the head still needs; Need.Ready means that it may start now.
func (l *Local) Poll() Need {
	n := Need{Worker: l.worker, At: l.in}
	switch {
	case !l.more:
		n.Lack = Ended
	case l.running:
		n.Lack = Running
	case l.holds(l.in):
		n.Lack = Held
	default:
		n = *l.needs()
		if n.Lack == Nothing && l.stands {
			n.Lack = Core
		}
	}
	l.ready = n.Lack == Nothing
	return n
}

// needs is what the head needs besides a core, worked out once between two things that happen.
func (l *Local) needs() *Need {
	if !l.known {
		l.need, l.known = Need{Worker: l.worker, At: l.in}, true
		l.lacks(&l.need)
	}
	return &l.need
}

// lacks notes what an instruction needs besides a core, once those in front of it have been issued.
func (l *Local) lacks(n *Need) {
	switch in := n.At; in.Kind {
	case schedule.RF, schedule.RB, schedule.RG, schedule.RW:
		l.lacksMessage(n)
	case schedule.SF, schedule.SB, schedule.SG, schedule.SW:
		if l.lacksPace(n); n.Lack == Nothing && l.o.Slots > 0 {
			l.p.Recipients(in, func(to, _, _, _ int) bool {
				if l.taken[to] >= l.o.Slots {
					n.Lack, n.Peer = Slot, to
				}
				return n.Lack == Nothing
			})
		}
	case schedule.F, schedule.B, schedule.I, schedule.W, schedule.EV:
		l.lacksDevice(n)
	case schedule.U:
		if l.lacksSum(n); n.Lack == Nothing {
			l.lacksDevice(n)
		}
	case schedule.CK:
		if l.lacksSum(n); n.Lack == Nothing && len(l.behind) > 0 {
			n.Lack, n.For = Device, l.behind[0]
		}
	case schedule.AR, schedule.TG, schedule.GN, schedule.PV:
		l.lacksSum(n)
	case schedule.DR:
		if l.drains >= l.released {
			n.Lack = Drain
		}
	}
}

// lacksMessage notes the first message that a receive takes and that is not here.
func (l *Local) lacksMessage(n *Need) {
	takes := l.takes
	if n.At != l.in {
		var room [4]message
		takes = l.taking(n.At, room[:0])
	}
	for _, m := range takes {
		if _, here := l.arrived[m.key]; !here {
			n.Lack, n.For, n.Peer = Message, m.key.Instruction(), m.from
			return
		}
	}
}

func (l *Local) lacksDevice(n *Need) {
	if len(l.behind) > l.o.Ahead {
		n.Lack, n.For = Device, l.behind[0]
	}
}

// lacksSum notes the first collective that an instruction takes from and that is not complete.
func (l *Local) lacksSum(n *Need) {
	for _, c := range l.joined {
		if AwaitsSum(l.p, n.At, c) {
			n.Lack, n.For = Collective, c
			return
		}
	}
}

// AwaitsSum says whether an update, collective, PV or CK waits until a collective issued in front of it is
// complete.
func AwaitsSum(p *schedule.Program, in, collective schedule.Instruction) bool {
	if in.Kind == schedule.U && collective.Kind == schedule.GN && p.ValidatesLater() ||
		(in.Kind == schedule.U || in.Kind == schedule.GN) && collective.Micro > in.Micro {
		return false // its PV waits for the norm; a later update waits for a later sum
	}
	return in.Kind == schedule.CK || collective.Stage == in.Stage && collective.Pipeline == in.Pipeline
}

// Start begins the head, which Poll has called ready.
func (l *Local) Start() {
	if !l.ready {
		panic(fmt.Sprintf("machine: Start of worker %d at %v, which Poll has not called ready", l.worker, l.in))
	}
	in := l.in
	l.ready, l.running = false, true
	switch {
	case in.Kind == schedule.DR:
	case in.Kind.OfMinibatch():
		l.mini = max(l.mini, in.Micro)
	default:
		l.micro = max(l.micro, in.Micro)
	}
	switch in.Kind {
	case schedule.F, schedule.B, schedule.I, schedule.W, schedule.U, schedule.EV:
		l.used = true
		l.behind = append(l.behind, in)
	case schedule.RF, schedule.RB, schedule.RG, schedule.RW:
		for _, m := range l.takes {
			delete(l.arrived, m.key)
			l.took(m.key)
		}
	case schedule.SF, schedule.SB, schedule.SG, schedule.SW:
		l.sends++
		if l.o.Slots > 0 {
			l.p.Recipients(in, func(to, _, _, _ int) bool {
				l.taken[to]++
				return true
			})
		}
	case schedule.AR, schedule.TG, schedule.GN, schedule.UR:
		l.joined = append(l.joined, in)
	}
}

// Issued says that the worker's own time on its head is over; done that it is Done as well.
func (l *Local) Issued(done bool) {
	if !l.running {
		panic(fmt.Sprintf("machine: worker %d has issued something that it had not started", l.worker))
	}
	in := l.in
	if in.Kind == schedule.DR {
		l.drains++
	}
	switch {
	case !done:
	case in.Kind.IsCompute():
		l.behind = l.behind[:len(l.behind)-1] // Start put it there last
	case in.Kind.IsIssued():
		l.Done(in)
	}
	l.running = false
	l.at.Advance()
	l.ended(in)
	l.look()
}

// Done says that an instruction that was issued is complete.
func (l *Local) Done(in schedule.Instruction) {
	was := l.Open()
	defer l.changed()
	switch {
	case in.Kind.IsSend():
		l.sends--
	case in.Kind.IsCompute():
		l.behind = without(l.behind, in)
	default:
		l.joined = without(l.joined, in)
		l.moved(in)
	}
	if l.sends < 0 || l.Open() == was {
		panic(fmt.Sprintf("machine: worker %d is done with %v, which it has not issued", l.worker, in))
	}
}

func without(list []schedule.Instruction, in schedule.Instruction) []schedule.Instruction {
	if at := slices.Index(list, in); at >= 0 {
		return slices.Delete(list, at, at+1)
	}
	return list
}

// Arrive says that a message is there: in is its sender's SF or SB.
func (l *Local) Arrive(in schedule.Instruction) {
	l.arrived[in.Key()] = struct{}{}
	if l.loose != nil {
		l.came = append(l.came, in.Key())
	}
	l.changed()
}

// Credit gives a slot of the edge to a worker back.
func (l *Local) Credit(to int) {
	if l.o.Slots == 0 {
		return
	}
	if l.taken[to] == 0 {
		panic(fmt.Sprintf("machine: worker %d is given back a slot of worker %d that it has not taken", l.worker, to))
	}
	l.taken[to]--
	l.changed()
}

// AtDrain says whether the worker is at a drain that is not released, with nothing open, and at which.
func (l *Local) AtDrain() (drain int, at bool) {
	return l.drains, l.more && !l.running && l.in.Kind == schedule.DR && l.drains >= l.released && l.Open() == 0
}

// Release lets the next drain through.
func (l *Local) Release() {
	l.released++
	l.known = false
}

// wants says whether the worker lacks a core and nothing else for its next computation: all receives directly
// in front of it have arrived.
func (l *Local) wants() bool {
	if !l.more || l.running || !l.in.Kind.IsReceive() && !l.in.Kind.IsCompute() {
		return false
	}
	if l.needs().Lack != Nothing || l.holds(l.in) {
		return false
	}
	if l.in.Kind.IsCompute() {
		return true
	}
	var n Need
	for at := l.at; ; {
		at.Advance()
		in, more := at.Head()
		if !more || !in.Kind.IsReceive() && !in.Kind.IsCompute() || l.holds(in) {
			return false
		}
		if !l.passes(in) {
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

// keeps says whether the worker's token stays with it.
func (l *Local) keeps() bool {
	switch {
	case l.running || len(l.behind) > 0:
		return true
	case !l.used:
		return l.wants()
	case !l.more || l.in.Kind.IsCompute() || l.in.Kind.IsReceive():
		return false
	}
	return l.needs().Lack == Nothing
}
