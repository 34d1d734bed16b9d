package family

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/schedule"
)

// Elastic averaging (AvgPipe, PPoPP 2023, §3.2) trains N pipelines over the same workers. Each has its own weights,
// optimizer state and batches. A reference model is their average.
//
// Pipelines 0 to N-1 train. Micro-batch m of iteration t of pipeline p is the m-th of minibatch tN + p of the data.
// Pipeline N of the Program is the reference. It has only updates, one for each stage and iteration, on the workers
// that hold the stage: pN/2U7 is the update of stage 2 in iteration 7. On one stage let x_p be the weights of a
// pipeline and z those of the reference. Let u_p be the step that the pipeline's own optimizer makes from the gradient
// at x_p. Then
//
//	p/2U7    x_p = (1-alpha) x_p + alpha z + u_p, and u_p goes into the worker's queue
//	pN/2U7   z = z + (u_0 + ... + u_(N-1))/N, in ascending order, and the queue is empty again
//
// The update of iteration t of every pipeline, on every stage, sees the reference z after exactly t updates. The lists
// guarantee this: on each worker pN/sU(t) comes after the N updates of iteration t and before all those of iteration
// t+1. Check refuses lists that do otherwise. So z stays the average of the x_p up to rounding, runs are bit-equal, and
// the queue never holds more than N steps. A pipeline is at most one iteration ahead of another. N = 1 is plain
// training without a reference.
//
// The paper's reference is a process of its own that applies whatever has arrived, and guarantees none of this.
// plan.Beside does the same. After the last pipeline's update of iteration 7 a worker of stage 2 has pN/2UR7. That
// instruction hands the queue's oldest N steps to a separate thread, and no instruction waits for it. Each update sees
// the reference after as many updates as that thread has made by then, at most t (machine.Local counts them). A run's
// record, written as pN/2U7 at these places of the lists, is again a Program (lower.Averaged).
//
// The order: each pipeline has the list of 1F1B(K_i), with depths from Settings.Warmup (advance forward propagation) or
// S-i. The lists are simulated on stages with a forward of one slot, a backward of two and no transfers. A free worker
// takes the computation that has been ready longest among those of all pipelines; ties go to a backward, then to the
// lower pipeline. So one pipeline fills the bubbles of another, also across iterations. If another preference (the
// earlier iteration, backwards) gives a shorter cycle, it is used (elasticRules). A pipeline's update waits for its
// first stage's last backward, which the gradient norm and tied stages need. The updates of iteration t+1 wait for
// those of iteration t in all pipelines. The cycle that these orders reach is the body of the Program.
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

// defaultPipelines is the smallest number of pipelines that differs from plain training.
const defaultPipelines = 2

func elasticOf(s schedule.Settings) *plan.Elastic {
	if s.Elastic == nil {
		return plan.NewElastic(defaultPipelines)
	}
	return s.Elastic
}

// elasticProgram finds the cycle of the pipelines' order and writes a Program that repeats it. The prologue holds the
// iterations before the cycle, and the body is the cycle. If the cycle begins computations of the next iteration, the
// epilogue is the last iteration without these computations. If no cycle is found, a Program of a few iterations writes
// out each of them, and in a longer Program each iteration runs separately.
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
		// Without a cycle of one iteration, each iteration runs separately.
		p.Body = u.play(elasticRules[0], 1).lists(0, 1)
	}
	return p, nil
}

// mostBeforeCycle is the number of iterations after which an order must have reached its cycle.
const mostBeforeCycle = 9

// usuallyEnough is a number of iterations that shows most orders' cycles.
const usuallyEnough = 6

// settled simulates the order by one rule after another, until it has found a cycle that no rule can shorten. It
// returns the result with the shortest cycle. `start` is the iteration with which the cycle begins. If no rule reaches
// a cycle, `order` is the result of the first rule.
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
			break // no order can be shorter
		}
	}
	return order, start, found
}

// started is a computation and the slot in which it began.
type started struct {
	at int
	in schedule.Instruction
}

// record is the result of a simulation: when each worker began which computations, and when iterations ended.
type record struct {
	of         *uniform
	iterations int
	begun      [][]started // by worker, in order
	done       [][]int     // by pipeline and iteration: when the iteration ended on all workers; unknown until then
}

// cut returns the slot in which iteration t has ended for all pipelines; 0 for iteration -1.
func (o *record) cut(t int) int {
	end := 0
	for p := range o.of.pipelines {
		if t >= 0 {
			end = max(end, o.done[p][t])
		}
	}
	return end
}

// segment returns what a worker starts between the ends of iterations t-1 and t. Times count from the end of t-1.
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

// cycle returns the first iteration that the next two iterations repeat: the same computations in the same order and at
// the same times. It ignores the last simulated iteration, which ends differently.
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

// lists writes iterations `first` to `end`-1, with the updates. A pipeline's update comes where its iteration has ended
// on all workers. The reference's update comes after those of all pipelines.
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

// until returns the part without instructions of iterations after t.
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
