package bound

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/tune/predict"
)

// TestNoArgumentRulesOutASimulatedPlan takes random plans on random clusters of one or two levels, with or without
// uplinks. No argument may exclude any of a plan's stages within the simulated step. A comparison of the bound with
// only the best plan would miss arguments that are wrong about other plans.
func TestNoArgumentRulesOutASimulatedPlan(t *testing.T) {
	r := rand.New(rand.NewPCG(21, 14))
	plans, ways := 0, map[bool]int{}
	for world := range 150 {
		p, c := randomWorld(r)
		const batch = 16
		for range 12 {
			pl := randomPlan(r, len(p.Layers), len(c.Devices), batch)
			q, _, err := predict.PlanIf(p, c, pl, false, func(float64) bool { return false })
			if err != nil {
				continue // the depths are impossible for stages with unequal numbers of replicas
			}
			plans++
			split := pl.Replication == "split"
			ways[split]++
			kind := Kind{Workers: len(c.Devices), Batch: batch, Sizes: []int{pl.MicroBatch}}
			b := newBounder(p, c, kind, pl.MicroBatch, split)
			b.simple()
			if b.proof.StepS > q.StepS*(1+1e-9) {
				t.Fatalf("world %d: %s takes %g s, and %s is %g", world, pl.Layout(), q.StepS, b.proof.Term, b.proof.StepS)
			}
			for _, s := range b.groups {
				if f := s.fill(); f != nil {
					if stage := f.stopsAt(pl, q.StepS*(1+1e-9)); stage >= 0 {
						t.Fatalf("world %d, groups of %d: %v %s on %v, micro-batches of %d, takes %g s, and stage %d is ruled out",
							world, s.size, pl.Stages, pl.Replication, c.Levels, pl.MicroBatch, q.StepS, stage)
					}
				}
			}
		}
	}
	t.Logf("%d plans, %v", plans, ways)
	if ways[true] < 200 || ways[false] < 200 {
		t.Errorf("too few plans were simulated of each kind: %v", ways)
	}
}

// stopsAt returns the first stage of a plan that no move reaches within T, or -1 if a path reaches the end.
func (f *fillBound) stopsAt(pl *plan.Plan, T float64) int {
	f.goBack(T)
	for i := range f.least {
		f.least[i] = math.Inf(1)
	}
	for i := range f.out {
		f.out[i], f.tail[i] = exit{math.Inf(1), math.Inf(1)}, math.Inf(1)
	}
	clear(f.of(0, 0))
	at := map[int]bool{0: true}
	used := map[int]int{} // devices of all earlier stages, by group
	for i, st := range pl.Stages {
		in := map[int]int{}
		for _, d := range st.Devices {
			in[d/f.size]++
		}
		var groups []int
		for _, n := range in {
			groups = append(groups, n)
		}
		slices.SortFunc(groups, func(a, b int) int { return b - a })
		next := map[int]bool{}
		for place := range at {
			f.at = parent{layer: st.FirstLayer, place: place}
			for _, m := range f.all[place].next {
				if m.devices != len(st.Devices) || (f.all[m.to].at == 0) != (len(groups) > 1) ||
					!f.counted && !slices.Equal(f.sets[m.set], groups) ||
					m.way == moves && !entersAs(m, in, used, f.all[place].last) {
					continue
				}
				f.follow(st.FirstLayer, m, f.all[place], slices.Clone(f.of(st.FirstLayer, place)), T)
				if f.of(st.LastLayer+1, m.to)[0] < math.Inf(1) {
					next[m.to] = true
				}
			}
		}
		if len(next) == 0 {
			return i
		}
		at = next
		for g, n := range in {
			used[g] += n
		}
	}
	return -1
}

// entersAs reports whether m describes how a stage of a plan follows another stage, both in several groups. `in` has
// the stage's devices by group, and `used` those of all earlier stages. `last` is the number of devices of the stage
// before; 0 if it is unknown.
func entersAs(m move, in, used map[int]int, last int) bool {
	fresh, old, part := 0, 0, 0.0
	for g, n := range in {
		share := float64(n) / float64(m.devices)
		switch {
		case used[g] == 0:
			fresh = max(fresh, n)
		case last == 0 || used[g] >= last: // the stage before may have all its devices here
			old, share = old+n, 0
		default:
			old, share = old+n, share-float64(used[g])/float64(last)
		}
		part = max(part, share)
	}
	return m.fresh == fresh && m.apart == (old == 0) && math.Abs(m.part-part) < 1e-12
}

func randomWorld(r *rand.Rand) (*profile.Profile, *cluster.Cluster) {
	p := &profile.Profile{Version: 1, Model: "random", ModelID: "x"}
	n := 2 + r.IntN(6)
	recompute := r.IntN(3) == 0
	for i := range n {
		l := profile.Layer{Name: fmt.Sprint("l", i), From: []int{i - 1}, TiedTo: -1,
			ParameterBytes: int64(r.IntN(8<<20) * r.IntN(3)), UpdateTimes: profile.UpdateTimes{UpdateS: r.Float64() / 10}}
		fixed, each := r.Float64(), 0.1+r.Float64()
		out := int64(r.IntN(40))
		for m := 1; m <= 16; m *= 2 {
			forward := fixed*float64(r.IntN(2)) + each*float64(m)
			cost := profile.Cost{Device: "x", MicroBatch: m, ForwardS: forward, BackwardS: (0.5 + 2*r.Float64()) * forward,
				OutputBytes: out * int64(m), SavedBytes: int64(m)}
			if recompute {
				cost.BareForwardS, cost.AgainS = new(0.8*forward), new(0.9*(forward+cost.BackwardS))
			}
			l.Costs = append(l.Costs, cost)
		}
		p.Layers = append(p.Layers, l)
	}
	if r.IntN(3) == 0 {
		owner := r.IntN(n - 1)
		l := &p.Layers[owner+1+r.IntN(n-1-owner)]
		l.TiedTo, l.TiedBytes = owner, int64(r.IntN(100))
	}
	level := func(size int, slower float64) cluster.Level {
		return cluster.Level{Size: size, BandwidthBytesPerSecond: (2 + 30*r.Float64()) / slower, LatencyS: r.Float64() / 4,
			CollectiveBandwidthBytesPerSecond: float64(1<<20) * (1 + 9*r.Float64()) / slower, FullDuplex: r.IntN(4) > 0}
	}
	c := &cluster.Cluster{Name: "random", DeviceTypes: map[string]cluster.DeviceType{"x": {}}}
	sizes := [][]int{{4}, {6}, {8}, {2, 2}, {3, 2}, {2, 3}, {4, 2}, {2, 4}, {3, 3}}[r.IntN(9)]
	devices := 1
	for i, size := range sizes {
		l := level(size, 1+3*float64(i)*r.Float64())
		l.Uplinks = i > 0 && r.IntN(3) > 0
		c.Levels = append(c.Levels, l)
		devices *= size
	}
	for range devices {
		c.Devices = append(c.Devices, "x")
	}
	return p, c
}

func randomPlan(r *rand.Rand, layers, devices, batch int) *plan.Plan {
	m := 1 << r.IntN(5)
	pl := &plan.Plan{Version: plan.Version, Model: "random", ModelID: "x", Cluster: "random", Replication: "round_robin",
		MicroBatch: m, MicroBatches: batch / m, Schedule: "1f1b", Weights: "sync", Planner: "given"}
	if r.IntN(2) == 0 {
		pl.Replication = "split"
	}
	stages := 1 + r.IntN(min(layers, devices))
	cuts := r.Perm(layers - 1)[:stages-1]
	slices.Sort(cuts)
	free, depth := r.Perm(devices), batch/m
	if r.IntN(2) == 0 {
		slices.Sort(free)
	}
	for i := range stages {
		st := plan.Stage{LastLayer: layers - 1, Warmup: 1}
		if i > 0 {
			st.FirstLayer = cuts[i-1] + 1
		}
		if i+1 < stages {
			st.LastLayer = cuts[i]
		}
		n := 1 + r.IntN(max(1, (len(free)-(stages-1-i))/max(1, stages-i)+r.IntN(2)))
		n = min(n, len(free)-(stages-1-i))
		st.Devices = slices.Sorted(slices.Values(free[:n]))
		free = free[n:]
		depth = max(1, depth-r.IntN(2))
		if st.Warmup = depth; r.IntN(3) == 0 {
			st.Recompute = plan.KeepInput
		}
		pl.Stages = append(pl.Stages, st)
	}
	if stages == 1 {
		pl.Schedule, pl.Stages[0].Warmup = "dp", 1
	}
	return pl
}
