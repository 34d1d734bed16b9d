package sim

import (
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/trace"
)

// A reference beside the pipelines (schedule, Program.Beside) is updated by a thread of its own on the same worker,
// one update after the other. The thread takes no time from the worker. The Gate decides which version of the
// reference a pipeline's update sees.

// late is how long an update of the reference takes in the simulations of AtMostBytes, in seconds. It is so long that
// the reference's queue becomes as long as it can be.
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

// besides says which further copies of a worker's reference exist. The reference's thread updates a copy of its own.
type besides struct {
	given  bool // there is a copy that no pipeline's update has used yet
	inHand bool // an update of a pipeline that is under way uses the copy
}

// moved ends an update of the reference: it frees the steps that the update took from the queue, and makes the copy
// that pipelines see.
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

// sees makes an update of a pipeline use the newest copy of the reference.
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

// seen notes that a pipeline's update has ended, and returns the bytes of the copy of the reference that it used. The
// copy is then freed. seen returns 0 if the update used no copy.
func (m *held) seen(w int, c *StageCost) int64 {
	b := &m.beside[w]
	if !b.inHand {
		return 0
	}
	b.inHand = false
	return c.ReferenceBytes
}
