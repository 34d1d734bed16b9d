// Package scheduletest has what tests of Programs share: random Programs, and independent ways to play them.
//
// In: a source of choices, from rapid or a seeded generator, and limits of the Programs. Out: compute-only Programs
// that run to their end. Each is the record of a random execution, in which step by step some worker does something
// whose inputs exist. That execution proves that the order is possible. Refused: nothing; if the choices lead to a dead
// end, Random draws again.
//
// It also has random damage to valid Programs (Corrupt), and a replay of the rules that shares no code with check or
// the machine (Replay). A clock that counts slots (Draw) is compared with sim. Order and Lists are for stories in
// testdata.
package scheduletest

import (
	"slices"

	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/check"
)

// Choose returns a number from 0 to n-1, for any n over 0. It may draw with rapid, which finds the simplest choices
// that make a test fail, or be IntN of rand.
type Choose func(n int) int

// Options limit random Programs. A limit of 0 counts as 1.
type Options struct {
	Workers      int  // the largest number of workers
	Chunks       int  // the largest number of stages on a worker
	Replicas     int  // the largest number of replicas of a stage
	MicroBatches int  // the largest number of micro-batches in a minibatch
	Minibatches  int  // the largest number of minibatches
	Ascending    bool // each stage takes micro-batches in order, forward and backward
	Whole        bool // no split backwards
	Policies     []schedule.Policy
	// Replications are the ways in which replicas may share micro-batches; nil means both.
	Replications []schedule.Replication
}

// Everything returns options that allow a small Program to have every feature, except elastic averaging and a server.
func Everything() Options {
	return Options{Workers: 5, Chunks: 3, Replicas: 3, MicroBatches: 6, Minibatches: 3,
		Policies: []schedule.Policy{schedule.Sync, schedule.Latest, schedule.Stash, schedule.Vertical,
			schedule.DoubleBuffered}}
}

// attempts is how often Random tries to draw a Program; a draw may reach a dead end. If all fail, Random tries the same
// number of times without replicas. If these fail too, it draws a synchronous order.
const attempts = 20

// Random draws a compute-only Program that passes check.Check.
func Random(choose Choose, o Options) *schedule.Program {
	for range attempts {
		if p := attempt(choose, o); p != nil {
			return p
		}
	}
	o.Replicas = 1
	for range attempts {
		if p := attempt(choose, o); p != nil {
			return p
		}
	}
	o.Policies = nil // a synchronous order without replicas has no dead end
	p := attempt(choose, o)
	if p == nil {
		panic("scheduletest: check.Check refuses a step that has just been run")
	}
	return p
}

// attempt draws one Program; nil means a dead end.
func attempt(choose Choose, o Options) *schedule.Program {
	up := func(most int) int { return 1 + choose(max(1, most)) }
	p := &schedule.Program{Name: "random", Workers: up(o.Workers), Weights: schedule.Sync,
		Replication: schedule.RoundRobin, Period: 1, Repeat: 1}
	if len(o.Policies) > 0 {
		p.Weights = o.Policies[choose(len(o.Policies))]
	}
	how := o.Replications
	if how == nil {
		how = []schedule.Replication{schedule.Split, schedule.RoundRobin}
	}
	p.Replication = how[choose(len(how))]
	p.MicroBatches = up(o.MicroBatches)
	if n := up(o.Minibatches); p.Weights == schedule.Sync {
		p.Repeat = n
	} else {
		// The stream is one body: its minibatches overlap, and nothing flushes.
		p.Period = n
		p.MicroBatches *= n
	}
	place(choose, p, o)
	x := execution{choose: choose, p: p, o: o, done: map[schedule.Instruction]bool{}, halves: make([]bool, p.Stages)}
	for s := range x.halves {
		x.halves[s] = !o.Whole && choose(2) == 1
	}
	x.forwardFirst = choose(9)
	if !x.run() {
		return nil
	}
	if _, err := check.Check(p); err != nil {
		return nil // an update in the stream waits in a circle, or a version does not exist yet
	}
	return p
}

// place puts stages on workers. It takes the workers in a random order until each of them has a stage. Then it puts
// more stages anywhere.
func place(choose Choose, p *schedule.Program, o Options) {
	order := make([]int, p.Workers)
	for i := range order {
		order[i] = i
	}
	for i := len(order) - 1; i > 0; i-- {
		j := choose(i + 1)
		order[i], order[j] = order[j], order[i]
	}
	var stages [][]int
	for len(order) > 0 {
		n := 1 + choose(max(1, min(o.Replicas, len(order))))
		stages = append(stages, slices.Clone(order[:n]))
		order = order[n:]
	}
	held := make([]int, p.Workers)
	for _, on := range stages {
		for _, w := range on {
			held[w]++
		}
	}
	for range choose(max(1, (o.Chunks-1)*p.Workers+1)) {
		w := choose(p.Workers)
		if held[w] >= max(1, o.Chunks) {
			continue
		}
		on := []int{w}
		held[w]++
		if second := choose(p.Workers); o.Replicas > 1 && second != w && held[second] < o.Chunks && choose(3) == 0 {
			on = append(on, second)
			held[second]++
		}
		stages = slices.Insert(stages, choose(len(stages)+1), on)
	}
	p.Stages = len(stages)
	p.Placement = [][][]int{stages}
	p.Recompute = make([]plan.Recompute, p.Stages)
	p.Body = make(schedule.Part, p.Workers)
}

// execution is a Program that is written while it runs.
type execution struct {
	choose       Choose
	p            *schedule.Program
	o            Options
	done         map[schedule.Instruction]bool
	halves       []bool // by stage: whether backwards are split
	forwardFirst int    // in how many of 8 cases a forward goes before a backward if both could
}

// run writes the body. As long as a computation remains, a worker that can do one does it.
func (x *execution) run() bool {
	left := 0
	for s, on := range x.p.Placement[0] {
		for r := range on {
			for m := range x.p.MicroBatches {
				if x.mine(s, m, r) {
					left += 2
					if x.halves[s] {
						left++
					}
				}
			}
		}
	}
	for ; left > 0; left-- {
		forwards, backwards := x.possible()
		list := slices.Concat(forwards, backwards)
		switch {
		case len(list) == 0:
			return false
		case len(forwards) > 0 && len(backwards) > 0:
			list = backwards
			if x.choose(8) < x.forwardFirst {
				list = forwards
			}
		}
		in := list[x.choose(len(list))]
		x.done[in] = true
		w := x.p.Placement[0][in.Stage][in.Replica]
		x.p.Body[w] = append(x.p.Body[w], in)
	}
	return true
}

// possible returns every computation that is not done and whose inputs exist.
func (x *execution) possible() (forwards, backwards []schedule.Instruction) {
	for s, on := range x.p.Placement[0] {
		for r := range on {
			var open [schedule.W + 1]bool // kinds already returned; if Ascending, only the first of each kind may be next
			for m := range x.p.MicroBatches {
				if !x.mine(s, m, r) {
					continue
				}
				at := schedule.Instruction{Stage: int32(s), Micro: int32(m), Replica: int16(r)}
				for _, k := range x.kinds(s) {
					in := at
					in.Kind = k
					if x.done[in] || x.o.Ascending && open[k] {
						continue
					}
					open[k] = true
					if !x.ready(in) {
						continue
					}
					if k == schedule.F {
						forwards = append(forwards, in)
					} else {
						backwards = append(backwards, in)
					}
				}
			}
		}
	}
	return forwards, backwards
}

func (x *execution) kinds(stage int) []schedule.Kind {
	if x.halves[stage] {
		return []schedule.Kind{schedule.F, schedule.I, schedule.W}
	}
	return []schedule.Kind{schedule.F, schedule.B}
}

// mine reports whether a replica has a part in a micro-batch.
func (x *execution) mine(stage, micro, replica int) bool {
	return x.p.Replication == schedule.Split || micro%len(x.p.Placement[0][stage]) == replica
}

// ready reports whether an instruction's inputs exist.
func (x *execution) ready(in schedule.Instruction) bool {
	own := func(k schedule.Kind) schedule.Instruction {
		i := in
		i.Kind = k
		return i
	}
	switch in.Kind {
	case schedule.F:
		return x.fresh(in) && (in.Stage == 0 || x.all(in, in.Stage-1, schedule.F, schedule.F))
	case schedule.W:
		return x.done[own(schedule.I)]
	}
	return x.done[own(schedule.F)] && (int(in.Stage) == x.p.Stages-1 || x.all(in, in.Stage+1, schedule.B, schedule.I))
}

// fresh reports whether the weights exist that a forward must use under 2BW. They exist once this replica has the
// gradients of all minibatches that are at least two before the forward's own.
func (x *execution) fresh(f schedule.Instruction) bool {
	if x.p.Weights != schedule.DoubleBuffered {
		return true
	}
	per := x.p.MicroBatches / x.p.Period
	for m := range (int(f.Micro)/per - 1) * per {
		if !x.mine(int(f.Stage), m, int(f.Replica)) {
			continue
		}
		b := f
		b.Micro = int32(m)
		b.Kind = schedule.B
		w := b
		w.Kind = schedule.W
		if !x.done[b] && !x.done[w] {
			return false
		}
	}
	return true
}

// all looks at the replicas of stage `stage` that share rows with the replica of `in`. It reports whether each of them
// has done kind `a` or `b`.
func (x *execution) all(in schedule.Instruction, stage int32, a, b schedule.Kind) bool {
	here, there := len(x.p.Placement[0][in.Stage]), len(x.p.Placement[0][stage])
	for r := range there {
		if x.p.Replication == schedule.Split {
			// Replica r of n has the rows from r/n to (r+1)/n of a micro-batch.
			if r*here >= (int(in.Replica)+1)*there || int(in.Replica)*there >= (r+1)*here {
				continue
			}
		} else if int(in.Micro)%there != r {
			continue
		}
		other := in
		other.Stage, other.Replica = stage, int16(r)
		other.Kind = a
		if x.done[other] {
			continue
		}
		other.Kind = b
		if !x.done[other] {
			return false
		}
	}
	return true
}
