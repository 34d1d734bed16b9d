package sim

import (
	"slices"

	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/trace"
)

// gathering is a collective that not every member has come to.
type gathering struct {
	members []schedule.Instruction
	workers []int
	issuedS []float64 // by member
	came    int
	takes   float64
}

// join brings a member to its collective. The last one to come sets it going: it takes
// as long as the slowest member says, and is complete for all of them at once. A worker takes part
// in one all-reduce at a time, in the order in which they were complete, each begun in the
// backward in front of it (addUp); collectives and transfers do not slow each other down.
func (s *state) join(w int, in schedule.Instruction, takes float64) {
	key := s.p.Leader(in)
	g := s.joined[key]
	if g == nil {
		g = &gathering{}
		g.members, g.workers = s.p.Group(in)
		g.issuedS = make([]float64, len(g.members))
		s.joined[key] = g
	}
	g.issuedS[slices.Index(g.members, in)] = s.now
	g.came++
	g.takes = max(g.takes, takes)
	if g.came < len(g.members) {
		return
	}
	delete(s.joined, key)
	start, end := s.now, s.now+g.takes
	if in.Kind == schedule.AR && g.takes > 0 {
		start, end = s.addUp(g)
		for _, other := range g.workers {
			s.reducing[other] = end
		}
	}
	for i, m := range g.members {
		s.queue.push(event{at: end, worker: int32(g.workers[i]), in: m, what: summed})
		if s.o.Record {
			blocked := ""
			if s.now > g.issuedS[i] {
				blocked = in.String()
			}
			if start > s.now {
				blocked = trace.ByLink
			}
			s.recordSpan(g.workers[i], m, trace.Comm, min(start, g.issuedS[i]), start, end, s.bytesOf(m), blocked)
		}
	}
}
