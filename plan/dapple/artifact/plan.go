package artifact

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/plan/dapple/servers"
)

// Plan turns the published planner's answer into a plan. The published search leaves data parallelism to its caller. If
// dataParallel is set, Plan compares the estimate of data parallelism with the best candidate, and with the best
// candidate with several stages. Plan returns data parallelism if it is at least as fast as one of these two
// candidates.
func Plan(ctx context.Context, r plan.Request, k Constants, dataParallel bool) (*plan.Plan, error) {
	a, err := Search(ctx, r.Profile, r.Cluster, r.Batch, k)
	if err != nil {
		return nil, err
	}
	best := a.Candidates[a.Best]
	if best.Speedup == 0 {
		return nil, fmt.Errorf("plan: dapple: a batch of %d samples makes no micro-batch of %d for any candidate",
			r.Batch, k.MinMicroBatch)
	}
	why := []string{fmt.Sprintf("The published search compared %s over %s; the best is %s with an estimated speedup of "+
		"%.3f over one device.", terminal.Count(len(a.Candidates), "plan"), terminal.Count(len(a.Order), "state"),
		shape(best), best.Speedup)}
	why = append(why, fmt.Sprintf("It estimates data parallelism at %.3f without overlap and %.3f with, and never "+
		"returns it: compare these yourself, or set dp=yes.", a.DP.NoOverlap, a.DP.NormalOverlap))
	if a.Limited {
		least := a.TotalComputeS / float64(len(r.Cluster.Devices))
		why = append(why, fmt.Sprintf("Stages side by side may be on more than %d sets of devices, of which the "+
			"first were followed; the slowest stage or transfer of the plan is %.1f %% above all devices computing "+
			"without pause, so no set left out is better by more.",
			servers.MaxWays, 100*(best.Block/least-1)))
	}
	if a.BestMulti >= 0 {
		why = append(why, fmt.Sprintf("Micro-batch by micro-batch (its recursive estimate) the best of several "+
			"stages, %s, gives %.3f.", shape(a.Candidates[a.BestMulti]), a.RecursiveSpeedup))
	}
	objective := plan.Objective{Name: "estimated latency of one global batch", Value: a.TotalComputeS / best.Speedup,
		Unit: "s"}
	if dataParallel && (a.BestMulti >= 0 && a.DP.Best() >= a.Candidates[a.BestMulti].Speedup ||
		a.DP.Best() >= best.Speedup) {
		all := make([]int, len(r.Cluster.Devices))
		for d := range all {
			all[d] = d
		}
		best = Candidate{Pipelines: 1, Stages: []Stage{{0, len(a.Order) - 1, all}}, Speedup: a.DP.Best()}
		objective = plan.Objective{Name: "estimated latency of one global batch", Value: a.TotalComputeS / best.Speedup,
			Unit: "s"}
		why = append(why, "Data parallelism wins.")
	}
	why = append(why, "It assumed: half of a layer's time is its backward, times in proportion to samples, no memory "+
		"limit for pipelines, links of "+k.links()+" without latencies.")
	return a.plan(r, k, best, objective, why)
}

func shape(c Candidate) string {
	var n []string
	for _, s := range c.Stages {
		n = append(n, strconv.Itoa(len(s.Devices)))
	}
	return strings.Join(n, ":")
}

// plan writes a candidate as a plan. In a pipeline, a micro-batch has at least one sample for every replica, which the
// published estimate does not require.
func (a *Answer) plan(r plan.Request, k Constants, c Candidate, o plan.Objective, why []string) (*plan.Plan, error) {
	widest := 0
	var chain []int
	for i, s := range c.Stages {
		widest = max(widest, len(s.Devices))
		if i == len(c.Stages)-1 {
			chain = append(chain, a.Order[s.End])
		} else {
			chain = append(chain, a.Order[s.End-1])
		}
	}
	order, ends := a.States.Order(chain)
	out := r.Blank("dapple", "split")
	out.Objective, out.Why = o, why
	if len(c.Stages) == 1 {
		out.Schedule, out.Replication = "dp", "round_robin"
		widest = 1
	}
	want := k.MinMicroBatch * c.Pipelines
	if len(c.Stages) == 1 {
		want = k.MinMicroBatch
	}
	out.MicroBatch = plan.LeastDivisor(r.Batch, max(want, widest))
	if out.MicroBatch != want {
		out.Why = append(out.Why, fmt.Sprintf("Micro-batches run with %s instead of the estimate's %d: each "+
			"replica needs one, and they divide the batch.", terminal.Count(out.MicroBatch, "sample"), want))
	}
	out.MicroBatches = r.Batch / out.MicroBatch
	if !slices.IsSorted(order) {
		out.Order = order
	}
	first := 0
	for i, s := range c.Stages {
		last := ends[i] - 1
		if i == len(c.Stages)-1 {
			last = len(order) - 1
		}
		out.Stages = append(out.Stages, plan.Stage{FirstLayer: first, LastLayer: last, Devices: s.Devices,
			Warmup: min(len(c.Stages)-i, out.MicroBatches)})
		first = last + 1
	}
	return out, nil
}
