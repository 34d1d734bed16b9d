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
	"github.com/millrace-ml/millrace/tune/predict"
)

// every looks for the best plan of a small case.
//
// A layout fixes the layers of each stage, its number of devices in each group, and the micro-batch size. It also fixes
// whether replicas split micro-batches or take them in turn. It does not fix which devices of a group a stage has,
// because the devices of a group are equal. The method `least` computes a lower bound of a layout's step for every
// order and depth. The type `times` computes a lower bound for ranges of depths. The search examines the lowest bound
// first. It ends when the lowest bound exceeds the best step, or when a limit is reached.
type every struct {
	p      *profile.Profile
	c      *cluster.Cluster
	batch  int
	halves bool // backwards are split in halves
	chunks bool // families with several stages on a worker are tried too
	small  *Small
	// enough is a limit of the step, unless it is 0. The search then looks only for plans with a shorter step, and ends
	// as soon as the verdict is known. Every search looks only for plans that are faster than the best one so far.
	enough float64
	limit  int // most micro-batches to simulate, each counted for every device; 0: mostPlayed

	groups, size int
	visited      int
	samples      int // layouts that were sampled
	played       int // simulated micro-batches, each counted for every device
	open         []layout
	costs        map[int][]profile.Cost // costs of all layers, by the rows of a replica's micro-batch
	left         map[[3]int]float64     // results of the method `rest`, by layer, micro-batch size and split
	ways         map[[3]int][]float64   // results of the method `way`, by most devices, micro-batch size and split
}

// A search has four limits. mostVisited limits partial layouts. mostBranches limits branches. mostPlayed limits
// simulated micro-batches, each counted once for every device. mostSamples limits the layouts that are sampled. It
// holds only for layouts of several stages, and only if backwards are not split in halves.
const mostVisited, mostBranches, mostPlayed, mostSamples = 2_000_000, 150_000, 400_000, 200

// look lists the layouts, simulates them, and sets the best plan and the floor. If there are too many layouts to list,
// look changes neither the best plan nor the floor.
func (e *every) look(ctx context.Context) error {
	e.prepare()
	for _, m := range plan.Divisors(e.batch) {
		for _, split := range []bool{false, true} {
			e.from(layout{m: m, split: split}, taken{}, 0)
		}
	}
	e.small.Layouts = len(e.open)
	if e.visited > mostVisited { // then most layouts are unknown, whatever the search finds
		return nil
	}
	e.small.AllDepths, e.small.FloorS = true, math.Inf(1)
	if e.chunks {
		if err := e.chunked(ctx); err != nil {
			return err
		}
	}
	e.small.Whole = true
	if err := e.search(ctx); err != nil {
		return err
	}
	e.small.FloorS = min(e.small.FloorS, e.below())
	return nil
}

// prepare sets the groups, the costs and the limit.
func (e *every) prepare() {
	e.groups, e.size = 1, len(e.c.Devices)
	if len(e.c.Levels) > 1 {
		e.size = e.c.Levels[0].Size
		e.groups = len(e.c.Devices) / e.size
	}
	e.limit = cmp.Or(e.limit, mostPlayed)
	e.costs = map[int][]profile.Cost{}
	for m := 1; m <= e.batch; m++ {
		if costs, _, err := e.p.At(e.c.Devices[0], m); err == nil {
			e.costs[m] = costs
		}
	}
}

// from lists the layouts that begin with the stages of l, and whose lower bound is less than e.below(). It lists none
// of them after mostVisited calls.
func (e *every) from(l layout, used taken, layer int) {
	n := len(e.p.Layers)
	if e.visited++; e.visited > mostVisited {
		return
	}
	if layer == n {
		if l.split && !slices.ContainsFunc(l.stages, func(h held) bool { return h.devices() > 1 }) {
			return
		}
		if l.least = e.least(l); l.least < e.below() {
			l.stages = slices.Clone(l.stages)
			e.open = append(e.open, l)
		}
		return
	}
	e.everyTaken(used, func(in taken) {
		next := held{first: layer, in: in}
		for next.end = layer + 1; next.end <= n; next.end++ {
			work, ok := e.work(next, l)
			if !ok || work >= e.below() {
				break // a stage of more layers takes longer
			}
			then := used.and(in)
			if left := len(e.c.Devices) - then.sum(); next.end < n && float64(left)*e.below() <= e.rest(next.end, l) {
				continue
			}
			longer := l
			longer.stages = append(slices.Clip(l.stages), next)
			if e.least(longer) < e.below() {
				e.from(longer, then, next.end)
			}
		}
	})
}

// rest returns how much time the layers from `layer` on take in a step at least, in seconds summed over all devices.
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

// everyTaken yields each way to take one or more free devices from the groups. Unused groups are equal to each other.
// So everyTaken leaves out each way that takes more devices from an unused group than from an unused group just before
// it.
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

// try returns the simulated step of a layout under a family, in seconds. It returns infinity if the family does not
// allow the layout, or if a plan that is faster than the best one does not fit in memory.
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

// play simulates a plan. If the plan is faster than the best one but does not fit in memory, play simulates it again
// with recompute in every stage.
func (e *every) play(pl *plan.Plan) (float64, error) {
	pl.Model, pl.ModelID, pl.Cluster = e.p.Model, e.p.ModelID, e.c.Name
	for _, again := range []plan.Recompute{plan.KeepAll, plan.KeepInput} {
		for i := range pl.Stages {
			pl.Stages[i].Recompute = again
		}
		q, _, err := predict.PlanIf(e.p, e.c, pl, false, func(stepS float64) bool { return stepS < e.small.BestS })
		if err != nil {
			return math.Inf(1), nil // depths or stages that the family does not allow
		}
		e.played += pl.MicroBatches * len(pl.Devices())
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
		e.small.FloorS = min(e.small.FloorS, q.StepS) // recompute in only some stages may fit, but is not tried
	}
	return math.Inf(1), nil
}

func (e *every) fits(q plan.Predicted) bool {
	limit := e.c.MemoryBytes(0)
	return limit == 0 || slices.Max(q.Needs()) <= limit
}
