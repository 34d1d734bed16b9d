package sim

import (
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/trace"
)

// A reference beside the pipelines (schedule, Program.Beside) is updated by a thread of its worker's, one update after
// the other, which takes nothing from the worker. Which one a pipeline's update sees is for the Gate to say.

// late is how long an update of the reference takes where each worker in turn is behind all others: its queue is then
// as long as it can be.
const late = 1 << 30

// move gives the thread an update of the reference.
func (s *state) move(w int, in schedule.Instruction, takes float64) {
	if s.o.takes != nil {
		takes = late
	}
	me := &s.workers[w]
	start := max(s.queue.now, me.aside)
	me.aside = start + takes
	s.queue.push(event{at: me.aside, worker: int32(w), in: in, what: summed})
	if s.o.Record {
		blocked := ""
		if start > s.queue.now {
			before := in
			before.Micro--
			blocked = before.String()
		}
		s.journal.span(w, in, trace.Beside, s.queue.now, start, me.aside, 0, blocked)
	}
}

// besides says which copies of a worker's reference there are besides the one that its thread works on.
type besides struct {
	given  bool // a copy lies there that no update has seen
	inHand bool // the update under way has taken it
}

// moved ends an update of the reference: the steps that it took are gone, and what pipelines see next is there.
func (m *held) moved(w int, in schedule.Instruction) {
	if in.Kind != schedule.UR {
		return
	}
	a, c := &m.accounts[w], m.terms.of(in)
	a.hold(m.terms.p.UpdateCost(in).Models * c.ReferenceBytes)
	if b := &m.beside[w]; !b.given {
		b.given = true
		a.hold(c.ReferenceBytes)
	}
	m.sample(w)
}

// sees has an update of a pipeline take the newest reference.
func (s *state) sees(w int, in schedule.Instruction) {
	if !s.terms.p.Beside() {
		return
	}
	b := &s.memory.beside[w]
	b.inHand, b.given = b.given, false
	if s.o.Record {
		s.journal.tl.Seen = append(s.journal.tl.Seen, trace.Seen{Pipeline: int(in.Pipeline), Stage: int(in.Stage),
			Step: int(in.Micro), Version: s.gate.Sees(w, in.Stage)})
	}
}

// seen returns the bytes of the reference's copy that an ended update has used up; 0 where it took none.
func (m *held) seen(w int, c *StageCost) int64 {
	b := &m.beside[w]
	if !b.inHand {
		return 0
	}
	b.inHand = false
	return c.ReferenceBytes
}
