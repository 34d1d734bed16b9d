package tight

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/tune/predict"
	"github.com/millrace-ml/millrace/tune/roles"
)

// every goes through all plans of a small case.
//
// A layout is which layers each stage has, how many devices of each group, how large micro-batches are and whether
// replicas take them in turn or split each. Devices of a group are alike, and a stage's are in ascending order, so that
// nothing else counts. Of every layout least bounds the step from below whatever order and depths are. Those that it
// does not rule out are simulated, the lowest first, until it rules out the rest: where a layout has few depths under
// all of them, else from some on to better ones.
type every struct {
	p      *profile.Profile
	c      *cluster.Cluster
	batch  int
	halves bool // of plans whose backwards are in halves
	chunks bool // and of those with several stages on a worker
	small  *Small

	groups, size int
	visited      int
	open         []layout
	costs        map[int][]profile.Cost // by rows
	left         map[[3]int]float64     // rest, by layer, micro-batch and way
}

// Bounds of a search: the beginnings of layouts, plans that are simulated, and depths of a layout that are all tried.
const mostVisited, mostSimulated, mostDepths = 2_000_000, 2_500, 150

// look finds the best plan.
func (e *every) look(ctx context.Context) error {
	e.groups, e.size = 1, len(e.c.Devices)
	if len(e.c.Levels) > 1 {
		e.size = e.c.Levels[0].Size
		e.groups = len(e.c.Devices) / e.size
	}
	e.costs = map[int][]profile.Cost{}
	for m := 1; m <= e.batch; m++ {
		if costs, _, err := e.p.At(e.c.Devices[0], m); err == nil {
			e.costs[m] = costs
		}
	}
	for _, m := range plan.Divisors(e.batch) {
		for _, split := range []bool{false, true} {
			e.from(layout{m: m, split: split}, taken{}, 0)
		}
	}
	slices.SortFunc(e.open, func(a, b layout) int { return cmp.Compare(a.least, b.least) })
	e.small.Layouts, e.small.AllDepths = len(e.open), true
	if e.chunks {
		if err := e.chunked(ctx); err != nil {
			return err
		}
	}
	e.small.Whole, e.small.FloorS = e.visited < mostVisited, math.Inf(1)
	for _, l := range e.open {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if l.least >= e.small.BestS {
			break
		}
		if e.small.Simulated >= mostSimulated {
			e.small.FloorS = l.least
			break
		}
		if err := e.simulate(l); err != nil {
			return err
		}
	}
	e.small.FloorS = min(e.small.FloorS, e.small.BestS)
	return nil
}

// from goes on from the first stages of a layout with one more, as long as that may beat the plan of auto.
func (e *every) from(l layout, used taken, layer int) {
	n := len(e.p.Layers)
	if e.visited++; e.visited > mostVisited {
		return
	}
	if layer == n {
		if l.split && !slices.ContainsFunc(l.stages, func(h held) bool { return h.devices() > 1 }) {
			return
		}
		if l.least = e.least(l); l.least < e.small.BestS {
			l.stages = slices.Clone(l.stages)
			e.open = append(e.open, l)
		}
		return
	}
	e.everyTaken(used, func(in taken) {
		next := held{first: layer, in: in}
		for next.end = layer + 1; next.end <= n; next.end++ {
			work, ok := e.work(next, l)
			if !ok || work >= e.small.BestS {
				break // more layers take longer
			}
			then := used.and(in)
			if left := len(e.c.Devices) - then.sum(); next.end < n && float64(left)*e.small.BestS <= e.rest(next.end, l) {
				continue
			}
			longer := l
			longer.stages = append(slices.Clip(l.stages), next)
			if e.least(longer) < e.small.BestS {
				e.from(longer, then, next.end)
			}
		}
	})
}

// rest is what the layers from one on have all devices compute, at least.
func (e *every) rest(layer int, l layout) float64 {
	if e.left == nil {
		e.left = map[[3]int]float64{}
	}
	key := [3]int{layer, l.m, 0}
	if l.split {
		key[2] = 1
	}
	if sum, ok := e.left[key]; ok {
		return sum
	}
	sum := 0.0
	for k := layer; k < len(e.p.Layers); k++ {
		least := math.Inf(1)
		for r := 1; r <= len(e.c.Devices); r++ {
			if costs := e.costs[l.rows(r)]; costs != nil && (r == 1 || l.split) {
				times := 1.0
				if l.split {
					times = float64(r)
				}
				least = min(least, times*float64(e.batch/l.m)*(costs[k].ForwardS+costs[k].BackwardS))
			}
		}
		sum += least
	}
	e.left[key] = sum
	return sum
}

// everyTaken lists the ways to take devices that are left of the groups, one at least. Groups are alike: of those that
// nothing is taken of the first have the most.
func (e *every) everyTaken(used taken, yield func(in taken)) {
	var in taken
	var walk func(g int)
	walk = func(g int) {
		if g == e.groups {
			if in.sum() > 0 {
				yield(in)
			}
			return
		}
		most := e.size - used[g]
		if g > 0 && used[g] == 0 && used[g-1] == 0 {
			most = in[g-1]
		}
		for in[g] = 0; in[g] <= most; in[g]++ {
			walk(g + 1)
		}
		in[g] = 0
	}
	walk(0)
}

// simulate simulates a layout under several depths, and goes on from the best as long as it nearly is the best of all.
func (e *every) simulate(l layout) error {
	S, M := len(l.stages), e.batch/l.m
	if S == 1 {
		_, err := e.try(l, []int{1}, roles.Undivided().Name)
		return err
	}
	if e.halves {
		for _, f := range family.All() {
			if f.Place == nil && f.Halves && f.AdmitsPolicy(schedule.Sync) {
				if _, err := e.try(l, make([]int, S), f.Name); err != nil {
					return err
				}
			}
		}
	}
	if ways(S, M) <= mostDepths {
		return everyDepth(make([]int, 0, S), S, M, func(depth []int) error {
			_, err := e.try(l, depth, roles.Pipelines().Name)
			return err
		})
	}
	e.small.AllDepths = false
	best, bestS := []int(nil), math.Inf(1)
	consider := func(depth []int) error {
		stepS, err := e.try(l, depth, roles.Pipelines().Name)
		if stepS < bestS {
			best, bestS = depth, stepS
		}
		return err
	}
	for _, apart := range []int{1, 2, 3, M} {
		depth := make([]int, S)
		for i := range depth {
			depth[i] = min(M, 1+apart*(S-1-i))
		}
		if err := consider(depth); err != nil {
			return err
		}
	}
	for better := bestS < 1.05*e.small.BestS; better; {
		before := bestS
		for i := range S {
			for _, more := range []int{-1, 1} {
				depth := slices.Clone(best)
				if depth[i] += more; depth[i] < 1 || depth[i] > M || i > 0 && depth[i] > depth[i-1] ||
					i+1 < S && depth[i] < depth[i+1] {
					continue
				}
				if err := consider(depth); err != nil {
					return err
				}
			}
		}
		better = bestS < before*(1-plan.SameTime)
	}
	return nil
}

// ways is how many sequences of depths of S stages there are that do not grow, each of M at most; a large number is not
// counted on.
func ways(S, M int) int {
	n := 1
	for i := range S {
		if n = n * (M + i) / (i + 1); n > mostDepths {
			break
		}
	}
	return n
}

// everyDepth lists these sequences.
func everyDepth(have []int, S, most int, yield func(depth []int) error) error {
	if len(have) == S {
		return yield(slices.Clone(have))
	}
	for k := 1; k <= most; k++ {
		if err := everyDepth(append(have, k), S, k, yield); err != nil {
			return err
		}
	}
	return nil
}

// try simulates a layout under a family. Infinity is one that the family does not admit.
func (e *every) try(l layout, depth []int, name string) (float64, error) {
	pl := &plan.Plan{Version: plan.Version, Replication: "round_robin", MicroBatch: l.m, MicroBatches: e.batch / l.m,
		Schedule: name, Weights: string(schedule.Sync), Planner: "given"}
	if l.split {
		pl.Replication = "split"
	}
	var used taken
	for i, h := range l.stages {
		pl.Stages = append(pl.Stages, plan.Stage{FirstLayer: h.first, LastLayer: h.end - 1, Warmup: depth[i],
			Devices: e.devicesOf(h, used)})
		used = used.and(h.in)
	}
	stepS, err := e.play(pl)
	if err == nil && stepS < l.least*(1-plan.SameTime) {
		return 0, fmt.Errorf("bound: %s takes %g s on %s shrunken, and its devices and links take %g s", pl.Layout(), stepS,
			e.c.Name, l.least)
	}
	return stepS, err
}

// play simulates a plan, or where that does not fit the same plan with stages computed again.
func (e *every) play(pl *plan.Plan) (float64, error) {
	pl.Model, pl.ModelID, pl.Cluster = e.p.Model, e.p.ModelID, e.c.Name
	for _, again := range []plan.Recompute{plan.KeepAll, plan.KeepInput} {
		for i := range pl.Stages {
			pl.Stages[i].Recompute = again
		}
		q, _, err := predict.PlanIf(e.p, e.c, pl, false, func(stepS float64) bool { return stepS < e.small.BestS })
		if err != nil {
			return math.Inf(1), nil // depths or stages that the family does not admit
		}
		if e.small.Simulated++; q.StepS < e.small.BoundS*(1-plan.SameTime) {
			return 0, fmt.Errorf("bound: %s takes %g s on %s shrunken, and none is to take less than %g s", pl.Layout(),
				q.StepS, e.c.Name, e.small.BoundS)
		}
		if q.StepS >= e.small.BestS {
			return q.StepS, nil
		}
		if e.fits(q) {
			e.small.BestS, e.small.Best = q.StepS, pl.Layout()
			return q.StepS, nil
		}
	}
	return math.Inf(1), nil
}

func (e *every) fits(q plan.Predicted) bool {
	limit := e.c.MemoryBytes(0)
	return limit == 0 || slices.Max(q.Needs()) <= limit
}

// chunked simulates the plans of families that place several stages on a worker: all their cuts.
func (e *every) chunked(ctx context.Context) error {
	n, W := len(e.p.Layers), len(e.c.Devices)
	for _, f := range family.All() {
		if f.Place == nil || f.Streaming || !f.AdmitsPolicy(schedule.Sync) {
			continue
		}
		for v := 1; v <= n/W+1; v++ {
			on := f.Placement(W, v)
			if len(on) > n || f.Chunks > 1 && v != f.Chunks {
				continue
			}
			err := everyCut(n, len(on), func(first []int) error {
				for _, m := range plan.Divisors(e.batch) {
					if err := context.Cause(ctx); err != nil {
						return err
					}
					pl := &plan.Plan{Version: plan.Version, Replication: "round_robin", MicroBatch: m, MicroBatches: e.batch / m,
						Schedule: f.Name, Weights: string(schedule.Sync), Planner: "given"}
					for i, l := range first {
						st := plan.Stage{FirstLayer: l, LastLayer: n - 1, Devices: on[i]}
						if i+1 < len(first) {
							st.LastLayer = first[i+1] - 1
						}
						pl.Stages = append(pl.Stages, st)
					}
					if _, err := e.play(pl); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// everyCut lists the first layers of so many stages of n layers.
func everyCut(n, stages int, yield func(first []int) error) error {
	first := make([]int, stages)
	var walk func(i int) error
	walk = func(i int) error {
		if i == stages {
			return yield(first)
		}
		for l := first[i-1] + 1; l <= n-(stages-i); l++ {
			first[i] = l
			if err := walk(i + 1); err != nil {
				return err
			}
		}
		return nil
	}
	return walk(1)
}
