package tune

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/plan/bound"
	"github.com/millrace-ml/millrace/plan/plantest"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/programs"
	"github.com/millrace-ml/millrace/sim"
	"github.com/millrace-ml/millrace/tune/predict"
	"pgregory.net/rapid"
)

// world draws a small model, and a cluster of one or two device types and one or two levels.
func world(t *rapid.T, layers, devices int) (*profile.Profile, *cluster.Cluster) {
	types := []string{"fast", "slow"}[:rapid.IntRange(1, 2).Draw(t, "types")]
	p := &profile.Profile{Version: 1, Model: "random", ModelID: "x",
		OptimizerStates: rapid.IntRange(0, 2).Draw(t, "states")}
	for i := range layers {
		l := profile.Layer{
			Name: fmt.Sprint("l", i), From: []int{i - 1}, TiedTo: -1,
			ParameterBytes: rapid.Int64Range(0, 200).Draw(t, "params"),
			UpdateTimes:    profile.UpdateTimes{UpdateS: rapid.Float64Range(0, 1).Draw(t, "u")},
		}
		f, b := rapid.Float64Range(0.1, 3).Draw(t, "f"), rapid.Float64Range(0.1, 3).Draw(t, "b")
		out := rapid.Int64Range(1, 20).Draw(t, "out")
		halves, first := rapid.Bool().Draw(t, "halves"), rapid.Float64Range(0, 1).Draw(t, "first")
		measured, bare, again := rapid.Bool().Draw(t, "measured"), rapid.Float64Range(0.5, 1.1).Draw(t, "bare"),
			rapid.Float64Range(0.7, 1.1).Draw(t, "again")
		for k, name := range types {
			slower := 1 + float64(k)*rapid.Float64Range(0, 2).Draw(t, "slower")
			for _, m := range []int{1, 2, 4} {
				grow := slower * (0.3 + 0.7*float64(m))
				c := profile.Cost{Device: name, MicroBatch: m, ForwardS: f * grow, BackwardS: b * grow,
					OutputBytes: out * int64(m), SavedBytes: 5 * out * int64(m)}
				if i == 0 && measured {
					c.FeedS = rapid.Float64Range(0, 1).Draw(t, "feed")
				}
				if measured {
					c.BareForwardS, c.AgainS = new(bare*c.ForwardS), new(again*(c.ForwardS+c.BackwardS))
				}
				if halves {
					input, weights := first*c.BackwardS, (1-first)*c.BackwardS
					c.BackwardInputS, c.BackwardWeightS = &input, &weights
				}
				l.Costs = append(l.Costs, c)
			}
		}
		p.Layers = append(p.Layers, l)
	}
	c := cluster.Local("cpu", devices, 0, 0, rapid.Float64Range(0, 0.5).Draw(t, "latency"),
		rapid.Float64Range(5, 100).Draw(t, "bandwidth"), rapid.Float64Range(5, 500).Draw(t, "sum"))
	if devices == 4 && rapid.Bool().Draw(t, "levels") {
		outer := c.Levels[0]
		c.Levels[0].Size, outer.Size, outer.Name = 2, 2, "rack"
		outer.BandwidthBytesPerSecond /= 4
		c.Levels = append(c.Levels, outer)
	}
	c.DeviceTypes = map[string]cluster.DeviceType{"fast": {}, "slow": {}}
	for d := range c.Devices {
		c.Devices[d] = types[rapid.IntRange(0, len(types)-1).Draw(t, "type")]
	}
	return p, c
}

// everyShape yields every way to cut the layers into stages, to give each stage devices in any order and number, and to
// replicate it.
func everyShape(s *search, family string, yield func(*shape)) {
	n, W := len(s.Profile.Layers), len(s.Cluster.Devices)
	var orders [][]int
	permute(W, func(o []int) { orders = append(orders, slices.Clone(o)) })
	for S := 1; S <= min(n, W); S++ {
		plantest.EverySplit(n, S, func(cuts []int) {
			full := slices.Concat([]int{0}, cuts, []int{n})
			everyCount(W, S, func(counts []int) {
				for _, order := range orders {
					for _, size := range s.sizes {
						for _, split := range []bool{false, true} {
							name := family
							if S == 1 {
								name = "dp"
							}
							h := &shape{cuts: full, counts: slices.Clone(counts), order: order, again: make([]plan.Recompute, S),
								size: size, split: split, family: name}
							s.settleDepths(h)
							yield(h)
						}
					}
				}
			})
		})
	}
}

func permute(n int, yield func([]int)) {
	var walk func(have []int)
	walk = func(have []int) {
		if len(have) == n {
			yield(have)
		}
		for i := range n {
			if !slices.Contains(have, i) {
				walk(append(have[:len(have):len(have)], i))
			}
		}
	}
	walk(nil)
}

func everyCount(W, S int, yield func([]int)) {
	var walk func(have []int, left int)
	walk = func(have []int, left int) {
		if len(have) == S {
			yield(have)
			return
		}
		for r := 1; r <= left-(S-1-len(have)); r++ {
			walk(append(have[:len(have):len(have)], r), left-r)
		}
	}
	walk(nil, W)
}

// TestEstimateIsASimulation: the estimate of a step equals the simulated step, if workers have their own links and
// cores and replicas take turns.
func TestEstimateIsASimulation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, c := world(t, rapid.IntRange(1, 6).Draw(t, "layers"), rapid.IntRange(1, 4).Draw(t, "devices"))
		p.Transfer = &profile.Transfer{DispatchS: rapid.Float64Range(0, 0.5).Draw(t, "dispatch")}
		fix := Overrides{Boundary: format(t, p)}
		s, err := newSearch(Request{Profile: p, Cluster: c, Batch: 8, Fix: fix})
		if err != nil {
			t.Fatal(err)
		}
		var all []*shape
		everyShape(s, rapid.SampledFrom([]string{"1f1b", "pb", "so", "afab"}).Draw(t, "family"), func(h *shape) {
			if !h.split {
				all = append(all, h)
			}
		})
		for range 20 {
			h := all[rapid.IntRange(0, len(all)-1).Draw(t, "shape")]
			for i := range h.again {
				h.again[i] = rapid.SampledFrom([]plan.Recompute{plan.KeepAll, plan.KeepInput}).Draw(t, "recompute")
			}
			pl := s.plan(h)
			program, err := programs.Build(pl, p.TiedLayers(), false, 1)
			got, _ := s.estimator.estimate(h)
			if err != nil {
				continue // skip depths that unequal replicas cannot have
			}
			costs, err := sim.CostsOf(p, c, pl)
			if err != nil {
				t.Fatal(err)
			}
			_, sum, err := sim.Run(program, costs, sim.Options{Vary: costs.Noise.Vary()})
			if err != nil {
				t.Fatal(err)
			}
			if math.Abs(got-sum.StepS) > 1e-9*sum.StepS {
				t.Fatalf("%s on %v: estimated %v, simulated %v", describe(p, pl), h.devices(), got, sum.StepS)
			}
		}
	})
}

// TestNoShapeBeatsTheBoundOrAuto compares every shape of a small world with the bound and with the plan that Search
// finds. Shapes differ in cuts, number and order of devices, micro-batch size, and way of replicating. Their depths are
// those of a family. No shape is faster than the bound. In most cases Search examines every plan. Then no shape is
// faster than Search's plan; otherwise none is more than a tenth faster.
func TestNoShapeBeatsTheBoundOrAuto(t *testing.T) {
	t.Parallel()
	searched, cases := 0, 0
	checkSearches(t, 3, func(t *rapid.T) {
		layers := rapid.IntRange(1, 4).Draw(t, "layers")
		p, c := world(t, layers, rapid.IntRange(1, min(4, 6-layers)).Draw(t, "devices"))
		for i := range c.Levels { // one link for each group, for all of them, or for each pair
			links := rapid.IntRange(0, 2).Draw(t, "links")
			c.Levels[i].Uplinks, c.Levels[i].Shared = links == 1, links == 2
			c.Levels[i].FullDuplex = rapid.Bool().Draw(t, "duplex")
		}
		// Parameters of several megabytes fill buckets, whose sums overlap the backward. The bandwidth is multiplied by
		// the same factor, so a sum takes the same time as before.
		if rapid.Bool().Draw(t, "buckets") {
			for i := range p.Layers {
				p.Layers[i].ParameterBytes <<= 20
			}
			for i := range c.Levels {
				c.Levels[i].CollectiveBandwidthBytesPerSecond *= 1 << 20
			}
		}
		request := Request{Profile: p, Cluster: c, Batch: 4, Fix: Overrides{Boundary: format(t, p)}}
		s, err := newSearch(request)
		if err != nil {
			t.Fatal(err)
		}
		kind := bound.Kind{Workers: len(c.Devices), Batch: 4, Sizes: s.sizes}
		packed := p.Packed(request.Fix.Boundary)
		whole := bound.Step(packed, c, kind)
		kind.Halves = true
		halved := bound.Step(packed, c, kind)
		best, shown := math.Inf(1), ""
		family := rapid.SampledFrom([]string{"pb", "1f1b", "so", "afab", "zb-h1", "zb-h2", "zb-auto"}).Draw(t, "family")
		everyShape(s, family, func(h *shape) {
			if h.depth == nil {
				h.depth = make([]int, h.stages())
			}
			pl := s.plan(h)
			q, err := predict.Plan(p, c, pl, false)
			if err != nil {
				return
			}
			bound := halved
			if _, searched := s.families[h.family]; searched || h.stages() == 1 {
				bound = whole
			}
			if q.StepS < bound*(1-1e-9) {
				t.Fatalf("%s on %v, %s: takes %v, the bound is %v", describe(p, pl), h.devices(), pl.Replication, q.StepS, bound)
			}
			ascending := h.clone()
			ascending.order = slices.Concat(slices.Concat(h.devices()...), h.order[h.used():])
			if least := s.every.least(ascending); q.StepS < least*(1-1e-9) {
				t.Fatalf("%s on %v, %s: takes %v, and is passed over for %v", describe(p, pl), h.devices(), pl.Replication,
					q.StepS, least)
			}
			if q.StepS < best {
				best, shown = q.StepS, fmt.Sprint(describe(p, pl), h.devices(), pl.Replication)
			}
		})
		found, err := Search(context.Background(), request)
		if err != nil {
			t.Fatal(err)
		}
		cases++
		if !found.Exhaustive {
			searched++
		}
		got := found.Best.Predicted.StepS
		if got > best*(1+1e-9) && found.Exhaustive || got > 1.1*best {
			t.Fatalf("auto takes %v (%s), brute force found %v: %s", got, found.Best.Why[0], best, shown)
		}
	})
	t.Logf("auto looked at every plan in all but %d of %d cases", searched, cases)
	if searched*4 > cases {
		t.Errorf("auto did not look at every plan in %d of %d small cases", searched, cases)
	}
}

// TestTheFastDeviceTakesTheLargeStage: of two devices, the fast one gets three of four layers, although it is the
// second device.
func TestTheFastDeviceTakesTheLargeStage(t *testing.T) {
	t.Parallel()
	p := plantest.Chain(4, 1)
	for i := range p.Layers {
		slow := p.Layers[i].Costs[0]
		p.Layers[i].Costs[0].Device = "fast"
		slow.Device, slow.ForwardS, slow.BackwardS = "slow", 3*slow.ForwardS, 3*slow.BackwardS
		p.Layers[i].Costs = append(p.Layers[i].Costs, slow)
	}
	c := cluster.Local("cpu", 2, 0, 0, 0, 1e9, 0.01)
	c.DeviceTypes = map[string]cluster.DeviceType{"fast": {}, "slow": {}}
	c.Devices = []string{"slow", "fast"}
	r, err := Search(context.Background(), Request{Profile: p, Cluster: c, Batch: 16})
	if err != nil {
		t.Fatal(err)
	}
	for _, st := range r.Best.Stages {
		if n := st.LastLayer - st.FirstLayer + 1; c.Devices[st.Devices[0]] == "fast" && n != 3 ||
			c.Devices[st.Devices[0]] == "slow" && n != 1 {
			t.Errorf("%v: layers %d-%d on %s", r.Best.Why[0], st.FirstLayer, st.LastLayer, c.Devices[st.Devices[0]])
		}
	}
}

// TestALimitThatIsNamedIsMet: with the smallest limit that a MemoryError names, a search finds a plan within that
// limit. The test uses random worlds, some of them small enough for an exhaustive search.
func TestALimitThatIsNamedIsMet(t *testing.T) {
	t.Parallel()
	checkSearches(t, 8, func(t *rapid.T) {
		p, c := world(t, rapid.IntRange(2, 4).Draw(t, "layers"), rapid.IntRange(1, 4).Draw(t, "devices"))
		limited := func(bytes int64) Request {
			d := *c
			d.DeviceTypes = map[string]cluster.DeviceType{"fast": {MemoryBytes: bytes}, "slow": {MemoryBytes: bytes}}
			return Request{Profile: p, Cluster: &d, Batch: 4}
		}
		_, err := Search(context.Background(), limited(1))
		var memory *MemoryError
		if !errors.As(err, &memory) {
			t.Fatalf("one byte is enough? %v", err)
		}
		found, err := Search(context.Background(), limited(memory.SmallestBytes))
		if err != nil {
			t.Fatalf("%d bytes were said to do: %v", memory.SmallestBytes, err)
		}
		for i, n := range found.Best.Predicted.MemoryBytes {
			if n > memory.SmallestBytes {
				t.Fatalf("worker %d holds %d of %d", i, n, memory.SmallestBytes)
			}
		}
	})
}

func TestNoTimeStillGivesAPlan(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithDeadline(context.Background(), time.Now())
	defer cancel()
	c := cluster.Local("cpu", 6, 0, 0, 1e-6, 1e9, 1e9)
	hasty, err := Search(ctx, Request{Profile: plantest.Chain(14, 1, 2), Cluster: c, Batch: 16})
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	calm, err := Search(context.Background(), Request{Profile: plantest.Chain(14, 1, 2), Cluster: c, Batch: 16})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%v: %d simulated, %d estimated; %v s hastily, %v s with time, bound %v", time.Since(began), calm.Tried,
		calm.Estimated,
		hasty.Best.Predicted.StepS, calm.Best.Predicted.StepS, calm.LowestS)
	if calm.Best.Predicted.StepS > hasty.Best.Predicted.StepS {
		t.Errorf("more time made it worse: %v after %v", calm.Best.Predicted.StepS, hasty.Best.Predicted.StepS)
	}
}

// TestACancelledSearchHasItsCause: a cancelled search returns its cause as an error, with the best plan so far. So the
// plan cannot be mistaken for the result of a finished search.
func TestACancelledSearchHasItsCause(t *testing.T) {
	t.Parallel()
	why := errors.New("somebody pressed a key")
	ctx, cancel := context.WithCancelCause(context.Background())
	c := cluster.Local("cpu", 6, 0, 0, 1e-6, 1e9, 1e9)
	r := Request{Profile: plantest.Chain(14, 1, 2), Cluster: c, Batch: 16}
	whole, err := Search(ctx, r)
	if err != nil {
		t.Fatal(err)
	}
	cancel(why)
	found, err := Search(ctx, r)
	if !errors.Is(err, why) {
		t.Errorf("Search found %v (%v)", found, err)
	}
	if found == nil || found.Best == nil || found.Best.Predicted.StepS < whole.Best.Predicted.StepS {
		t.Errorf("the best so far is %+v", found)
	}
	if why2, err := whole.Explain(ctx); why2 != nil || !errors.Is(err, why) {
		t.Errorf("Explain says %v (%v)", why2, err)
	}
}

// TestRunnablePlansAreOnesThatRunExecutes: runnable plans have whole layers in the model's own order, and update at the
// flush. If a model normalises over micro-batches, its micro-batches are not split.
func TestRunnablePlansAreOnesThatRunExecutes(t *testing.T) {
	t.Parallel()
	for _, whole := range []bool{false, true} {
		r, err := Search(context.Background(), Request{Profile: plantest.Chain(9, 1, 2),
			Cluster: cluster.Local("cpu", 4, 0, 0, 0, 1e3, 1e3), Batch: 16, Runnable: true, Whole: whole})
		if err != nil {
			t.Fatal(err)
		}
		splits := 0
		for _, rival := range r.Rivals {
			if rival.Plan == nil || rival.Plan.Weights != string(schedule.Sync) || rival.Plan.Order != nil {
				t.Fatalf("%s cannot run", rival.Kind)
			}
			for _, st := range rival.Plan.Stages {
				if st.FirstFraction != 0 || st.LastFraction != 0 {
					t.Errorf("%s has fractions of layers", rival.Kind)
				}
				if len(st.Devices) > 1 && rival.Plan.Replication == "split" {
					splits++
				}
			}
		}
		if whole && splits > 0 {
			t.Errorf("%d stages split micro-batches that must stay whole", splits)
		}
	}
}

// TestFixedDataParallelism: if the fixed schedule has one stage, the search's moves do not cut it.
func TestFixedDataParallelism(t *testing.T) {
	r, err := Search(context.Background(), Request{Profile: plantest.Chain(9, 1, 2),
		Cluster: cluster.Local("cpu", 4, 2, 0, 0, 1e3, 1e3), Batch: 16, Fix: Overrides{Schedule: "dp"}, Runnable: true})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Best.Stages) != 1 || len(r.Best.Stages[0].Devices) < 2 {
		t.Errorf("%d stages, the first on %v", len(r.Best.Stages), r.Best.Stages[0].Devices)
	}
}
