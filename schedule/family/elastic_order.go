package family

import (
	"fmt"
	"github.com/millrace-ml/millrace/schedule"
	"math"
	"slices"
	"sync"
)

// mostBeforeCycle is after how many iterations at most an order must have come to its cycle.
const mostBeforeCycle = 9

// usuallyEnough is how many iterations show most orders' cycles.
const usuallyEnough = 6

// elasticOrder plays pipelines that share workers on uniform stages, to see in which order
// instructions become ready: see family elastic for the rule.
type elasticOrder struct {
	p          *schedule.Program
	pipelines  int
	iterations int // that there are
	rule       elasticRule
	base       schedule.Part // one iteration of one pipeline
	needs      [][][]spot    // by worker and position in base: what it needs of its own pipeline
	feeds      [][]int       // by worker: the workers that its computations let go on

	free  []int       // by worker: when it is free
	next  [][]int     // by worker and pipeline: position in the pipeline's endless list
	ends  [][][]int   // by worker and pipeline: when each computation of that list ended
	since [][]int     // by worker and pipeline: when its next computation had all that it needs; unknown before that is known
	begun [][]started // by worker: what it started, in order
	left  [][]int     // by pipeline and iteration: workers whose lists have not ended
	done  [][]int     // by pipeline and iteration: when all of it had ended; unknown before
}

// elasticRule says which of two computations a free worker takes that could start at once.
type elasticRule func(a, b waiting) bool

// waiting is the next computation of a pipeline on a worker.
type waiting struct {
	pipeline, iteration int
	since               int // when it had all that it needs
	backward            bool
}

// elasticRules are tried in turn; the fastest cycle counts, and the earlier rule of two as fast.
var elasticRules = []elasticRule{
	func(a, b waiting) bool { // what has been ready longest, backwards first
		return a.since < b.since || a.since == b.since && a.backward && !b.backward
	},
	func(a, b waiting) bool { // the earlier iteration, then what has been ready longest
		return a.iteration < b.iteration || a.iteration == b.iteration && a.since < b.since
	},
	func(a, b waiting) bool { // the earlier iteration, then backwards
		return a.iteration < b.iteration || a.iteration == b.iteration && a.backward && !b.backward
	},
	func(a, b waiting) bool { return a.iteration < b.iteration }, // then the lower pipeline
	func(a, b waiting) bool { return a.backward && !b.backward },
}

// spot is a position in the base list of a worker.
type spot struct{ worker, at int }

// started is a computation and when it began.
type started struct {
	at int
	in schedule.Instruction
}

// unknown in place of a time that is not known yet.
const unknown = -1

// elasticSlots is what a computation takes on the stages of family elastic's rule.
func elasticSlots(k schedule.Kind) int {
	if k == schedule.B {
		return 2
	}
	return 1
}

func newElasticOrder(p *schedule.Program, base schedule.Part, rule elasticRule) *elasticOrder {
	o := &elasticOrder{
		p: p, pipelines: p.Elastic.Pipelines, base: base, rule: rule,
		needs: make([][][]spot, p.Workers), feeds: make([][]int, p.Workers),
		free: make([]int, p.Workers), next: make([][]int, p.Workers), ends: make([][][]int, p.Workers), begun: make([][]started, p.Workers),
		since: make([][]int, p.Workers),
		left:  make([][]int, p.Elastic.Pipelines), done: make([][]int, p.Elastic.Pipelines),
	}
	at := map[schedule.Instruction]spot{}
	for w, list := range base {
		o.next[w] = make([]int, o.pipelines)
		o.ends[w] = make([][]int, o.pipelines)
		o.since[w] = slices.Repeat([]int{unknown}, o.pipelines)
		for i, in := range list {
			at[in] = spot{w, i}
		}
	}
	for w, list := range base {
		o.needs[w] = make([][]spot, len(list))
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
				o.needs[w][i] = append(o.needs[w][i], need)
				if !slices.Contains(o.feeds[need.worker], w) {
					o.feeds[need.worker] = append(o.feeds[need.worker], w)
				}
			}
		}
	}
	return o
}

// run plays this many iterations of every pipeline.
func (o *elasticOrder) run(iterations int) {
	o.iterations = iterations
	left := 0
	for p := range o.pipelines {
		o.left[p] = slices.Repeat([]int{o.p.Workers}, iterations)
		o.done[p] = slices.Repeat([]int{unknown}, iterations)
	}
	for _, list := range o.base {
		left += len(list) * iterations * o.pipelines
	}
	type choice struct{ pipeline, start int }
	best := make([]choice, o.p.Workers)
	stale := slices.Repeat([]bool{true}, o.p.Workers)
	for ; left > 0; left-- {
		first := -1
		for w := range best {
			if stale[w] {
				best[w].pipeline, best[w].start = o.choose(w)
				stale[w] = false
			}
			if best[w].start < math.MaxInt && (first < 0 || best[w].start < best[first].start) {
				first = w
			}
		}
		if first < 0 {
			panic("schedule: elastic: no pipeline can go on; admitOneF1B should have refused its depths")
		}
		stale[first] = true
		for _, w := range o.feeds[first] {
			stale[w] = true
		}
		if o.start(first, best[first].pipeline, best[first].start) {
			for w := range stale {
				stale[w] = true
			}
		}
	}
}

// choose is what a worker starts next and when: of the pipelines whose next computation can
// start soonest the one that the rule prefers, and then the lower.
func (o *elasticOrder) choose(w int) (pipeline, start int) {
	start = math.MaxInt
	var best waiting
	n := len(o.base[w])
	for p, since := range o.since[w] {
		if since == unknown { // and once known, it stays
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

// ready is when the next computation of a pipeline on a worker has all that it needs.
func (o *elasticOrder) ready(w, p int) int {
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

// start begins a computation, and says whether its pipeline's iteration ends with it everywhere.
func (o *elasticOrder) start(w, p, at int) bool {
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

// lastEnd is when an iteration of a pipeline, all of it started, has ended on every worker.
func (o *elasticOrder) lastEnd(p, t int) int {
	end := 0
	for w, list := range o.base {
		end = max(end, o.ends[w][p][(t+1)*len(list)-1])
	}
	return end
}

// cut is when iteration t has ended for all pipelines; 0 for the one before the first.
func (o *elasticOrder) cut(t int) int {
	end := 0
	for p := range o.pipelines {
		if t >= 0 {
			end = max(end, o.done[p][t])
		}
	}
	return end
}

// segment is what a worker starts from the cut before iteration t to the one behind it, with
// the times after the former.
func (o *elasticOrder) segment(w, t int) []started {
	from, to := o.cut(t-1), o.cut(t)
	var out []started
	for _, s := range o.begun[w] {
		if s.at >= from && s.at < to {
			out = append(out, started{s.at - from, s.in})
		}
	}
	return out
}

// verdict is which rule's order settled takes, how many iterations showed its cycle, and with which iteration that begins.
type verdict struct {
	rule, iterations, start int
	found                   bool
}

// verdicts remembers what settled found: searches for the degrees of several pipelines ask about the same few orders
// with every size of the batch, and playing one order takes a fifth of playing them all.
var verdicts sync.Map // by what an order depends on, as text

// settled plays the order by every rule, and gives the one whose cycle is shortest with the
// iteration that it begins with; where none comes to a cycle, the first rule's.
func settled(s schedule.Settings, p *schedule.Program, base schedule.Part, iterations int) (order *elasticOrder, start int, found bool) {
	play := func(rule, iterations int) *elasticOrder {
		o := newElasticOrder(p, base, elasticRules[rule])
		o.run(iterations)
		return o
	}
	key := fmt.Sprint(s.Placement, s.Replication, s.MicroBatches, s.Warmup, s.Elastic.Pipelines, iterations)
	if v, ok := verdicts.Load(key); ok {
		v := v.(verdict)
		return play(v.rule, v.iterations), v.start, v.found
	}
	var taken verdict
	shortest := math.MaxInt
	for rule := range elasticRules {
		for _, n := range slices.Compact([]int{min(usuallyEnough, iterations), iterations}) {
			o := play(rule, n)
			at, ok := o.cycle()
			if !ok {
				if order == nil && n == iterations {
					order, taken = o, verdict{rule: rule, iterations: n}
				}
				continue
			}
			if length := o.cut(at) - o.cut(at-1); length < shortest {
				order, shortest, taken = o, length, verdict{rule, n, at, true}
			}
			break
		}
		if taken.found && shortest <= order.busiest() {
			break // no order is shorter
		}
	}
	verdicts.Store(key, taken)
	return order, taken.start, taken.found
}

// busiest is the most that a worker computes in an iteration of all pipelines.
func (o *elasticOrder) busiest() int {
	most := 0
	for _, list := range o.base {
		slots := 0
		for _, in := range list {
			slots += elasticSlots(in.Kind)
		}
		most = max(most, slots*o.pipelines)
	}
	return most
}

// cycle is the first iteration from which on, as far as is known, one is like the other, in
// order and time. The last iterations played end otherwise, and do not count.
func (o *elasticOrder) cycle() (start int, found bool) {
	same := func(t int) bool {
		if o.cut(t)-o.cut(t-1) != o.cut(t+1)-o.cut(t) {
			return false
		}
		for w := range o.base {
			if !slices.EqualFunc(o.segment(w, t), o.segment(w, t+1), func(a, b started) bool {
				a.in.Micro += int32(o.p.MicroBatches)
				return a == b
			}) {
				return false
			}
		}
		return true
	}
	for t := 0; t+3 < o.iterations; t++ {
		if same(t) && same(t+1) {
			return t, true
		}
	}
	return 0, false
}

// lists writes iterations from first to before end, with the updates: a pipeline's where its
// iteration has ended everywhere, the reference's behind those of all.
func (o *elasticOrder) lists(first, end int) schedule.Part {
	part := make(schedule.Part, o.p.Workers)
	for w := range part {
		part[w] = schedule.List{}
		for t := first; t < end; t++ {
			part[w] = append(part[w], o.iteration(w, t)...)
		}
	}
	return part
}

func (o *elasticOrder) iteration(w, t int) schedule.List {
	at := o.base[w][0]
	at.Kind, at.Micro = schedule.U, int32(t)
	pending := make([]int, o.pipelines)
	for p := range pending {
		pending[p] = p
	}
	slices.SortStableFunc(pending, func(a, b int) int { return o.done[a][t] - o.done[b][t] })
	var out schedule.List
	update := func(before int) {
		for len(pending) > 0 && o.done[pending[0]][t] <= before {
			at.Pipeline = int16(pending[0])
			out = append(out, at)
			pending = pending[1:]
		}
	}
	from := o.cut(t - 1)
	for _, s := range o.segment(w, t) {
		update(from + s.at)
		out = append(out, s.in)
	}
	update(math.MaxInt)
	if o.pipelines > 1 {
		at.Pipeline = int16(o.pipelines)
		out = append(out, at)
	}
	return out
}

// until is a part without what belongs to iterations behind t.
func (o *elasticOrder) until(part schedule.Part, t int) schedule.Part {
	out := make(schedule.Part, len(part))
	for w, list := range part {
		out[w] = slices.DeleteFunc(slices.Clone(list), func(in schedule.Instruction) bool {
			return !in.Kind.OfMinibatch() && int(in.Micro) >= (t+1)*o.p.MicroBatches
		})
	}
	return out
}

func samePart(a, b schedule.Part) bool { return slices.EqualFunc(a, b, slices.Equal[schedule.List]) }
