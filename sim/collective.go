package sim

import (
	"slices"

	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/trace"
)

// gathering is a collective that some member has not joined yet.
type gathering struct {
	members []schedule.Instruction
	workers []int
	issuedS []float64 // by member: when it joined
	came    int
	takes   float64
}

// sums holds the collectives that wait for members, and the all-reduces. A worker takes part in one all-reduce at a
// time.
type sums struct {
	terms    *terms
	joined   map[schedule.Instruction]*gathering // by leader
	reducing []float64                           // by worker: when the last all-reduce that it takes part in ends
	closings []closing                           // by place (see terms.place)
	devices  []slowed                            // by worker
}

func newSums(t *terms) sums {
	return sums{terms: t, joined: map[schedule.Instruction]*gathering{}, reducing: make([]float64, t.p.Workers),
		closings: make([]closing, len(t.prices)), devices: make([]slowed, t.p.Workers)}
}

// join notes that a member has joined, and returns its collective once all members have.
func (a *sums) join(in schedule.Instruction, now, takes float64) (whole *gathering) {
	key := a.terms.p.Leader(in)
	g := a.joined[key]
	if g == nil {
		g = &gathering{}
		g.members, g.workers = a.terms.p.Group(in)
		g.issuedS = make([]float64, len(g.members))
		a.joined[key] = g
	}
	g.issuedS[slices.Index(g.members, in)] = now
	g.came++
	g.takes = max(g.takes, takes)
	if g.came < len(g.members) {
		return nil
	}
	delete(a.joined, key)
	return g
}

// join makes a member join its collective. The last member to join starts the collective. It takes as long as its
// slowest member's cost, and ends for all members at once. A worker takes part in one all-reduce at a time, in the
// order in which their last members joined. An all-reduce begins within the backward in front of it (addUp).
// Collectives and transfers do not slow each other down.
func (s *state) join(w int, in schedule.Instruction, takes float64) {
	if in.Kind == schedule.AR {
		s.sums.devices[w].comes()
	}
	g := s.sums.join(in, s.queue.now, takes)
	if g == nil {
		return
	}
	start, end := s.queue.now, s.queue.now+g.takes
	if in.Kind == schedule.AR && g.takes > 0 {
		start, end = s.sums.addUp(g, s.queue.now)
	}
	for i, m := range g.members {
		s.queue.push(event{at: end, worker: int32(g.workers[i]), in: m, what: summed})
		if s.o.Record {
			blocked := ""
			if s.queue.now > g.issuedS[i] {
				blocked = in.String()
			}
			if start > s.queue.now {
				blocked = trace.ByLink
			}
			s.journal.span(g.workers[i], m, trace.Comm, min(start, g.issuedS[i]), start, end, s.terms.bytesOf(m), blocked)
		}
	}
}
