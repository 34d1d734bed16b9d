package machine_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/machine"
)

// happening is a future event of the clock: an instruction ends, a message arrives, the last message of a send has
// arrived, or a sum is complete.
type happening struct {
	at   float64
	what string // "end", "message", "sum", "left"
	w    int
	in   schedule.Instruction
}

// literalQueue plays a Program on shared cores with its own clock. It follows the sentences of the package
// documentation literally.
type literalQueue struct {
	p       *schedule.Program
	lists   [][]schedule.Instruction
	pos     []int
	busy    []bool
	inbox   []map[schedule.Instruction]bool
	sums    []map[schedule.Instruction]bool // by worker: the sums that it has begun and that are not complete
	away    []int                           // by worker: the number of its messages in flight
	pool    []int                           // by worker: its pool, or -1 for its own processor
	waiting [][]int                         // by pool: workers in order of arrival
	free    [][]int                         // by pool: processors, the one that has been free longest first
	has     []int                           // by worker: its processor, or -1
	had     []int                           // by worker: its last processor, or -1
	over    []bool                          // by worker: whether its token's computation has ended
	passed  int                             // number of drains so far
	joined  map[schedule.Instruction]int
	later   []happening
	log     []string
	now     float64
}

// takes returns a time for an instruction or one of its messages. No two times are equal.
func takes(in schedule.Instruction, what int) float64 {
	g := rand.New(rand.NewPCG(uint64(in.Key()), uint64(what)))
	return 0.1 + g.Float64()
}

func playLiterally(p *schedule.Program, pools machine.Pools) *literalQueue {
	q := &literalQueue{p: p, joined: map[schedule.Instruction]int{}, pos: make([]int, p.Workers), busy: make([]bool,
		p.Workers),
		away: make([]int, p.Workers), over: make([]bool, p.Workers)}
	for w := range p.Workers {
		var list []schedule.Instruction
		p.Walk(w, func(in schedule.Instruction) bool {
			list = append(list, in)
			return true
		})
		q.lists = append(q.lists, list)
		q.inbox = append(q.inbox, map[schedule.Instruction]bool{})
		q.sums = append(q.sums, map[schedule.Instruction]bool{})
		q.has, q.had = append(q.has, -1), append(q.had, -1)
	}
	q.pool = slices.Repeat([]int{-1}, p.Workers)
	for i, one := range pools {
		var free []int
		for c := range one.Cores {
			free = append(free, c)
		}
		q.free, q.waiting = append(q.free, free), append(q.waiting, nil)
		for w := range p.Workers {
			if one.Workers == nil || slices.Contains(one.Workers, w) {
				q.pool[w] = i
			}
		}
	}
	for w := range p.Workers {
		q.settle(w)
	}
	q.drain()
	for {
		for w := range p.Workers {
			q.start(w)
		}
		if len(q.later) == 0 {
			return q
		}
		i := 0
		for j := range q.later {
			if q.later[j].at < q.later[i].at {
				i = j
			}
		}
		h := q.later[i]
		q.later = slices.Delete(q.later, i, i+1)
		q.now = h.at
		q.happen(h)
	}
}

func (q *literalQueue) happen(h happening) {
	switch h.what {
	case "message":
		q.inbox[h.w][h.in] = true
	case "left":
		q.away[h.w]--
	case "sum":
		delete(q.sums[h.w], h.in)
	case "end":
		q.busy[h.w] = false
		q.pos[h.w]++
		q.ended(h.w, h.in)
	}
	q.settle(h.w)
	q.drain()
}

// drain lets all workers past a drain once all are at it and nothing is in flight.
func (q *literalQueue) drain() {
	for w := range q.lists {
		if in, more := q.head(w); !more || in.Kind != schedule.DR || q.busy[w] || len(q.sums[w])+q.away[w] > 0 {
			return
		}
	}
	q.passed++
}

// ended schedules the messages and sums of an instruction that has ended.
func (q *literalQueue) ended(w int, in schedule.Instruction) {
	last := 0.0
	for i, to := range q.p.Receivers(in) {
		at := q.now + takes(in, 2+i)
		last = max(last, at)
		q.later = append(q.later, happening{at, "message", to, in})
	}
	if in.Kind.IsSend() {
		q.later = append(q.later, happening{last, "left", w, in})
	}
	if in.Kind.IsCollective() {
		members, workers := q.p.Group(in)
		if q.joined[members[0]]++; q.joined[members[0]] == len(members) {
			for i, m := range members {
				q.later = append(q.later, happening{q.now + takes(m, 1), "sum", workers[i], m})
			}
		}
	}
	q.over[w] = q.over[w] || in.Kind.IsCompute()
}

func (q *literalQueue) head(w int) (schedule.Instruction, bool) {
	if q.pos[w] == len(q.lists[w]) {
		return schedule.Instruction{}, false
	}
	return q.lists[w][q.pos[w]], true
}

// can reports whether an instruction has what it needs, apart from a core.
func (q *literalQueue) can(w int, in schedule.Instruction) bool {
	switch in.Kind {
	case schedule.RF, schedule.RB:
		here := true
		q.p.Expected(in, func(sent schedule.Instruction, _ int) bool {
			here = here && q.inbox[w][sent]
			return true
		})
		return here
	case schedule.DR:
		return q.drainsBefore(w) < q.passed
	case schedule.AR, schedule.TG, schedule.GN, schedule.U, schedule.PV, schedule.CK:
		for sum := range q.sums[w] {
			mine := sum.Stage == in.Stage && sum.Pipeline == in.Pipeline
			later := sum.Micro > in.Micro && (in.Kind == schedule.U || in.Kind == schedule.GN)
			trusted := in.Kind == schedule.U && sum.Kind == schedule.GN && q.p.PostValidate
			if in.Kind == schedule.CK || mine && !later && !trusted {
				return false
			}
		}
	}
	return true
}

func (q *literalQueue) drainsBefore(w int) (n int) {
	for _, in := range q.lists[w][:q.pos[w]] {
		if in.Kind == schedule.DR {
			n++
		}
	}
	return n
}

// turn reports whether the worker could go on to its next computation at once.
func (q *literalQueue) turn(w int) bool {
	for _, in := range q.lists[w][q.pos[w]:] {
		if !in.Kind.IsReceive() && !in.Kind.IsCompute() || !q.can(w, in) {
			return false
		}
		if in.Kind.IsCompute() {
			return true
		}
	}
	return false
}

// settle makes a worker give its processor back, or join the queue, if the rules say so.
func (q *literalQueue) settle(w int) {
	at := q.pool[w]
	if q.busy[w] || at < 0 {
		return
	}
	in, more := q.head(w)
	if q.has[w] >= 0 && q.over[w] && (!more || in.Kind.IsCompute() || in.Kind.IsReceive() || !q.can(w, in)) {
		q.free[at] = append(q.free[at], q.has[w])
		q.had[w], q.has[w] = q.has[w], -1
		if len(q.waiting[at]) > 0 {
			q.serve(q.waiting[at][0])
			q.waiting[at] = q.waiting[at][1:]
		}
	}
	if q.has[w] < 0 && !slices.Contains(q.waiting[at], w) && q.turn(w) {
		if len(q.free[at]) > 0 {
			q.serve(w)
		} else {
			q.waiting[at] = append(q.waiting[at], w)
		}
	}
}

func (q *literalQueue) serve(w int) {
	free := &q.free[q.pool[w]]
	at := slices.Index(*free, q.had[w])
	if at < 0 {
		at = 0
	}
	q.has[w], q.over[w] = (*free)[at], false
	*free = slices.Delete(*free, at, at+1)
}

func (q *literalQueue) start(w int) {
	in, more := q.head(w)
	if !more || q.busy[w] || !q.can(w, in) || q.pool[w] >= 0 && q.has[w] < 0 && q.turn(w) {
		return
	}
	if in.Kind.IsReceive() {
		q.p.Expected(in, func(sent schedule.Instruction, _ int) bool {
			delete(q.inbox[w], sent)
			return true
		})
	}
	if in.Kind.IsSend() {
		q.away[w]++
	}
	if in.Kind.IsCollective() {
		q.sums[w][in] = true
	}
	q.busy[w] = true
	q.log = append(q.log, fmt.Sprintf("%.9f %d %v on %d", q.now, w, in, q.has[w]))
	q.later = append(q.later, happening{q.now + takes(in, 0), "end", w, in})
}

// playWithTokens plays a Program with a Machine, as literalQueue does, and returns the same kind of log.
func playWithTokens(t *testing.T, p *schedule.Program, cores machine.Pools) (log []string) {
	m, err := machine.New(p, machine.Options{Cores: cores})
	if err != nil {
		t.Fatal(err)
	}
	var later []happening
	left, joined := map[schedule.Instruction]int{}, map[schedule.Instruction]int{}
	now := 0.0
	for {
		for w := range p.Workers {
			n := m.Poll(w)
			if !n.Ready() {
				continue
			}
			processor, has := m.Processor(w)
			if !has {
				processor = -1
			}
			m.Start(w)
			log = append(log, fmt.Sprintf("%.9f %d %v on %d", now, w, n.At, processor))
			later = append(later, happening{now + takes(n.At, 0), "end", w, n.At})
		}
		if len(later) == 0 {
			break
		}
		h := slices.MinFunc(later, func(a, b happening) int { return cmp.Compare(a.at, b.at) })
		later = slices.DeleteFunc(later, func(o happening) bool { return o == h })
		now = h.at
		switch h.what {
		case "end":
			for i, to := range p.Receivers(h.in) {
				later = append(later, happening{now + takes(h.in, 2+i), "message", to, h.in})
				left[h.in]++
			}
			if h.in.Kind.IsCollective() {
				members, workers := p.Group(h.in)
				if joined[members[0]]++; joined[members[0]] == len(members) {
					for i, member := range members {
						later = append(later, happening{now + takes(member, 1), "sum", workers[i], member})
					}
				}
			}
			m.Issued(h.w, !h.in.Kind.IsIssued())
		case "sum":
			m.Done(h.w, h.in)
		case "message":
			m.Arrive(h.w, h.in)
			if left[h.in]--; left[h.in] == 0 {
				m.Done(p.WorkerOf(int(h.in.Pipeline), int(h.in.Stage), int(h.in.Replica)), h.in)
			}
		}
	}
	if !m.Ended() {
		t.Fatalf("nothing moves: %v\n%s", m.Waits(), p.Text())
	}
	return log
}

// anyPools draws which workers share processors: either all of them, or those of two pools, while every other worker
// has its own processor.
func anyPools(g *rand.Rand, workers int) machine.Pools {
	if g.IntN(2) == 0 {
		return machine.Share(1 + g.IntN(workers+1))
	}
	pools := make(machine.Pools, 2)
	for i := range pools {
		pools[i].Cores = 1 + g.IntN(2)
	}
	for w := range workers {
		if at := g.IntN(5) / 2; at < len(pools) {
			pools[at].Workers = append(pools[at].Workers, w)
		}
	}
	return slices.DeleteFunc(pools, func(p machine.Pool) bool { return p.Workers == nil })
}

// TestTokensAreALiteralQueue: for random Programs and pools, Machine and literalQueue start the same instructions at
// the same times on the same processors.
func TestTokensAreALiteralQueue(t *testing.T) {
	several := 0
	for seed := range uint64(300) {
		g := rand.New(rand.NewPCG(seed, 4))
		p := anyProgram(t, g)
		pools := anyPools(g, p.Workers)
		if len(pools.Scarce(p.Workers)) > 1 {
			several++
		}
		want, got := playLiterally(p, pools).log, playWithTokens(t, p, pools)
		for i := range want {
			if i >= len(got) || want[i] != got[i] {
				t.Fatalf("seed %d, pools %v, start %d:\n%s; the literal queue:\n%s\n%s", seed, pools, i, got[min(i,
					len(got)-1)], want[i],
					p.Text())
			}
		}
		if len(got) != len(want) || len(got) == 0 {
			t.Fatalf("seed %d: %d starts, the literal queue %d", seed, len(got), len(want))
		}
	}
	if several == 0 {
		t.Error("no Program had workers wait in two pools")
	}
}

// TestProcessesShareTheirOwn: a process shares a pool only among its own workers of that pool. A worker can be in only
// one pool.
func TestProcessesShareTheirOwn(t *testing.T) {
	p := anyProgram(t, rand.New(rand.NewPCG(1, 4)))
	if p.Workers < 3 {
		t.Fatalf("%d workers; the test needs 3", p.Workers)
	}
	pools := machine.Pools{{Cores: 1, Workers: []int{0, 1}}, {Cores: 1, Workers: []int{2, 1}}}
	if _, err := machine.New(p, machine.Options{Cores: pools}); err == nil ||
		!strings.Contains(err.Error(), "worker 1 shares two pools") {
		t.Errorf("got %v", err)
	}
	pools[1].Workers = []int{2}
	x, err := machine.NewProcess(p, []int{1, 2}, machine.Options{Cores: pools})
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range []int{1, 2} {
		if n := x.Poll(w); n.Lack == machine.Core {
			t.Errorf("worker %d, alone in its pool, waits for a core: %v", w, n)
		}
	}
}
