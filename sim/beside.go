package sim

import (
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/trace"
)

// A reference beside the pipelines (schedule, Program.Beside) is updated by a thread of its worker's, one update after
// the other, which takes nothing from the worker. Which one a pipeline's update sees is for the Gate to say.

// aside is the thread of a worker's reference.
type aside struct {
	free   float64 // when it is done with what it was given
	given  bool    // a copy of the reference lies there that no update has seen
	inHand bool    // the update under way has taken it
}

// late is how long an update of the reference takes where each worker in turn is behind all others: its queue is then
// as long as it can be.
const late = 1 << 30

// move gives the thread an update of the reference.
func (s *state) move(w int, in schedule.Instruction, takes float64) {
	if s.o.takes != nil {
		takes = late
	}
	a := &s.aside[w]
	start := max(s.now, a.free)
	a.free = start + takes
	s.queue.push(event{at: a.free, worker: int32(w), in: in, what: summed})
	if s.o.Record {
		blocked := ""
		if start > s.now {
			before := in
			before.Micro--
			blocked = before.String()
		}
		s.recordSpan(w, in, trace.Beside, s.now, start, a.free, 0, blocked)
	}
}

// moved ends an update of the reference: the steps that it took are gone, and what pipelines see next is there.
func (s *state) moved(w int, in schedule.Instruction) {
	if in.Kind != schedule.UR {
		return
	}
	m, c := &s.workers[w].memory, s.costs.on(s.p, in)
	m.hold(s.p.UpdateCost(in).Models * c.ReferenceBytes)
	if a := &s.aside[w]; !a.given {
		a.given = true
		m.hold(c.ReferenceBytes)
	}
	s.sample(w)
}

// sees has an update of a pipeline take the newest reference.
func (s *state) sees(w int, in schedule.Instruction) {
	if !s.p.Beside() {
		return
	}
	a := &s.aside[w]
	a.inHand, a.given = a.given, false
	if s.o.Record {
		s.tl.Seen = append(s.tl.Seen, trace.Seen{Pipeline: int(in.Pipeline), Stage: int(in.Stage), Step: int(in.Micro),
			Version: s.gate.Sees(w, in.Stage)})
	}
}

// seen is what an update that has ended has taken of the reference's thread.
func (s *state) seen(w int, c *StageCost) int64 {
	a := &s.aside[w]
	if !a.inHand {
		return 0
	}
	a.inHand = false
	return c.ReferenceBytes
}
