package family

import (
	"math"
	"slices"

	"github.com/millrace-ml/millrace/schedule"
)

// uniform is one iteration of one pipeline of family elastic, and the number of pipelines that share its workers. A
// forward takes one slot, a backward two, and a transfer none.
type uniform struct {
	p         *schedule.Program
	pipelines int
	base      schedule.Part // one iteration of one pipeline
	needs     [][][]spot    // by worker and position in base: the computations of the same pipeline that must end first
	feeds     [][]int       // by worker: the workers that wait for its computations
}

// spot is a position in the base list of a worker.
type spot struct{ worker, at int }

// waiting is the next computation of a pipeline on a worker, which waits for a turn.
type waiting struct {
	pipeline, iteration int
	since               int // when everything that the computation needs was ready
	backward            bool
}

// elasticRule reports whether a free worker prefers `a` to `b`, if both could start at once.
type elasticRule func(a, b waiting) bool

// elasticRules are tried in turn. The rule whose cycle is fastest wins. Of several such rules, the first wins.
var elasticRules = []elasticRule{
	func(a, b waiting) bool { // what has been ready longest; if equal, a backward before a forward
		return a.since < b.since || a.since == b.since && a.backward && !b.backward
	},
	func(a, b waiting) bool { // the earlier iteration; if equal, what has been ready longest
		return a.iteration < b.iteration || a.iteration == b.iteration && a.since < b.since
	},
	func(a, b waiting) bool { // the earlier iteration; if equal, a backward before a forward
		return a.iteration < b.iteration || a.iteration == b.iteration && a.backward && !b.backward
	},
	func(a, b waiting) bool { return a.iteration < b.iteration }, // the earlier iteration; if equal, the lower pipeline
	func(a, b waiting) bool { return a.backward && !b.backward },
}

// unknown marks a time that is not known yet.
const unknown = -1

// elasticSlots returns how many slots a computation takes.
func elasticSlots(k schedule.Kind) int {
	if k == schedule.B {
		return 2
	}
	return 1
}

func newUniform(p *schedule.Program, base schedule.Part) *uniform {
	u := &uniform{
		p: p, pipelines: p.Elastic.Pipelines, base: base,
		needs: make([][][]spot, p.Workers), feeds: make([][]int, p.Workers),
	}
	at := map[schedule.Instruction]spot{}
	for w, list := range base {
		for i, in := range list {
			at[in] = spot{w, i}
		}
	}
	for w, list := range base {
		u.needs[w] = make([][]spot, len(list))
		for i, in := range list {
			from := in.As(schedule.RF)
			if in.Kind == schedule.B {
				from = in.As(schedule.RB)
			}
			stage := schedule.OtherEnd(from)
			for _, r := range p.Peers(nil, from, stage) {
				made := in
				made.Stage, made.Replica = stage, int16(r)
				need := at[made]
				u.needs[w][i] = append(u.needs[w][i], need)
				if !slices.Contains(u.feeds[need.worker], w) {
					u.feeds[need.worker] = append(u.feeds[need.worker], w)
				}
			}
		}
	}
	return u
}

// busiest returns how many slots the busiest worker computes in an iteration of all pipelines.
func (u *uniform) busiest() int {
	most := 0
	for _, list := range u.base {
		slots := 0
		for _, in := range list {
			slots += elasticSlots(in.Kind)
		}
		most = max(most, slots*u.pipelines)
	}
	return most
}

// player is the state of a running simulation of the pipelines.
type player struct {
	*uniform
	rule       elasticRule
	iterations int       // number of iterations
	free       []int     // by worker: when it becomes free
	next       [][]int   // by worker and pipeline: position in the pipeline's endless list
	ends       [][][]int // by worker and pipeline: when each computation of that list ended
	// since has, by worker and pipeline, the time when everything that the next computation needs was ready; unknown
	// until then.
	since [][]int
	left  [][]int // by pipeline and iteration: the number of workers that have not ended it
	record
}

// play simulates this many iterations of every pipeline, and returns which computations began when.
func (u *uniform) play(rule elasticRule, iterations int) *record {
	workers := u.p.Workers
	o := &player{
		uniform: u, rule: rule, iterations: iterations,
		free: make([]int, workers), next: make([][]int, workers), ends: make([][][]int, workers),
		since: make([][]int, workers),
		left:  make([][]int, u.pipelines),
		record: record{of: u, iterations: iterations, begun: make([][]started, workers),
			done: make([][]int, u.pipelines)},
	}
	computations := 0
	for w, list := range u.base {
		o.next[w], o.ends[w] = make([]int, u.pipelines), make([][]int, u.pipelines)
		o.since[w] = slices.Repeat([]int{unknown}, u.pipelines)
		computations += len(list) * iterations * u.pipelines
	}
	for p := range u.pipelines {
		o.left[p] = slices.Repeat([]int{workers}, iterations)
		o.done[p] = slices.Repeat([]int{unknown}, iterations)
	}
	pipeline, soonest := make([]int, workers), newSoonest(workers)
	look := func(w int) {
		p, start := o.choose(w)
		pipeline[w] = p
		soonest.set(w, start)
	}
	for w := range workers {
		look(w)
	}
	for ; computations > 0; computations-- {
		w, start := soonest.first()
		if start == math.MaxInt {
			panic("schedule: elastic: no pipeline can go on; admitOneF1B should have refused its depths")
		}
		if o.start(w, pipeline[w], start) {
			for w := range workers {
				look(w)
			}
			continue
		}
		look(w)
		for _, fed := range u.feeds[w] {
			look(fed)
		}
	}
	out := o.record
	return &out
}

// soonest finds the worker that can start first. If several can start at once, it finds the one with the lowest number.
// It is a tree: each node holds the worker below it that can start first.
type soonest struct {
	starts []int // by worker, padded with MaxInt up to a power of two
	firsts []int // by node: 1 is the root; the children of node k are 2k and 2k+1
}

func newSoonest(workers int) *soonest {
	leaves := 1
	for leaves < workers {
		leaves *= 2
	}
	t := &soonest{starts: slices.Repeat([]int{math.MaxInt}, leaves), firsts: make([]int, 2*leaves)}
	for w := range leaves {
		t.firsts[leaves+w] = w
	}
	for k := leaves - 1; k > 0; k-- {
		t.firsts[k] = t.firsts[2*k]
	}
	return t
}

// set notes when a worker can start.
func (t *soonest) set(w, start int) {
	t.starts[w] = start
	for k := (len(t.starts) + w) / 2; k > 0; k /= 2 {
		t.firsts[k] = t.firsts[2*k]
		if other := t.firsts[2*k+1]; t.starts[other] < t.starts[t.firsts[k]] {
			t.firsts[k] = other
		}
	}
}

func (t *soonest) first() (worker, start int) { return t.firsts[1], t.starts[t.firsts[1]] }

// choose returns the pipeline whose computation a worker starts next, and when. Of the pipelines that can start
// soonest, it takes the one that the rule prefers. If the rule prefers none, it takes the lowest one.
func (o *player) choose(w int) (pipeline, start int) {
	start = math.MaxInt
	var best waiting
	n := len(o.base[w])
	for p, since := range o.since[w] {
		if since == unknown { // a known time does not change
			since = o.ready(w, p)
			if o.since[w][p] = since; since == unknown {
				continue
			}
		}
		at := max(since, o.free[w])
		if at > start {
			continue
		}
		k := o.next[w][p]
		next := waiting{p, k / n, since, o.base[w][k%n].Kind == schedule.B}
		if at < start || o.rule(next, best) {
			pipeline, start, best = p, at, next
		}
	}
	return pipeline, start
}

// ready returns when everything that a pipeline's next computation on a worker needs is ready.
func (o *player) ready(w, p int) int {
	n := len(o.base[w])
	t, i := o.next[w][p]/n, o.next[w][p]%n
	if t >= o.iterations {
		return unknown
	}
	at := 0
	if i == 0 && t > 0 {
		if at = o.done[p][t-1]; at == unknown {
			return unknown
		}
	}
	if i == n-1 && t > 0 && o.base[w][i].Stage == 0 {
		for q := range o.pipelines {
			end := o.done[q][t-1]
			if end == unknown {
				return unknown
			}
			at = max(at, end)
		}
	}
	for _, need := range o.needs[w][i] {
		made := o.ends[need.worker][p]
		k := t*len(o.base[need.worker]) + need.at
		if k >= len(made) {
			return unknown
		}
		at = max(at, made[k])
	}
	if own := o.ends[w][p]; len(own) > 0 {
		at = max(at, own[len(own)-1])
	}
	return at
}

// start begins a computation, and reports whether it is the last of its pipeline's iteration on all workers.
func (o *player) start(w, p, at int) bool {
	n := len(o.base[w])
	t, i := o.next[w][p]/n, o.next[w][p]%n
	in := o.base[w][i]
	in.Pipeline = int16(p)
	in.Micro += int32(t * o.p.MicroBatches)
	end := at + elasticSlots(in.Kind)
	o.begun[w] = append(o.begun[w], started{at, in})
	o.ends[w][p] = append(o.ends[w][p], end)
	o.free[w] = end
	o.next[w][p]++
	o.since[w][p] = unknown
	if i < n-1 {
		return false
	}
	if o.left[p][t]--; o.left[p][t] > 0 {
		return false
	}
	o.done[p][t] = o.lastEnd(p, t)
	return true
}

// lastEnd returns when an iteration of a pipeline has ended on every worker. All its computations must have started.
func (o *player) lastEnd(p, t int) int {
	end := 0
	for w, list := range o.base {
		end = max(end, o.ends[w][p][(t+1)*len(list)-1])
	}
	return end
}
