package dapple

import (
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/millrace-ml/millrace/plan/dapple/servers"
	"github.com/millrace-ml/millrace/plan/plantest"
)

// equation2 returns L, with Q, Tw, Ts and Te computed as the paper prints them.
func equation2(stages []stage, M int) float64 {
	Q := len(stages) - 1
	for s := Q - 1; s >= 0; s-- {
		l1 := float64(M-1) * (stages[s].F + stages[s].B)
		l2 := float64(M-1) * (stages[Q].F + stages[Q].B)
		for a := s + 1; a <= Q-1; a++ {
			l2 += stages[a].F + stages[a].B
		}
		if l1 > l2 {
			Q = s
		}
	}
	tw, te := 0.0, math.Inf(-1)
	for s := 0; s <= Q; s++ {
		tw += stages[s].F
	}
	for s := range stages {
		sum := 0.0
		if s > Q {
			for a := Q; a <= s; a++ {
				sum -= stages[a].B
			}
		} else {
			for a := s; a <= Q; a++ {
				sum += stages[a].B
			}
		}
		te = max(te, stages[s].AR+sum)
	}
	return tw + float64(M-1)*(stages[Q].F+stages[Q].B) + te
}

func TestLatencyAsPrinted(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 20000 {
		stages := make([]stage, 1+r.IntN(9))
		for i := range stages {
			stages[i] = stage{r.Float64(), 2 * r.Float64(), 5 * r.Float64()}
		}
		M := 1 + r.IntN(20)
		got, want := latency(stages, M), equation2(stages, M)
		if math.Abs(got-want) > 1e-12*want {
			t.Fatalf("%v, M %d: %g, as printed %g", stages, M, got, want)
		}
		for _, s := range stages {
			if got < float64(M)*(s.F+s.B)*(1-1e-12) {
				t.Fatalf("%v, M %d: %g is below M times %v", stages, M, got, s)
			}
		}
	}
}

// TestBehind: if all stages of a random pipeline are known exactly, the bound equals its latency. If only bounds of
// some later stages are known, the bound is at most the latency.
func TestBehind(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	tight := 0
	for range 50000 {
		stages := make([]stage, 1+r.IntN(9))
		for i := range stages {
			stages[i] = stage{r.Float64(), 2 * r.Float64(), 5 * r.Float64() * float64(r.IntN(2))}
		}
		M := 1 + r.IntN(20)
		L, last := latency(stages, M), len(stages)-1
		end := step{stages[last], stages[last].B, stages[last].F + stages[last].B}
		behind := end.last(M)
		if got := leastLatency(stages[:last], &behind, M); math.Abs(got-L) > 1e-12*L {
			t.Fatalf("%v, M %d: %g, the latency is %g", stages, M, got, L)
		}
		known := r.IntN(len(stages))
		bounds := func(s stage) step {
			f, b := 0.2*s.F*r.Float64(), 0.2*s.B*r.Float64()
			return step{stage{s.F - f, s.B - b, s.AR * (1 - 0.2*r.Float64())}, s.B * (1 + 0.2*r.Float64()),
				(s.F + s.B) * (1 + 0.2*r.Float64())}
		}
		end = bounds(stages[last])
		behind = end.last(M)
		for i := last - 1; i >= known; i-- {
			s := bounds(stages[i])
			behind = behind.before(&s, M)
		}
		got := leastLatency(stages[:min(known, last)], &behind, M)
		if got > L*(1+1e-12) {
			t.Fatalf("%v, M %d: %g with bounds for those from %d on, the latency is %g", stages, M, got, known, L)
		}
		if got > 0.8*L {
			tight++
		}
	}
	if tight < 40000 {
		t.Errorf("%d of 50000 bounds are within a fifth of the latency; most should be", tight)
	}
}

// TestSearchAgainstTwins compares the search on thousands of random chains with two simple ones: the paper's recursion,
// and a search over all plans that the placements allow. s.run must give the recursion's result. s.search also leaves
// out prefixes by their bounds, and may therefore keep other prefixes than the recursion. So its result must lie
// between the best of all plans and the recursion's result.
func TestSearchAgainstTwins(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	better, optimal, plans := 0, 0, 0
	for n := range 3000 {
		p, c, batch, mb := plantest.ChainCase(r)
		at := servers.New(len(c.Devices), c.Levels[0].Size, servers.Used)
		costs, err := newCosts(p, newPlaces(c, at), batch, mb, []string{"auto", "no", "yes"}[r.IntN(3)])
		if err != nil {
			t.Fatal(err)
		}
		run := func(keep bool) *search {
			s := &search{costs: costs}
			s.thin(1 << 30)
			search := s.search
			if keep {
				search = s.run
			}
			if err := search(t.Context(), math.Inf(1)); err != nil {
				t.Fatal(err)
			}
			return s
		}
		whole, fast := run(true), run(false)
		literal, all := literalRecursion(costs), everyPlan(costs)
		if !plantest.Close(whole.best, literal) {
			t.Fatalf("case %d: %g, the recursion as printed %g", n, whole.best, literal)
		}
		if least := fast.rest.least(); least > all*(1+1e-12) {
			t.Fatalf("case %d: %g is less than the least that any plan takes, %g", n, all, least)
		}
		if fast.best > literal*(1+1e-12) || fast.best < all*(1-1e-12) {
			t.Fatalf("case %d: %g, not between the best of all plans %g and the recursion's %g", n, fast.best, all,
				literal)
		}
		if math.IsInf(all, 1) {
			continue
		}
		plans++
		if plantest.Close(fast.best, all) {
			optimal++
		}
		if !plantest.Close(fast.best, literal) {
			better++
		}
		ends, devices := fast.chain()
		if got := latencyOf(costs, ends, devices); !plantest.Close(got, fast.best) {
			t.Fatalf("case %d: the plan's latency is %g, the search says %g", n, got, fast.best)
		}
	}
	t.Logf("%d plans: %d the best of all, %d better than the recursion", plans, optimal, better)
	if plans < 1000 || optimal < plans*9/10 {
		t.Errorf("%d of %d plans are the best of all", optimal, plans)
	}
}

// latencyOf returns L of a plan, computed from its stages, or infinity if a stage does not fit.
func latencyOf(c *costs, ends []int, devices [][]int) float64 {
	latency, fits := latencyAnyway(c, ends, devices)
	if !fits {
		return math.Inf(1)
	}
	return latency
}

// latencyAnyway returns L of a plan, computed from its stages, and whether all of them fit.
func latencyAnyway(c *costs, ends []int, devices [][]int) (latency float64, fits bool) {
	var stages []stage
	first := 0
	fits = true
	for i, end := range ends {
		g := c.groupOf(devices[i])
		own, _, here := c.stage(first, end, &g)
		fits = fits && here
		if i > 0 {
			stages = append(stages, c.network(c.stream(devices[i-1], devices[i]), first))
		}
		stages = append(stages, own)
		first = end
	}
	return equation2(stages, c.M), fits
}

// literalRecursion returns L by equations (4) and (5), which keep one prefix for each number of layers and set of
// devices.
func literalRecursion(c *costs) float64 {
	type prefix struct {
		ends    []int
		devices [][]int
		latency float64
	}
	n, G := len(c.p.Layers), len(c.typeOf)
	full := c.at.All()
	kept := make([]map[string]prefix, n)
	sets := map[string]servers.Taken{}
	for i := range kept {
		kept[i] = map[string]prefix{}
	}
	kept[0][c.at.None().Key()] = prefix{}
	sets[c.at.None().Key()] = c.at.None()
	best := math.Inf(1)
	for j := range n {
		for _, key := range slices.Sorted(maps.Keys(kept[j])) {
			p, before := kept[j][key], sets[key]
			used := 0
			for _, k := range before {
				used += int(k)
			}
			for to := j + 1; to < n; to++ {
				for m := 1; used+m < G; m++ {
					for _, after := range c.at.Place(before, m) {
						mine := c.groupOf(c.at.Between(before, after))
						if _, _, fits := c.stage(j, to, &mine); !fits {
							continue
						}
						ends := append(slices.Clone(p.ends), to, n)
						devices := append(slices.Clone(p.devices), mine.devices, c.at.Between(after, full))
						best = min(best, latencyOf(c, ends, devices))
						latency, _ := latencyAnyway(c, ends, devices)
						if old, ok := kept[to][after.Key()]; !ok || latency < old.latency {
							kept[to][after.Key()] = prefix{ends[:len(ends)-1], devices[:len(devices)-1], latency}
							sets[after.Key()] = after
						}
					}
				}
			}
		}
	}
	return best
}

// everyPlan returns the least L of two or more stages, over all splits and all sets of devices that the placements
// reach.
func everyPlan(c *costs) float64 {
	n, G := len(c.p.Layers), len(c.typeOf)
	full := c.at.All()
	best := math.Inf(1)
	var try func(first, used int, before servers.Taken, ends []int, devices [][]int)
	try = func(first, used int, before servers.Taken, ends []int, devices [][]int) {
		if len(ends) > 0 {
			best = min(best, latencyOf(c, append(slices.Clone(ends), n),
				append(slices.Clone(devices), c.at.Between(before, full))))
		}
		for to := first + 1; to < n; to++ {
			for m := 1; used+m < G; m++ {
				for _, after := range c.at.Place(before, m) {
					try(to, used+m, after, append(slices.Clone(ends), to),
						append(slices.Clone(devices), c.at.Between(before, after)))
				}
			}
		}
	}
	try(0, 0, c.at.None(), nil, nil)
	return best
}
