package family

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/schedule"
)

// Elastic averaging (AvgPipe, PPoPP 2023, §3.2): N pipelines over the same workers, each with
// weights, optimizer state and batches of its own, and a reference model that is their average.
//
// Pipelines 0 to N-1 train: micro-batch m of iteration t of pipeline p is the m-th of minibatch
// tN + p of the data. Pipeline N of the Program is the reference; it has updates alone, one
// for each stage and iteration, on the workers that hold the stage: pN/2U7. Write x_p for the
// weights of a pipeline, z for the reference, both on one stage, and u_p for the step that the
// pipeline's own optimizer makes from the gradient at x_p. Then
//
//	p/2U7    x_p = (1-alpha) x_p + alpha z + u_p, and u_p goes into the worker's queue
//	pN/2U7   z = z + (u_0 + ... + u_(N-1))/N, in ascending order, and the queue is empty again
//
// Which z: the update of iteration t of every pipeline sees the reference after exactly t
// updates of its own, on every stage. The lists hold to that: on each worker pN/sU(t) stands
// behind the N updates of iteration t and in front of all those of iteration t+1, and Check
// refuses lists that do not. So z stays the average of the x_p to rounding, runs are
// bit-equal, and the queue never holds more than N steps. A pipeline is at most an iteration ahead
// of another. N = 1 is plain training without a reference.
//
// The paper's reference is a process of its own that applies whatever has arrived, and promises none of this. So is
// it with plan.Beside: where the last pipeline of iteration t has updated on a worker stands pN/2UR7, which hands the
// queue's oldest N steps to a thread beside the worker and keeps nobody waiting. Each update sees the reference
// after as many updates as that thread has made by then (machine.Local counts them), at most t. What has happened,
// written as pN/2U7 at these places of the lists, is a Program like any other (lower.Averaged).
//
// The order. Each pipeline has the list of 1F1B(K_i), depths from Settings.Warmup (advance forward
// propagation) or S-i. They are played on stages with a forward of one, a backward of two and no
// transfers, where a worker that is free takes, of what the pipelines have ready, what has been
// ready longest, a backward before a forward and then the lower pipeline; so one pipeline works
// in the bubbles of another, over the ends of iterations too. Where another preference (the
// earlier iteration, backwards) leads to a shorter cycle, it is taken (elasticRules). A pipeline's update
// waits for its first stage's last backward, which the gradient norm and tied stages need; and that of
// iteration t+1 for all pipelines' of t. The cycle that these orders settle into is the body of the Program.
func init() {
	Register(Family{
		Name: "elastic", Doc: "pipelines with weights of their own, held together by a reference model (AvgPipe)",
		Policies: []schedule.Policy{schedule.Elastic},
		Admits: func(s schedule.Settings) error {
			s.Elastic = elasticOf(s)
			if err := cmp.Or(s.Elastic.Check(), s.Sized()); err != nil {
				return err
			}
			if err := admitOneF1B(s); err != nil {
				return err
			}
			for i, on := range s.Placement {
				if s.Elastic.Besides() && len(on) > 1 {
					return fmt.Errorf("stage %d is on %d workers, each of which would see another reference; with the reference "+
						"beside the pipelines a stage is on one worker: use reference inline, or no replicas", i, len(on))
				}
				if s.Replication == schedule.RoundRobin && len(on) > s.MicroBatches {
					return tooFew(s, i)
				}
			}
			return nil
		},
		Warmup: func(stages, _ int) []int { return depths(stages, 0, Graded) },
		Generate: func(s schedule.Settings) (*schedule.Program, error) {
			s.Elastic = elasticOf(s)
			if s.Warmup == nil {
				s.Warmup = depths(len(s.Placement), 0, Graded)
			}
			return elasticProgram(s)
		},
	})
}

// defaultPipelines is the fewest that are more than plain training.
const defaultPipelines = 2

func elasticOf(s schedule.Settings) *plan.Elastic {
	if s.Elastic == nil {
		return plan.NewElastic(defaultPipelines)
	}
	return s.Elastic
}

// elasticProgram finds the cycle of the pipelines' order and writes a Program that repeats it. What stands before
// the cycle is the prologue, the cycle the body, and the last iteration, which nothing follows, the epilogue.
func elasticProgram(s schedule.Settings) (*schedule.Program, error) {
	p := s.Program()
	p.Elastic = s.Elastic
	p.Weights = schedule.Elastic
	if n := s.Elastic.Pipelines; n > 1 {
		for range n {
			p.Placement = append(p.Placement, s.Placement)
		}
	}
	one := s
	one.Repeat, one.Weights, one.Elastic = 1, schedule.Sync, nil
	base, err := oneF1B(one)
	if err != nil {
		return nil, err
	}
	u := newUniform(p, base.Body)
	o, start, found := u.settled(min(s.Repeat, mostBeforeCycle+3))
	switch {
	case s.Repeat == 1:
		p.Body = o.lists(0, 1)
	case found && s.Repeat >= start+2:
		if start > 0 {
			p.Prologue = o.lists(0, start)
		}
		p.Body, p.Repeat = o.lists(start, start+1), s.Repeat-start
		if last := o.until(p.Body, start); !samePart(last, p.Body) {
			p.Epilogue = last
			p.Repeat--
		}
	case s.Repeat <= mostBeforeCycle+3:
		p.Prologue, p.Body, p.Repeat = o.lists(0, s.Repeat-1), o.lists(s.Repeat-1, s.Repeat), 1
	default:
		// Orders that settle into no cycle of one iteration: each iteration on its own.
		p.Body = u.play(elasticRules[0], 1).lists(0, 1)
	}
	return p, nil
}

// mostBeforeCycle is after how many iterations at most an order must have come to its cycle.
const mostBeforeCycle = 9

// usuallyEnough is how many iterations show most orders' cycles.
const usuallyEnough = 6

// settled plays the order by every rule and gives the one whose cycle is shortest. start is the iteration that the
// cycle begins with; where none comes to a cycle, the order is the first rule's.
func (u *uniform) settled(iterations int) (order *record, start int, found bool) {
	shortest := math.MaxInt
	for _, rule := range elasticRules {
		for _, n := range slices.Compact([]int{min(usuallyEnough, iterations), iterations}) {
			o := u.play(rule, n)
			at, ok := o.cycle()
			if !ok {
				if order == nil && n == iterations {
					order = o
				}
				continue
			}
			if length := o.cut(at) - o.cut(at-1); length < shortest {
				order, shortest, start, found = o, length, at, true
			}
			break
		}
		if found && shortest <= u.busiest() {
			break // no order is shorter
		}
	}
	return order, start, found
}

// started is a computation and when it began.
type started struct {
	at int
	in schedule.Instruction
}

// record is what the pipelines did: which computations each worker began when, and when iterations ended.
type record struct {
	of         *uniform
	iterations int
	begun      [][]started // by worker, in order
	done       [][]int     // by pipeline and iteration: when all of it had ended; unknown before
}

// cut is when iteration t has ended for all pipelines; 0 for the one before the first.
func (o *record) cut(t int) int {
	end := 0
	for p := range o.of.pipelines {
		if t >= 0 {
			end = max(end, o.done[p][t])
		}
	}
	return end
}

// segment is what a worker starts between the cuts before and behind iteration t. Times count from the former.
func (o *record) segment(w, t int) []started {
	from, to := o.cut(t-1), o.cut(t)
	var out []started
	for _, s := range o.begun[w] {
		if s.at >= from && s.at < to {
			out = append(out, started{s.at - from, s.in})
		}
	}
	return out
}

// cycle is the first iteration from which on each is like the next, in order and time. It is known of the iterations
// played alone. The last of these end otherwise, and do not count.
func (o *record) cycle() (start int, found bool) {
	same := func(t int) bool {
		if o.cut(t)-o.cut(t-1) != o.cut(t+1)-o.cut(t) {
			return false
		}
		for w := range o.of.base {
			if !slices.EqualFunc(o.segment(w, t), o.segment(w, t+1), func(a, b started) bool {
				a.in.Micro += int32(o.of.p.MicroBatches)
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
func (o *record) lists(first, end int) schedule.Part {
	part := make(schedule.Part, o.of.p.Workers)
	for w := range part {
		part[w] = schedule.List{}
		for t := first; t < end; t++ {
			part[w] = append(part[w], o.iteration(w, t)...)
		}
	}
	return part
}

func (o *record) iteration(w, t int) schedule.List {
	at := o.of.base[w][0]
	at.Kind, at.Micro = schedule.U, int32(t)
	pending := make([]int, o.of.pipelines)
	for p := range pending {
		pending[p] = p
	}
	slices.SortStableFunc(pending, func(a, b int) int { return o.done[a][t] - o.done[b][t] })
	var out schedule.List
	beside := o.of.p.Beside()
	update := func(before int) {
		for len(pending) > 0 && o.done[pending[0]][t] <= before {
			at.Pipeline = int16(pending[0])
			out = append(out, at)
			if pending = pending[1:]; len(pending) == 0 && beside {
				out = append(out, schedule.Instruction{Pipeline: int16(o.of.pipelines), Stage: at.Stage, Replica: at.Replica,
					Kind: schedule.UR, Micro: at.Micro})
			}
		}
	}
	from := o.cut(t - 1)
	for _, s := range o.segment(w, t) {
		update(from + s.at)
		out = append(out, s.in)
	}
	update(math.MaxInt)
	if o.of.pipelines > 1 && !beside {
		at.Pipeline = int16(o.of.pipelines)
		out = append(out, at)
	}
	return out
}

// until is a part without what belongs to iterations behind t.
func (o *record) until(part schedule.Part, t int) schedule.Part {
	out := make(schedule.Part, len(part))
	for w, list := range part {
		out[w] = slices.DeleteFunc(slices.Clone(list), func(in schedule.Instruction) bool {
			return !in.Kind.OfMinibatch() && int(in.Micro) >= (t+1)*o.of.p.MicroBatches
		})
	}
	return out
}

func samePart(a, b schedule.Part) bool { return slices.EqualFunc(a, b, slices.Equal[schedule.List]) }
