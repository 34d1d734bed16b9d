package profile

import (
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"
)

// bottleneck returns the least time of the slowest stage or transfer over all chains of states. A chain goes from no
// layers to the whole model with at most m devices.
func bottleneck(s *States, m int, bandwidth, slackS, slackW float64) float64 {
	n := len(s.List)
	best := make([][]float64, n) // indexed by state and number of devices
	for j := range s.List {
		best[j] = make([]float64, m+1)
		for k := range best[j] {
			best[j][k] = math.Inf(1)
		}
		for k := 1; k <= m; k++ {
			best[j][k] = min(best[j][k-1], stageTime(s.List[j], State{}, k, bandwidth, slackS, slackW))
			for i := range s.List {
				if !s.Before(i, j) {
					continue
				}
				for mine := 1; mine < k; mine++ {
					move := 2 * float64(s.List[i].OutputBytes) / (bandwidth * float64(mine))
					best[j][k] = min(best[j][k], max(best[i][k-mine], move,
						stageTime(s.List[j], s.List[i], mine, bandwidth, slackS, slackW)))
				}
			}
		}
	}
	return best[n-1][m]
}

func stageTime(to, from State, m int, bandwidth, slackS, slackW float64) float64 {
	k := float64(m)
	w := float64(to.ParameterBytes-from.ParameterBytes) + slackW
	return (to.ComputeS - from.ComputeS + slackS + 4*(k-1)*w/(bandwidth*k)) / k
}

// TestAbsorbingCostsAtMostItsSlack: if layers are absorbed, the best chain of the remaining states is slower by at most
// the slack. If the absorbed layers cost nothing, it is not slower. The remaining states are among those that the
// published code lists.
func TestAbsorbingCostsAtMostItsSlack(t *testing.T) {
	absorbedSome := 0
	rapid.Check(t, func(t *rapid.T) {
		p, costs := drawDAG(t, 10)
		g, err := newGraph(p, costs)
		if err != nil {
			t.Fatal(err)
		}
		all, err := g.states(make([]bool, len(costs)), MaxStates)
		if err != nil {
			t.Fatal(err)
		}
		absorbed := make([]bool, len(costs))
		candidates := g.absorbable()
		for _, z := range candidates[:rapid.IntRange(0, len(candidates)).Draw(t, "absorbed")] {
			absorbed[z] = true
			absorbedSome++
		}
		few, err := g.states(absorbed, MaxStates)
		if err != nil {
			t.Fatal(err)
		}
		g.slack(few, absorbed)
		known := map[string]bool{}
		for i := range all.List {
			known[fmt.Sprint(all.Layers(i), all.List[i])] = true
		}
		for i := range few.List {
			if !known[fmt.Sprint(few.Layers(i), few.List[i])] {
				t.Fatalf("%v %+v is no published state", few.Layers(i), few.List[i])
			}
		}
		m := rapid.IntRange(1, 4).Draw(t, "devices")
		bandwidth := float64(rapid.IntRange(1, 10).Draw(t, "bandwidth"))
		exact, got := bottleneck(all, m, bandwidth, 0, 0), bottleneck(few, m, bandwidth, 0, 0)
		bound := bottleneck(all, m, bandwidth, few.SlackS, float64(few.SlackParameterBytes))
		if got < exact-1e-12 || got > bound+1e-12 {
			t.Fatalf("%v over %d states, %v over all %d, at most %v with the slack", got, len(few.List), exact,
				len(all.List), bound)
		}
	})
	if absorbedSome == 0 {
		t.Error("nothing was ever absorbed")
	}
}

// TestCompressionToAFew: compression to a few states stays within its slack. If all states fit the limit, all are kept.
func TestCompressionToAFew(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, costs := drawDAG(t, 10)
		all, err := StatesOf(p, costs)
		if err != nil {
			t.Fatal(err)
		}
		few, err := CompressedStatesTo(p, costs, rapid.IntRange(1, len(all.List)).Draw(t, "few"))
		if err != nil {
			t.Fatal(err)
		}
		exact, got := bottleneck(all, 3, 4, 0, 0), bottleneck(few, 3, 4, 0, 0)
		if bound := bottleneck(all, 3, 4, few.SlackS, float64(few.SlackParameterBytes)); got < exact-1e-12 ||
			got > bound+1e-12 {
			t.Fatalf("%v over %d states, %v over all %d, at most %v", got, len(few.List), exact, len(all.List), bound)
		}
		if whole, err := CompressedStates(p, costs); err != nil || len(whole.List) != len(all.List) ||
			whole.SlackS != 0 {
			t.Fatalf("%d of %d states with room for all: %v", len(whole.List), len(all.List), err)
		}
	})
}
