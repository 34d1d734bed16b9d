package dapple

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/plan/dapple/servers"
	"github.com/millrace-ml/millrace/profile"
)

// choose is DAPPLE's planner of §4, plus data parallelism. Equation (4) never returns a single stage, so data
// parallelism is compared separately. choose tries the request's micro-batch size or, if the request has none, the
// sizes that microBatches lists. As in the paper, the time of a replicated stage is its time on one device divided by
// the number of replicas, although kernels with fewer samples are slower. Unlike the paper, a graph may be cut after
// each layer of the profile's order, and all tensors that cross the cut are sent.
//
// Device types may differ: a stage is as slow as its slowest device, and has the memory of its smallest. Servers are
// taken in the cluster's order, so the type listed first gets the first stages. Planner auto tries other orders.
func choose(ctx context.Context, r plan.Request, s *plan.SettingsReader) (*plan.Plan, error) {
	o := options{
		dp: s.Choice("dp"), overlap: s.Choice("overlap"), policy: s.Choice("policy"), recompute: s.Choice("recompute"),
		acr: s.Number("acr_threshold", 0), states: s.Count("max_states", 0, plan.MostCount),
		server: s.Count("server", 0, plan.MostCount), most: s.Count("most_stages", 0, plan.MostCount),
	}
	if o.most == 1 {
		return nil, fmt.Errorf("plan: dapple: setting most_stages is 1; a pipeline has 2 or more, and dp says what of one")
	}
	if err := s.Done(); err != nil {
		return nil, err
	}
	if o.server == 0 {
		o.server = servers.SizeOf(r.Cluster)
	}
	at := servers.New(len(r.Cluster.Devices), o.server, servers.Used)
	places := newPlaces(r.Cluster, at)
	sizes := []int{r.MicroBatch}
	if r.MicroBatch == 0 {
		sizes = microBatches(r)
	}
	best, dp := (*search)(nil), parallel{plain: math.Inf(1), hidden: math.Inf(1)}
	limit, thinned := math.Inf(1), false
	run := func(s *search) error {
		err := s.search(ctx, limit)
		if s.bestAt >= 0 {
			best, limit = s, s.best
		}
		return err
	}
	var missing error
	var searches []*search
	for _, mb := range sizes {
		costs, err := newCosts(r.Profile, places, r.Batch, mb, o.recompute)
		if err != nil {
			missing = err
			continue
		}
		if one, ok := costs.dataParallel(); ok && o.dp != "no" && one.time(o.overlap) < dp.time(o.overlap) {
			dp = one
		}
		limit = min(limit, dp.time(o.overlap)) // only a faster pipeline counts
		s := &search{costs: costs, most: o.most}
		thinned = s.thin(o.states) || thinned
		searches = append(searches, s)
	}
	// First, for every micro-batch size, a search looks at only a few cuts. These searches find a plan that is nearly
	// the best. The full searches then skip what cannot be better than this plan. They begin with the micro-batch sizes
	// nearest to that of the plan.
	for _, s := range searches {
		if err := run(s.look()); err != nil {
			return nil, err
		}
	}
	if best != nil {
		slices.SortStableFunc(searches, func(a, b *search) int {
			return cmp.Compare(abs(a.mb-best.mb), abs(b.mb-best.mb))
		})
	}
	for _, s := range searches {
		if err := run(s); err != nil {
			return nil, err
		}
	}
	switch {
	case best == nil && math.IsInf(dp.time(o.overlap), 1) && missing != nil:
		return nil, missing
	case best == nil && math.IsInf(dp.time(o.overlap), 1):
		return nil, o.tooBig(r.Profile, searches)
	case best == nil || dp.time(o.overlap) <= best.best:
		return o.planData(r, dp), nil
	}
	return o.planPipeline(r, best, dp, thinned), nil
}

type options struct {
	dp, overlap, policy, recompute string
	acr                            float64
	states, server, most           int
}

// maxSizes limits the micro-batch sizes that are searched.
const maxSizes = 4

// microBatches lists the sizes that the profile has and that divide the batch. If there are fewer than two, it adds
// other divisors, for which the profile interpolates or scales its costs. If there are more than maxSizes, it keeps
// maxSizes of them, evenly spread.
func microBatches(r plan.Request) []int {
	var sizes []int
	for _, m := range r.Profile.Sizes(r.Cluster.Devices[0]) {
		if r.Batch%m == 0 {
			sizes = append(sizes, m)
		}
	}
	if len(sizes) < 2 {
		for _, m := range plan.Divisors(r.Batch) {
			if !slices.Contains(sizes, m) {
				if _, _, err := r.Profile.At(r.Cluster.Devices[0], m); err == nil {
					sizes = append(sizes, m)
				}
			}
		}
		slices.Sort(sizes)
	}
	if len(sizes) == 0 {
		return []int{r.Batch} // the profile then refuses this size, with an error that says why
	}
	for len(sizes) > maxSizes { // keep maxSizes of them, evenly spread, with both extremes
		var fewer []int
		for i := range maxSizes {
			fewer = append(fewer, sizes[i*(len(sizes)-1)/(maxSizes-1)])
		}
		sizes = fewer
	}
	return sizes
}

// planData writes data parallelism as a plan.
func (o options) planData(r plan.Request, dp parallel) *plan.Plan {
	out := r.Blank("dapple", "split")
	out.Replication, out.Schedule, out.MicroBatch, out.MicroBatches = "round_robin", "dp", dp.microBatch, dp.micro
	st := plan.Stage{LastLayer: len(r.Profile.Layers) - 1, Warmup: 1}
	for d := range min(len(r.Cluster.Devices), dp.micro) {
		st.Devices = append(st.Devices, d)
	}
	out.Stages = []plan.Stage{st}
	out.Objective = plan.Objective{Name: "estimated step of data parallelism", Value: dp.time(o.overlap), Unit: "s"}
	out.Why = []string{fmt.Sprintf("Data parallelism takes %.4g s without and %.4g s with overlap of its "+
		"all-reduces; no pipeline's estimate is below that.", dp.plain, dp.hidden)}
	return out
}

// planPipeline writes the best pipeline as a plan, with depths by policy and memory (§5.3).
func (o options) planPipeline(r plan.Request, s *search, dp parallel, thinned bool) *plan.Plan {
	out := r.Blank("dapple", "split")
	out.MicroBatch, out.MicroBatches = s.mb, s.M
	ends, devices := s.chain()
	ratio := s.acrOf(ends, devices)
	policy := o.policy
	if policy == "auto" {
		policy = "pa"
		if ratio >= o.acr {
			policy = "pb"
		}
	}
	S, first, depth := len(ends), 0, s.M
	for i, end := range ends {
		g := s.groupOf(devices[i])
		_, again, _ := s.stage(first, end, &g)
		want := S - i
		if policy == "pb" {
			want = 2*(S-i) - 1
		}
		depth = min(depth, want, s.depth(first, end, len(g.devices), g.memory, again))
		out.Stages = append(out.Stages, plan.Stage{FirstLayer: first, LastLayer: end - 1, Devices: devices[i],
			Recompute: plan.AtBoundary(again), Warmup: depth})
		first = end
	}
	out.Objective = plan.Objective{Name: "pipeline latency L (DAPPLE eq. 2)", Value: s.best, Unit: "s"}
	bound := s.bound()
	out.Why = []string{
		fmt.Sprintf("%d prefixes and %d extensions were planned; L = %.4g s is %.1f %% above all devices computing "+
			"without pause (%.4g s).", len(s.found), s.tried, s.best, 100*(s.best/bound-1), bound),
		fmt.Sprintf("Activation-communication ratio %.3f: policy %s (threshold %.3g).", ratio, policy, o.acr),
	}
	if o.dp != "no" && !math.IsInf(dp.plain, 1) {
		out.Why = append(out.Why, fmt.Sprintf("Data parallelism would take %.4g s without and %.4g s with overlap.",
			dp.plain, dp.hidden))
	} else {
		out.Why = append(out.Why, "Data parallelism does not fit one device, or was left out.")
	}
	if thinned {
		out.Why = append(out.Why, fmt.Sprintf("More than %d prefixes by device sets: the search was thinned to %d "+
			"cuts and stages of multiples of %s; the gap to the best is at most that to the bound.",
			o.states, len(s.cuts), terminal.Count(s.steps[0], "device")))
	}
	if branches(r.Profile) {
		out.Why = append(out.Why, fmt.Sprintf("Layers branch: it cut between layers in the profile's order alone, at "+
			"%d places; formula artifact and planner pipedream cut branches apart too.", len(r.Profile.Layers)-1))
	}
	if r.Profile.On(r.Cluster.Devices[0]).Source == profile.SourceImported {
		out.Why = append(out.Why, "Times were scaled in proportion to the samples.")
	}
	out.Why = append(out.Why, "It assumed: replicas split each micro-batch without loss, every pair of links works "+
		"at once, no bubbles inside the pivot, servers taken in the cluster's order.")
	return out
}

// branches says whether some layer reads anything other than the layer before it.
func branches(p *profile.Profile) bool {
	for k, l := range p.Layers {
		if k > 0 && !slices.Equal(l.From, []int{k - 1}) {
			return true
		}
	}
	return false
}

// acrOf returns the mean time of a forward transfer between stages, divided by the mean of a stage's (F+B)/2. §5.3
// gives no formula; here both means are over all cuts and stages of the plan.
func (s *search) acrOf(ends []int, devices [][]int) float64 {
	sent, worked, first := 0.0, 0.0, 0
	for i, end := range ends {
		g := s.groupOf(devices[i])
		own, _, _ := s.stage(first, end, &g)
		worked += (own.F + own.B) / 2
		if i+1 < len(ends) {
			sent += s.stream(devices[i], devices[i+1]).Of(float64(s.cut[end]))
		}
		first = end
	}
	if len(ends) < 2 || worked == 0 {
		return 0
	}
	return sent / float64(len(ends)-1) / (worked / float64(len(ends)))
}

func abs(x int) int { return max(x, -x) }
