package profile

import (
	"cmp"
	"errors"
	"slices"
	"sort"
)

// FewStates is the number of states to which CompressedStates reduces a graph if it can. A dynamic program over all
// pairs of that many states takes well under a second.
const FewStates = 2048

// CompressedStates lists the antichain states that a plan needs. If a graph has at most FewStates states, it keeps all,
// and the optimum of every objective is the same as over the states of StatesOf. If there are more, layers are
// absorbed, cheapest first, until at most FewStates are left.
//
// A layer z may be absorbed under two conditions. No other layer reads what z reads, and z writes no more bytes than it
// reads (an activation after its convolution; a concatenation). A state is dropped if it has all that an absorbed z
// reads but not z. For a kept state D let f(D) be D. For a dropped state D let f(D) be D with absorbed layers added
// until none is missing.
//
// SlackS and SlackParameterBytes bound how much worse the optimum over the kept states is than that over all states.
// The bound needs an objective that does not fall when a stage's compute or parameters, or a cut's OutputBytes, grow.
// The objective also must not need to use every device. The proof:
//   - f(D) is a state: z reads a layer of D, so D with z is a state that follows D.
//   - f keeps inclusion: what z reads is in every larger state too. So the cuts of a plan,
//     D1 inside D2 inside ..., become cuts f(D1) inside f(D2) inside .... A stage may become
//     empty and is then left out. f of the whole model is the whole model.
//   - No cut carries more. z is the only reader of the layers that it reads. So these layers
//     are in the antichain of D. They are no longer in the antichain of D with z. z adds no
//     other layer to the augmented antichain: z depends only on these layers, whose only
//     reader it is, and on what they depend on. So OutputBytes grows at most by what z
//     writes less what z reads, which is not above 0.
//   - A stage between D1 and D2 now computes f(D2) less f(D1). The layers that it computes in
//     addition are all in f(D2) less D2. They are absorbed layers that lead, through absorbed
//     layers only, to a last layer of f(D2). SlackS and SlackParameterBytes are the most that
//     such layers take, over the last layers of any kept state.
//
// So if both slacks are 0, the optimum over the kept states is exact. That is so if only layers without time and
// parameters were absorbed. Otherwise take an optimal plan over all states, and add SlackS and SlackParameterBytes to
// each of its stages: the optimum over the kept states is at most the value of this slower plan. There is no bound for
// two kinds of objectives. One limits memory by ActivationBytes, since absorbed activations move to an earlier stage.
// The other must use devices that a plan cannot use well.
//
// In practice the loss is far below the bound. CompressedStates refuses what StatesOf refuses. But it refuses a graph
// with more than MaxStates states only if more than MaxStates are left after absorbing.
func CompressedStates(p *Profile, costs []Cost) (*States, error) {
	return CompressedStatesTo(p, costs, FewStates)
}

// CompressedStatesTo is CompressedStates with `few` in place of FewStates. With more states the result is closer to the
// optimum, but a planner needs time proportional to their square.
func CompressedStatesTo(p *Profile, costs []Cost, few int) (*States, error) {
	g, err := newGraph(p, costs)
	if err != nil {
		return nil, err
	}
	all, err := g.states(make([]bool, len(costs)), few)
	var many *TooManyStatesError
	if !errors.As(err, &many) {
		return all, err
	}
	cheapest := g.absorbable()
	with := func(n, limit int) (*States, error) {
		absorbed := make([]bool, len(costs))
		for _, z := range cheapest[:n] {
			absorbed[z] = true
		}
		s, err := g.states(absorbed, limit)
		if err == nil {
			g.slack(s, absorbed)
		}
		return s, err
	}
	var best *States
	sort.Search(len(cheapest)+1, func(n int) bool {
		s, err := with(n, few)
		if err == nil {
			best = s
		}
		return err == nil
	})
	if best != nil {
		return best, nil
	}
	return with(len(cheapest), MaxStates)
}

// absorbable lists the layers that may be absorbed, by ascending time. Layers of equal time are in the order of their
// parameter bytes.
func (g *graph) absorbable() []int {
	var out []int
	for z, from := range g.pred {
		read, only := int64(0), len(from) > 0
		for _, p := range from {
			read += g.costs[p].OutputBytes
			only = only && len(g.succ[p]) == 1
		}
		if only && g.costs[z].OutputBytes <= read {
			out = append(out, z)
		}
	}
	slices.SortStableFunc(out, func(a, b int) int {
		return cmp.Or(cmp.Compare(g.seconds(a), g.seconds(b)),
			cmp.Compare(g.profile.Layers[a].ParameterBytes, g.profile.Layers[b].ParameterBytes))
	})
	return out
}

func (g *graph) seconds(l int) float64 { return g.costs[l].ForwardS + g.costs[l].BackwardS }

// slack computes the slacks of the states. For an absorbed layer l, owedS[l] is the time of l and of the earlier layers
// absorbed into it; otherwise it is 0.
func (g *graph) slack(s *States, absorbed []bool) {
	owedS, owedBytes := make([]float64, len(absorbed)), make([]int64, len(absorbed))
	for z := range absorbed {
		if !absorbed[z] {
			continue
		}
		owedS[z], owedBytes[z] = g.seconds(z), g.profile.Layers[z].ParameterBytes
		for _, p := range g.pred[z] {
			owedS[z] += owedS[p]
			owedBytes[z] += owedBytes[p]
		}
	}
	for _, state := range s.List {
		seconds, bytes := 0.0, int64(0)
		for _, a := range state.Antichain {
			seconds += owedS[a]
			bytes += owedBytes[a]
		}
		s.SlackS, s.SlackParameterBytes = max(s.SlackS, seconds), max(s.SlackParameterBytes, bytes)
	}
}
