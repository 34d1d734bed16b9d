package tight

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/plan/bound"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/tune/predict"
)

// The sizes of a shrunken case.
const smallLayers, smallDevices, smallBatch = 4, 4, 4

// Small is a shrunken case with a simulation of every plan.
type Small struct {
	BestS  float64 `json:"best_s"` // the fastest of all plans
	Plan   string  `json:"plan"`
	Plans  int     `json:"plans"`
	BoundS float64 `json:"bound_s"`
	Gap    float64 `json:"gap"`
	// Loose says which of the two is loose in the large case. If the bound is still below the fastest of all plans, the
	// proof is loose.
	Loose string `json:"loose"`
}

// What can be loose.
const (
	Proof = "proof"
	Plan  = "plan"
	Both  = "both"
)

// shrunken returns a small case like a large one. Runs of layers with about equal work become one layer each. The
// devices are two servers of two, or four devices, with the same links. Computations shrink with the number of
// devices, so a device has the same compute for a batch. Parameters, and the time to update and sum them, shrink
// with the batch. So computing, activations and sums keep the large case's proportions. There are fewer
// micro-batches.
func shrunken(ctx context.Context, p *profile.Profile, c *cluster.Cluster, gap float64) (*Small, error) {
	large := p.Sizes(c.Devices[0])
	small, fewer := few(c), float64(len(c.Devices))/smallDevices
	merged := merge(p, c, fewer, float64(large[len(large)-1])/smallBatch)
	kind := bound.Kind{Workers: smallDevices, Batch: smallBatch}
	for m := 1; m <= smallBatch; m *= 2 {
		kind.Sizes = append(kind.Sizes, m)
	}
	out := &Small{BestS: math.Inf(1), BoundS: bound.Step(merged, small, kind)}
	var failed error
	everyPlan(kind.Sizes, small, func(pl *plan.Plan) bool {
		if failed = context.Cause(ctx); failed != nil {
			return false
		}
		pl.Model, pl.ModelID, pl.Cluster = merged.Model, merged.ModelID, small.Name
		q, _, err := predict.PlanIf(merged, small, pl, false, func(float64) bool { return false })
		if err != nil {
			return true // depths that stages with unequal replicas cannot keep
		}
		if out.Plans++; q.StepS < out.BoundS*(1-plan.SameTime) {
			failed = fmt.Errorf("bound: %s takes %g s on %s shrunken, and none is to take less than %g s", pl.Layout(),
				q.StepS, c.Name, out.BoundS)
			return false
		}
		if q.StepS < out.BestS {
			out.BestS, out.Plan = q.StepS, pl.Layout()
		}
		return true
	})
	if failed != nil {
		return nil, failed
	}
	out.Gap = out.BestS/out.BoundS - 1
	switch {
	case out.Gap > gap*2/3:
		out.Loose = Proof
	case out.Gap < gap/3:
		out.Loose = Plan
	default:
		out.Loose = Both
	}
	return out, nil
}

// few returns four devices of a cluster, in two groups if it has groups.
func few(c *cluster.Cluster) *cluster.Cluster {
	small := *c
	small.Levels = nil
	for _, l := range c.Levels {
		if l.Size > 1 {
			small.Levels = append(small.Levels, l)
		}
	}
	left := smallDevices
	for i := range small.Levels {
		if small.Levels[i].Size = 2; i == len(small.Levels)-1 {
			small.Levels[i].Size = left
		}
		left /= 2
	}
	small.Devices = c.Devices[:smallDevices]
	small.Nodes = nil
	return &small
}

// merge turns runs of layers into one layer each. It divides their computations by faster and their parameters by
// fewer.
func merge(p *profile.Profile, c *cluster.Cluster, faster, fewer float64) *profile.Profile {
	device := c.Devices[0]
	whole := 0.0
	work := func(l int) float64 {
		cost := p.Layers[l].Costs[len(p.Layers[l].Costs)-1]
		return cost.ForwardS + cost.BackwardS
	}
	for l := range p.Layers {
		whole += work(l)
	}
	out := &profile.Profile{Version: profile.Version, Model: p.Model, ModelID: p.ModelID, Source: p.Source}
	at, done := 0, 0.0
	for k := range smallLayers {
		one := profile.Layer{Name: fmt.Sprint("run", k), Kind: "run", From: []int{k - 1}, TiedTo: -1}
		first := at
		for at < len(p.Layers) && (at == first || done+work(at)/2 < whole*float64(k+1)/smallLayers) &&
			len(p.Layers)-at > smallLayers-1-k || k == smallLayers-1 && at < len(p.Layers) {
			l := p.Layers[at]
			one.ParameterBytes += int64(float64(l.ParameterBytes) / fewer)
			one.UpdateS += l.UpdateS / fewer
			done += work(at)
			at++
		}
		for m := 1; m <= smallBatch; m *= 2 {
			costs, _, err := p.At(device, m)
			if err != nil {
				continue
			}
			cost := profile.Cost{Device: device, MicroBatch: m, OutputBytes: p.CutBytes(costs, at-1)}
			for l := first; l < at; l++ {
				cost.ForwardS += costs[l].ForwardS / faster
				cost.BackwardS += costs[l].BackwardS / faster
			}
			one.Costs = append(one.Costs, cost)
		}
		out.Layers = append(out.Layers, one)
	}
	return out
}

// everyPlan lists every plan of the small case that the bound covers, until yield returns false. It takes every cut,
// every set of devices for each stage, both ways to replicate, every micro-batch, and every depth that does not grow
// from stage to stage. If one level joins all devices, only their number counts.
func everyPlan(sizes []int, c *cluster.Cluster, yield func(*plan.Plan) bool) {
	alike := len(c.Levels) == 1
	on := true
	for cuts := range 1 << (smallLayers - 1) {
		first := []int{0}
		for l := 1; l < smallLayers; l++ {
			if cuts>>(l-1)&1 == 1 {
				first = append(first, l)
			}
		}
		everyHolder(len(first), alike, func(holder []int) {
			for _, split := range []bool{false, true} {
				for _, m := range sizes {
					pl := laid(first, holder, m, split)
					if !on || split && len(pl.Devices()) == len(first) {
						continue
					}
					everyDepth(pl, 0, smallBatch/m, func() { on = on && yield(pl) })
				}
			}
		})
	}
}

// everyHolder lists which stage each device holds, so that each stage has at least one device; -1 means none.
func everyHolder(stages int, alike bool, yield func(holder []int)) {
	holder := make([]int, smallDevices)
	var walk func(d int)
	walk = func(d int) {
		if d < smallDevices {
			for s := -1; s < stages; s++ {
				holder[d] = s
				if !alike || d == 0 || before(holder[d-1], stages) <= before(s, stages) {
					walk(d + 1)
				}
			}
			return
		}
		for s := range stages {
			if !slices.Contains(holder, s) {
				return
			}
		}
		yield(holder)
	}
	walk(0)
}

// before sorts devices without a stage last.
func before(s, stages int) int {
	if s < 0 {
		return stages
	}
	return s
}

func laid(first, holder []int, m int, split bool) *plan.Plan {
	pl := &plan.Plan{Version: plan.Version, Replication: "round_robin", MicroBatch: m, MicroBatches: smallBatch / m,
		Schedule: "1f1b", Weights: "sync", Planner: "given"}
	if split {
		pl.Replication = "split"
	}
	if len(first) == 1 {
		pl.Schedule = "dp"
	}
	for s, l := range first {
		st := plan.Stage{FirstLayer: l, LastLayer: smallLayers - 1, Warmup: 1}
		if s+1 < len(first) {
			st.LastLayer = first[s+1] - 1
		}
		for d, held := range holder {
			if held == s {
				st.Devices = append(st.Devices, d)
			}
		}
		pl.Stages = append(pl.Stages, st)
	}
	return pl
}

// everyDepth gives the stages of a plan from stage on all depths up to the previous stage's.
func everyDepth(pl *plan.Plan, stage, most int, yield func()) {
	if stage == len(pl.Stages) {
		yield()
		return
	}
	if len(pl.Stages) == 1 {
		most = 1
	}
	for k := 1; k <= most; k++ {
		pl.Stages[stage].Warmup = k
		everyDepth(pl, stage+1, k, yield)
	}
}
