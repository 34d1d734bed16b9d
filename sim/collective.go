package sim

import (
	"slices"

	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/trace"
)

// gathering is a collective, with the members that have joined it so far.
type gathering struct {
	members []schedule.Instruction
	workers []int
	issuedS []float64 // by member: when it joined
	came    int
	takes   float64
}

// sums holds the collectives that wait for members, and how all-reduces occupy and slow down workers. A worker takes
// part in one all-reduce at a time.
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

// join notes that a member has joined its collective. It returns the collective if this was the last member, and nil
// otherwise.
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

// join makes a member join its collective. The collective begins when its last member joins. It takes the time of its
// slowest member, and ends for all members at once. An all-reduce may begin earlier, within the backward in front of it
// (addUp). A worker takes part in one all-reduce at a time, in the order in which the last members of the all-reduces
// joined. With Costs.Ports, traffic sums the gradients instead, part by part.
func (s *state) join(w int, in schedule.Instruction, takes float64) {
	if in.Kind == schedule.AR {
		s.sums.devices[w].comes()
	}
	if in.Kind == schedule.AR && s.traffic != nil && s.traffic.join(in) {
		return
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

// addition is a sum of gradients, from its first member's last backward to its end.
type addition struct {
	gathering
	stage   int
	parts   []float64 // in the order in which they are summed: shares, and the rest once all members have joined
	ready   []int     // by part: number of members whose gradients of this part exist
	next    int
	running bool
	queued  bool
	startS  float64
	wholeS  float64 // when the last member joined
	last    schedule.Instruction
	closed  []interval
	taken   []interval
}

// of returns the sum that a member belongs to. It is nil if the sum takes no time.
func (t *traffic) of(in schedule.Instruction) *addition {
	key := t.s.terms.p.Leader(in)
	if a := t.adding[key]; a != nil {
		return a
	}
	a := &addition{stage: int(in.Stage), startS: -1}
	a.members, a.workers = t.s.terms.p.Group(in)
	for _, m := range a.members {
		a.takes = max(a.takes, t.s.terms.of(m).AllReduceS)
	}
	if a.takes == 0 {
		return nil
	}
	a.issuedS = make([]float64, len(a.members))
	left := 1.0
	for _, share := range t.sharesOf(a.members[0]) {
		a.parts = append(a.parts, share.Part)
		left -= share.Part
	}
	if left < 1e-12 {
		left = 0
	}
	a.parts = append(a.parts, left)
	a.ready = make([]int, len(a.parts))
	t.adding[key] = a
	return a
}

// sharesOf returns the gradients that a member can sum during its last backward.
func (t *traffic) sharesOf(m schedule.Instruction) []Share {
	switch t.closing[m].Kind {
	case schedule.B:
		return t.s.terms.of(m).Shares
	case schedule.W:
		return t.s.terms.of(m).WeightShares
	}
	return nil
}

// computes notes that a computation of `takes` seconds begins. If it is the last backward of a sum, the sum's shares
// become ready while it runs.
func (t *traffic) computes(in schedule.Instruction, takes float64) {
	m, closes := t.ending[in]
	if !closes {
		return
	}
	a := t.of(m)
	if a == nil {
		return
	}
	now := t.s.queue.now
	for i, share := range t.sharesOf(m) {
		if i < len(a.parts)-1 {
			t.start(nil, share.At*((now+takes)-now), // computed as in addUp, so that the last bit is the same
				func() { t.has(a, i) })
		}
	}
}

// has notes that one more member has its gradients of a part.
func (t *traffic) has(a *addition, part int) {
	a.ready[part]++
	t.add(a)
}

// join makes a member join its sum. It returns false if the sum takes no time.
func (t *traffic) join(in schedule.Instruction) bool {
	a := t.of(in)
	if a == nil {
		return false
	}
	a.issuedS[slices.Index(a.members, in)] = t.s.queue.now
	a.came++
	for i := len(t.sharesOf(in)); i < len(a.parts)-1; i++ { // this member has no such gradients, and adds zeros
		a.ready[i]++
	}
	a.ready[len(a.parts)-1]++
	if a.came == len(a.members) {
		a.wholeS, a.last = t.s.queue.now, in
		delete(t.adding, t.s.terms.p.Leader(in))
		for _, m := range a.members {
			last := &t.s.sums.closings[t.s.terms.place(m)]
			a.closed = append(a.closed, interval{last.start, last.end})
			*last = closing{}
		}
	}
	t.add(a)
	return true
}

// add sums the next part of an addition if all members have it and none of its workers sums anything now.
func (t *traffic) add(a *addition) {
	if a.running || a.ready[a.next] < len(a.members) {
		return
	}
	for _, w := range a.workers {
		if t.summing[w] {
			if !a.queued {
				a.queued = true
				t.waiting = append(t.waiting, a)
			}
			return
		}
	}
	now := t.s.queue.now
	if a.startS < 0 {
		a.startS = now
	}
	if n := len(a.taken); n == 0 || a.taken[n-1].to < now {
		a.taken = append(a.taken, interval{now, now})
	}
	takes := a.parts[a.next] * a.takes
	if takes == 0 {
		t.added(a)
		return
	}
	t.occupy(a, true)
	t.start(t.ports.Sums[a.stage], takes, func() {
		t.occupy(a, false)
		t.added(a)
		waiting := t.waiting
		t.waiting = nil
		for _, other := range waiting {
			other.queued = false
			t.add(other)
		}
	})
}

// occupy marks the workers of an addition as summing, or as free again.
func (t *traffic) occupy(a *addition, running bool) {
	a.running = running
	for _, w := range a.workers {
		t.summing[w] = running
	}
}

// added ends a part of an addition. After the last part, the addition ends for all members.
func (t *traffic) added(a *addition) {
	s, now := t.s, t.s.queue.now
	a.taken[len(a.taken)-1].to = now
	if a.next++; a.next < len(a.parts) {
		t.add(a)
		return
	}
	for i, m := range a.members {
		w := a.workers[i]
		s.sums.devices[w].sum(a.taken, a.closed[i], s.terms.of(m).Unhidden)
		s.queue.push(event{at: now, worker: int32(w), in: m, what: summed})
		if s.o.Record {
			blocked := ""
			if a.wholeS > a.issuedS[i] {
				blocked = a.last.String()
			}
			if a.startS > a.wholeS {
				blocked = trace.ByLink
			}
			s.journal.span(w, m, trace.Comm, min(a.startS, a.issuedS[i]), a.startS, now, s.terms.bytesOf(m), blocked)
		}
	}
}
