package schedule

import (
	"fmt"
	"maps"
	"slices"
)

// Gate answers one question: may this worker start its next instruction? sim
// and run both drive one; the Machine is the real one. Calls come from one
// goroutine at a time.
type Gate interface {
	// Load starts a Program, the first or, once every list has ended, the next one.
	// Messages that have arrived and were not taken survive.
	Load(p *Program) error
	// Head is a worker's next instruction with absolute ids; false when its list has ended.
	Head(worker int) (Instruction, bool)
	// Poll says what the worker's head still needs; Need.Ready means it may start now. A
	// compute instruction that lacks only a core takes its place in the queue.
	Poll(worker int) Need
	// Start begins the head, which Poll has called ready.
	Start(worker int)
	// End says that the worker's own time on its head is over. It returns the workers
	// that are worth polling again.
	End(worker int) []int
	// Arrive says that a message is there for worker: in is the sender's SF or SB, or the
	// worker's own AR, TG or GN once that collective is complete.
	Arrive(worker int, in Instruction, from int) []int
	// Waits is what every worker that is neither running nor done waits for.
	Waits() []Need
}

// Lack is what an instruction can lack.
type Lack uint8

// What a worker may wait for.
const (
	Nothing    Lack = iota // it may start
	Message                // For has not arrived From
	Collective             // For is not complete
	Core                   // all cores are taken
	Drain                  // not every worker is here, or something is in flight
	Ended                  // the list has ended
)

// Need is what keeps a worker from starting its next instruction.
type Need struct {
	Worker int
	At     Instruction // what it would start
	Lack   Lack
	For    Instruction // the message or collective
	From   int         // the worker a message comes from
}

// Ready says whether nothing is lacking.
func (n Need) Ready() bool { return n.Lack == Nothing }

// Blocker is the short text that a Timeline keeps: an instruction, "core" or "drain".
func (n Need) Blocker() string {
	switch n.Lack {
	case Message, Collective:
		return n.For.String()
	case Core:
		return "core"
	case Drain:
		return "drain"
	}
	return ""
}

// String is a sentence for a stall report.
func (n Need) String() string {
	switch n.Lack {
	case Nothing:
		return fmt.Sprintf("worker %d may start %v", n.Worker, n.At)
	case Message:
		return fmt.Sprintf("worker %d cannot start %v: %v from worker %d has not arrived", n.Worker, n.At, n.For, n.From)
	case Collective:
		return fmt.Sprintf("worker %d cannot start %v: %v is not complete", n.Worker, n.At, n.For)
	case Core:
		return fmt.Sprintf("worker %d cannot start %v: every core is taken", n.Worker, n.At)
	case Drain:
		return fmt.Sprintf("worker %d cannot pass %v: not every worker is there with nothing in flight", n.Worker, n.At)
	}
	return fmt.Sprintf("worker %d has ended", n.Worker)
}

// Machine is the Gate: a pure state machine without clock, I/O, lock or goroutine.
type Machine struct {
	p       *Program
	cursors []Cursor
	running []bool
	arrived []map[Key]struct{} // by worker: messages not yet taken
	issued  [][]Instruction    // by worker: collectives not yet complete
	flying  int                // messages sent and not yet arrived

	cores int   // tokens left; meaningless where shared is false
	share bool  // workers share cores
	queue []int // workers that lack only a core, first come first served

	drains   []int // by worker: DR instructions reached
	released int   // drains that have been let through
	wake     []int // the slice that End and Arrive return, reused
}

// NewMachine makes the Gate of a Program. cores is how many cores the workers
// share; 0 gives each its own.
func NewMachine(p *Program, cores int) (*Machine, error) {
	if cores < 0 {
		return nil, fmt.Errorf("schedule: %d cores; use 0 for a core of each worker's own, or more", cores)
	}
	m := &Machine{cores: cores, share: cores > 0}
	if err := m.Load(p); err != nil {
		return nil, err
	}
	return m, nil
}

// Load implements Gate.
func (m *Machine) Load(p *Program) error {
	if !p.Lowered {
		return fmt.Errorf("schedule: program %s is not lowered; Lower adds its transfers and updates", p.Name)
	}
	if m.p != nil {
		if m.p.Workers != p.Workers {
			return fmt.Errorf("schedule: the next program has %d workers, this one %d; they must be as many", p.Workers, m.p.Workers)
		}
		for w := range m.cursors {
			if in, ok := m.cursors[w].Head(); ok {
				return fmt.Errorf("schedule: the next program cannot start: worker %d has not ended, its next instruction is %v", w, in)
			}
		}
	}
	if m.arrived == nil {
		m.arrived = make([]map[Key]struct{}, p.Workers)
		m.issued = make([][]Instruction, p.Workers)
		m.running = make([]bool, p.Workers)
		for w := range m.arrived {
			m.arrived[w] = map[Key]struct{}{}
		}
	}
	m.p = p
	m.cursors = make([]Cursor, p.Workers)
	m.drains = make([]int, p.Workers)
	m.released = 0
	for w := range m.cursors {
		m.cursors[w] = NewCursor(p, w)
	}
	for w := range m.cursors {
		m.reach(w)
	}
	return nil
}

// Head implements Gate.
func (m *Machine) Head(w int) (Instruction, bool) { return m.cursors[w].Head() }

// Poll implements Gate.
func (m *Machine) Poll(w int) Need {
	n := m.lacking(w)
	if n.Lack != Nothing || !m.share || !n.At.Kind.IsCompute() {
		return n
	}
	place := slices.Index(m.queue, w)
	if place < 0 {
		place = len(m.queue)
		m.queue = append(m.queue, w)
	}
	if place >= m.cores {
		n.Lack = Core
	}
	return n
}

// lacking is what the head needs besides a core.
func (m *Machine) lacking(w int) Need {
	in, ok := m.cursors[w].Head()
	n := Need{Worker: w, At: in}
	if !ok {
		n.Lack = Ended
		return n
	}
	switch in.Kind {
	case RF, RB:
		m.p.Expected(in, func(sent Instruction, from int) bool {
			if _, here := m.arrived[w][sent.Key()]; here {
				return true
			}
			n.Lack, n.For, n.From = Message, sent, from
			return false
		})
	case AR, TG, GN, U, PV, CK:
		for _, c := range m.issued[w] {
			if in.Kind == U && c.Kind == GN && m.p.PostValidate || (in.Kind == U || in.Kind == GN) && c.Micro > in.Micro {
				continue // its PV waits for the norm; a later update waits for a later sum
			}
			if in.Kind == CK || c.Stage == in.Stage && c.Pipeline == in.Pipeline {
				n.Lack, n.For = Collective, c
				break
			}
		}
	case DR:
		if m.drains[w] > m.released {
			n.Lack = Drain
		}
	}
	return n
}

// Start implements Gate.
func (m *Machine) Start(w int) {
	in, ok := m.cursors[w].Head()
	if !ok || m.running[w] {
		panic(fmt.Sprintf("schedule: Start of worker %d, which has nothing to start", w))
	}
	m.running[w] = true
	switch in.Kind {
	case F, B, I, W, U, EV:
		if m.share {
			place := slices.Index(m.queue, w)
			if place < 0 || m.cores == 0 {
				panic(fmt.Sprintf("schedule: Start of %v on worker %d without a core", in, w))
			}
			m.queue = slices.Delete(m.queue, place, place+1)
			m.cores--
		}
	case RF, RB:
		m.p.Expected(in, func(sent Instruction, from int) bool {
			delete(m.arrived[w], sent.Key())
			return true
		})
	case SF, SB:
		m.p.Recipients(in, func(int, int, int, int) bool {
			m.flying++
			return true
		})
	case AR, TG, GN:
		m.issued[w] = append(m.issued[w], in)
	}
}

// End implements Gate.
func (m *Machine) End(w int) []int {
	in, ok := m.cursors[w].Head()
	if !ok || !m.running[w] {
		panic(fmt.Sprintf("schedule: End of worker %d, which runs nothing", w))
	}
	m.running[w] = false
	m.wake = append(m.wake[:0], w)
	if m.share && in.Kind.IsCompute() {
		m.cores++
		for _, q := range m.queue[:min(m.cores, len(m.queue))] {
			m.wake = append(m.wake, q)
		}
	}
	m.cursors[w].Advance()
	m.reach(w)
	return m.wake
}

// Arrive implements Gate.
func (m *Machine) Arrive(w int, in Instruction, from int) []int {
	m.wake = append(m.wake[:0], w)
	switch in.Kind {
	case AR, TG, GN:
		if i := slices.Index(m.issued[w], in); i >= 0 {
			m.issued[w] = slices.Delete(m.issued[w], i, i+1)
		}
	default:
		m.arrived[w][in.Key()] = struct{}{}
		m.flying--
	}
	m.release()
	return m.wake
}

// reach notes that a worker's new head is a drain.
func (m *Machine) reach(w int) {
	if in, ok := m.cursors[w].Head(); ok && in.Kind == DR {
		m.drains[w]++
		m.release()
	}
}

// release lets a drain through once every worker is at it and nothing is in flight.
func (m *Machine) release() {
	if m.flying > 0 {
		return
	}
	for w := range m.cursors {
		in, ok := m.cursors[w].Head()
		if !ok || in.Kind != DR || m.drains[w] != m.released+1 || len(m.issued[w]) > 0 {
			return
		}
	}
	m.released++
	for w := range m.cursors {
		if !slices.Contains(m.wake, w) {
			m.wake = append(m.wake, w)
		}
	}
}

// Waits implements Gate.
func (m *Machine) Waits() []Need {
	var needs []Need
	for w := range m.cursors {
		if m.running[w] {
			continue
		}
		n := m.lacking(w)
		if n.Lack == Nothing && m.share && n.At.Kind.IsCompute() && m.cores == 0 {
			n.Lack = Core
		}
		if n.Lack != Ended {
			needs = append(needs, n)
		}
	}
	return needs
}

// Left is a message that arrived and that nobody took: the first by worker and
// name. A Program that ends with one is wrong.
func (m *Machine) Left() (worker int, in Instruction, found bool) {
	for w, box := range m.arrived {
		if len(box) > 0 {
			return w, slices.Min(slices.Collect(maps.Keys(box))).Instruction(), true
		}
	}
	return 0, Instruction{}, false
}
