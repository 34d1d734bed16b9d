package artifact

import (
	"context"
	"fmt"
	"slices"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/plan/dapple/servers"
	"github.com/millrace-ml/millrace/profile"
)

// Search runs the published planner's search (orchestrate in its source). On G devices it tries, for every i,
// floor(G/i) equal pipelines side by side, each on i devices. It also tries straight pipelines, which have one device
// in each stage: a pipeline of G stages and, if G is even, pipelines of 2 stages. And it tries every cut into two
// stages.
//
// The search for i devices always returns one stage on all of them. The all-reduce is commented out in the source, so
// no division into stages has a smaller bottleneck. Search returns that answer directly.
//
// The original's straight searches break ties between bottlenecks by addresses in memory. Here the shortest last stage
// wins. That gives the published candidates' speedups if the tied cuts carry the same bytes (BERT, XLNet, VGG). GNMT-16
// has ties between cuts of different sizes, so the speedups of its straight plans differ slightly from the published
// ones. The original's algorithm does not determine which of the tied plans it returns.
func Search(ctx context.Context, p *profile.Profile, c *cluster.Cluster, batch int, k Constants) (*Answer, error) {
	a, answer, err := newInput(p, c, batch, k)
	if err != nil {
		return nil, err
	}
	G := len(c.Devices)
	add := func(cand Candidate) { answer.Candidates = append(answer.Candidates, cand) }
	for i := 2; i <= G; i++ {
		rp := G / i
		devices := a.at.Between(a.at.None(), a.at.Place(a.at.None(), i*rp)[0])
		one := Candidate{Pipelines: rp, Stages: []Stage{{0, len(a.compute) - 1, devices}},
			Block: a.total() / float64(i) / float64(rp)}
		one.Speedup = a.speedup(one)
		add(one)
	}
	straight := []int{G}
	if G > 2 && G%2 == 0 {
		straight = []int{2, G}
	}
	for _, i := range straight {
		if i < 2 {
			continue
		}
		cand, ok, err := a.straight(ctx, i)
		if err != nil {
			return nil, err
		}
		if ok {
			add(cand)
		}
	}
	two, ok, err := a.bipartition(ctx)
	if err != nil {
		return nil, err
	}
	if ok {
		add(two)
	}
	if len(answer.Candidates) == 0 { // a single device, which the original does not handle
		one := Candidate{Pipelines: 1, Stages: []Stage{{0, len(a.compute) - 1, []int{0}}}, Block: a.total()}
		one.Speedup = a.speedup(one)
		add(one)
	}
	answer.BestMulti = -1
	for i, cand := range answer.Candidates {
		if cand.Speedup >= answer.Candidates[answer.Best].Speedup {
			answer.Best = i
		}
		if len(cand.Stages) > 1 && (answer.BestMulti < 0 ||
			cand.Speedup >= answer.Candidates[answer.BestMulti].Speedup) {
			answer.BestMulti = i
		}
	}
	answer.TotalComputeS, answer.DP, answer.Limited = a.total(), a.dataParallel(), a.at.Limited
	if answer.BestMulti >= 0 {
		answer.RecursiveSpeedup = a.recursive(answer.Candidates[answer.BestMulti])
	}
	return answer, nil
}

// maxStates limits the published search, whose tables are states x states.
const maxStates = 4096

func newInput(p *profile.Profile, c *cluster.Cluster, batch int, k Constants) (*input, *Answer, error) {
	if len(p.Layers) == 0 || len(c.Devices) == 0 {
		return nil, nil, fmt.Errorf("plan: dapple: %d layers on %d devices; there must be one of each", len(p.Layers),
			len(c.Devices))
	}
	size := k.ProfileBatch
	if sizes := p.Sizes(c.Devices[0]); len(sizes) > 0 && !slices.Contains(sizes, size) {
		size = sizes[len(sizes)-1]
	}
	costs, _, err := p.At(c.Devices[0], size)
	if err != nil {
		return nil, nil, fmt.Errorf("plan: %w", err)
	}
	if k.ProfileBatch == 0 {
		k.ProfileBatch = size
	}
	if batch < 1 || k.MinMicroBatch < 1 {
		return nil, nil, fmt.Errorf("plan: dapple: batch %d, min_micro_batch %d; both are 1 at least", batch,
			k.MinMicroBatch)
	}
	if k.Server == 0 {
		k.Server = servers.SizeOf(c)
	}
	states, err := profile.StatesOf(p, costs)
	if err != nil {
		return nil, nil, fmt.Errorf("plan: %w", err)
	}
	if len(states.List) > maxStates {
		return nil, nil, fmt.Errorf("plan: dapple: %s has %d states; the published search is run on up to %d: use "+
			"--formula paper", p.Model, len(states.List), maxStates)
	}
	order := publishedOrder(p, states)
	a := &input{Constants: k, batch: batch, at: servers.New(len(c.Devices), k.Server, servers.Left)}
	scale := float64(batch) / float64(k.ProfileBatch)
	for _, i := range order {
		s := states.List[i]
		a.compute = append(a.compute, s.ComputeS*scale)
		a.saved = append(a.saved, float64(s.ActivationBytes)*scale)
		a.output = append(a.output, float64(s.OutputBytes)*scale)
		a.parameters = append(a.parameters, float64(s.ParameterBytes))
	}
	a.before = make([][]uint64, len(order))
	for j := range order {
		a.before[j] = make([]uint64, (len(order)+63)/64)
		for k := range order {
			if states.Before(order[k], order[j]) {
				a.before[j][k/64] |= 1 << (k % 64)
			}
		}
	}
	if a.PeakActivationPerSample == 0 {
		a.PeakActivationPerSample = a.saved[len(order)-1] / float64(batch)
	}
	if a.total() <= 0 {
		return nil, nil, fmt.Errorf("plan: dapple: the layers of %s take no time at all", p.Model)
	}
	return a, &Answer{States: states, Order: order}, nil
}

// sameBlock is the relative difference below which two bottlenecks count as equal. Without rounding, equal layers would
// tie. Rounding must not decide which plan is chosen.
const sameBlock = 1e-12

// bipartition is compute_bipartition. It tries every cut into two stages, every number of devices before the cut, and
// every placement of both stages. It chooses by the analytical speedup. Here a transfer counts the bytes of the cut
// once, not twice as in straight.
func (a *input) bipartition(ctx context.Context) (best Candidate, ok bool, err error) {
	N, G := len(a.compute), len(a.at.Of)
	// All costs are proportional to the bytes, so a placement's costs per byte are computed once for all cuts.
	type split struct {
		one, two         []int
		sent, sum1, sum2 float64 // seconds per byte of the transfer and of both all-reduces
	}
	var splits []split
	for g := 1; g < G; g++ {
		for _, first := range a.at.Place(a.at.None(), g) {
			for _, second := range a.at.Place(first, G-g) {
				s := split{one: a.at.Between(a.at.None(), first), two: a.at.Between(first, second)}
				s.sent, s.sum1, s.sum2 = a.transferS(s.one, s.two, 1), a.allReduceS(s.one, 1), a.allReduceS(s.two, 1)
				splits = append(splits, s)
			}
		}
	}
	M, most, cut := float64(a.microBatches(1)), 0.0, 0
	var chosen *split
	for l := range N - 1 {
		if err := ctx.Err(); err != nil {
			return best, false, fmt.Errorf("plan: dapple: %w", err)
		}
		reduced, reduced2 := span(a.parameters, 0, l+1), span(a.parameters, l+1, N-1)
		for i := range splits {
			s, speedup := &splits[i], 0.0
			if M > 0 {
				block := max(a.compute[l]/float64(len(s.one)), (a.compute[N-1]-a.compute[l])/float64(len(s.two)),
					s.sent*a.output[l]) / M
				length := block*(M-1) + a.total()/M + s.sent*a.output[l]/M
				speedup = a.total() / (length + max(0, s.sum1*reduced, s.sum2*reduced2-block))
			}
			if chosen == nil || speedup >= most*(1-sameBlock) { // the last of equal ones wins, as in the original's max_by_key
				chosen, most, cut = s, speedup, l
			}
		}
	}
	if chosen == nil {
		return best, false, nil
	}
	best = Candidate{Pipelines: 1, Stages: []Stage{{0, cut + 1, chosen.one}, {cut + 1, N - 1, chosen.two}}}
	best.Block = max(a.compute[cut]/float64(len(chosen.one)), (a.compute[N-1]-a.compute[cut])/float64(len(chosen.two)),
		a.transferS(chosen.one, chosen.two, a.output[cut]))
	best.Speedup = a.speedup(best)
	return best, true, nil
}
