package machine

import "github.com/millrace-ml/millrace/schedule"

// Play runs a Program as far as it can go, with transfers, collectives and computations that take no time.
//
// The result does not depend on the order in which workers are polled. A worker waits only until a message, slot or
// collective is there, and no other worker can take these. A server's work for one trainer delays other trainers only
// for a while (strands). If Play reaches the end of every list, the Program ends whatever the speeds of workers are. If
// Play stops before, the Program blocks at any speed, and Machine.Waits says why.
func Play(p *schedule.Program, o Options) (*Machine, error) {
	m, err := New(p, o)
	if err != nil {
		return nil, err
	}
	x := player{m: m, p: p, joined: map[schedule.Instruction]*meeting{}}
	for w := range p.Workers {
		x.queue = append(x.queue, w)
	}
	for len(x.queue) > 0 {
		w := x.queue[len(x.queue)-1]
		x.queue = x.queue[:len(x.queue)-1]
		for x.at = w; m.Poll(w).Ready(); {
			x.execute(w)
		}
	}
	return m, nil
}

type player struct {
	m      *Machine
	p      *schedule.Program
	queue  []int // workers to poll
	at     int   // the worker that is polled now
	joined map[schedule.Instruction]*meeting
	froms  []int
}

// meeting is a collective that only some members have joined.
type meeting struct {
	members []schedule.Instruction
	workers []int
	came    int
}

func (x *player) look(workers []int) {
	for _, w := range workers {
		if w != x.at { // x.at is polled anyway until it can do no more
			x.queue = append(x.queue, w)
		}
	}
}

// execute executes a worker's head, and delivers what it sends.
func (x *player) execute(w int) {
	l := x.m.Local(w)
	in, _ := l.Head()
	x.froms = x.froms[:0]
	if in.Kind.IsReceive() && l.o.Slots > 0 {
		l.Messages(func(_ schedule.Instruction, from int) bool {
			x.froms = append(x.froms, from)
			return true
		})
	}
	x.m.Start(w)
	x.look(x.m.Issued(w, !in.Kind.IsCollective()))
	for _, from := range x.froms {
		x.look(x.m.Credit(from, w))
	}
	switch {
	case in.Kind.IsSend():
		x.p.Recipients(in, func(to, _, _, _ int) bool {
			x.look(x.m.Arrive(to, in))
			return true
		})
	case in.Kind.IsCollective():
		leader := x.p.Leader(in)
		g := x.joined[leader]
		if g == nil {
			g = &meeting{}
			g.members, g.workers = x.p.Group(in)
			x.joined[leader] = g
		}
		if g.came++; g.came == len(g.members) {
			delete(x.joined, leader)
			for i, member := range g.members {
				x.look(x.m.Done(g.workers[i], member))
			}
		}
	}
}

// LeastSlots returns the smallest number of slots per edge with which a Program runs to its end. It returns 0 if no
// number is enough.
//
// More slots never hurt. A Program needs more than one slot if workers in a circle send several messages before they
// receive one. Until the first of these messages is taken, all of them need room: in the slots of the circle's edges,
// and one at each worker. So 1F1B with depths K needs half of the greatest K_i - K_(i+1), rounded up, and at least 1.
// Looped BFS of M micro-batches on W workers needs M/W, rounded down. One slot is enough for the other families with
// one stage per worker, for dp and for Chimera. Two are enough for families in which a micro-batch visits a worker
// several times (interleaved, ZB-V), and for elastic averaging of two pipelines.
func LeastSlots(p *schedule.Program) (int, error) {
	ends := func(slots int) (bool, error) {
		m, err := Play(p, Options{Slots: slots})
		return err == nil && m.Ended(), err
	}
	if free, err := ends(0); !free {
		return 0, err
	}
	enough := 1
	for {
		ok, err := ends(enough)
		if err != nil {
			return 0, err
		}
		if ok {
			break
		}
		enough *= 2
	}
	few := enough / 2 // a number of slots that is too small, or 0
	for enough-few > 1 {
		middle := (few + enough) / 2
		ok, err := ends(middle)
		if err != nil {
			return 0, err
		}
		if ok {
			enough = middle
		} else {
			few = middle
		}
	}
	return enough, nil
}

// CheckSlots refuses a Program that would deadlock with this many slots per edge. A StallError then says which
// worker waits for which.
func CheckSlots(p *schedule.Program, slots int) error {
	m, err := Play(p, Options{Slots: slots})
	if err != nil {
		return err
	}
	if waits := m.Waits(); len(waits) > 0 {
		return NewStall("schedule", "would block for ever with so few slots", p, waits, nil)
	}
	return nil
}
