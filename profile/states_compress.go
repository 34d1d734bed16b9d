package profile

import (
	"cmp"
	"errors"
	"slices"
	"sort"
)

// FewStates is how many states CompressedStates keeps at most where it can: a dynamic
// program over all pairs of them takes well under a second.
const FewStates = 2048

// CompressedStates lists the antichain states that a plan needs. Up to FewStates of them
// are all kept, and the optimum of every objective is that of StatesOf. Where there are
// more, layers are absorbed, cheapest first, until no more than FewStates are left.
//
// A layer z may be absorbed if no other layer reads what it reads, and it writes no more
// bytes than it reads (an activation behind its convolution; a concatenation). States
// that hold all that an absorbed z reads but not z are dropped. For every other state D
// let f(D) be D, and for dropped ones D with the absorbed layers added until none is
// missing.
//
// Why that costs no more than is stated, for every objective that never falls when a
// stage's compute or parameters grow, or a cut's OutputBytes, and that need not use every
// device:
//   - f(D) is a state: z reads a layer of D, so that D with z is one that follows D.
//   - f keeps inclusion: what z reads is in every larger state too. So the cuts of a plan,
//     D1 inside D2 inside ..., become cuts f(D1) inside f(D2) inside ..., where a stage
//     may become empty and is left out. f of the whole model is the whole model.
//   - No cut carries more: what z reads is read by z alone, so that in D it is in the
//     antichain itself and in D with z it is gone from it. z augments the antichain with
//     nothing new, for what it comes after is what the layers it reads come after, and
//     they themselves, whose only reader it is. So OutputBytes changes by what z writes
//     less what z reads, at most, and that is not above 0.
//   - A stage between D1 and D2 has f(D2) less f(D1) to do, which is at most f(D2) less D2
//     more than before. f(D2) less D2 is absorbed layers that hang, through absorbed layers
//     alone, on a last layer of f(D2). SlackS and SlackParameterBytes are the most that
//     any kept state's last layers can owe that way.
//
// So the optimum over the kept states is exact where both slacks are 0, as when only
// layers without time and parameters were absorbed, and otherwise at most what it would be
// if every stage of an optimal plan over all states took SlackS and SlackParameterBytes
// more. It says nothing of objectives that limit memory by ActivationBytes, for
// absorbed activations move to an earlier stage, nor of those in which devices that a plan
// cannot use well must still be used.
//
// The bound is wide, what is lost is little: of Inception-v3's 221,564 states 1,928 are
// kept, and PipeDream's bottleneck on 16 devices over them is 0.06 % above that over 7,901
// at 10 Gbit/s, 0.6 % at 25.
//
// It refuses what StatesOf refuses, and graphs of which absorbing leaves more than
// MaxStates states.
func CompressedStates(p *Profile, costs []Cost) (*States, error) {
	return CompressedStatesTo(p, costs, FewStates)
}

// CompressedStatesTo is CompressedStates with another number than FewStates: more keep
// closer to the optimum, and cost a planner their square.
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

// absorbable lists the layers that may be absorbed, those without parameters and with the
// least time first.
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

// slack works out what the states may owe. owedS[l] is the time of l and of what hangs on
// it, where l is absorbed: layers before it that are absorbed into it.
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
