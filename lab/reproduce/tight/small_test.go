package tight

import (
	"context"
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

// TestNoPlanBeatsTheBestOfEvery compares the best plan of `every` with the best of bestOfAll, which simulates all
// plans. Random models run on two servers of two devices, and on four equal devices. bestOfAll lists plans in another
// way: it tries every stage on every device, and every depth for every stage.
func TestNoPlanBeatsTheBestOfEvery(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 21))
	pipelines := 0
	for i := range 10 {
		c := []*cluster.Cluster{servers(), oneRack(4)}[i%2]
		p := skewed(r)
		best, plans := bestOfAll(t, p, c, 4)
		small := &Small{StepS: 2 * best, BestS: 2 * best, BoundS: 1e-9}
		if err := (&every{p: p, c: c, batch: 4, small: small}).look(context.Background()); err != nil {
			t.Fatal(err)
		}
		if math.Abs(small.BestS/best-1) > 1e-9 || !small.Whole || !small.AllDepths || small.FloorS != small.BestS {
			t.Errorf("%d on %s: the best of %d plans takes %g s; %+v", i, c.Name, plans, best, *small)
		}
		if small.Simulated >= plans {
			t.Errorf("%d plans of %d are simulated", small.Simulated, plans)
		}
		if small.Best != "data parallelism on 4 workers" {
			pipelines++
		}
	}
	if pipelines < 3 {
		t.Errorf("%d of 10 models are fastest as pipelines", pipelines)
	}
}

// TestTheFloorCountsWhatIsNotTried: a search that ends early sets a floor. No plan that a whole search finds is faster
// than this floor. The floor is never above the best step that its own search found, and for some models it is below
// that step.
func TestTheFloorCountsWhatIsNotTried(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 5))
	below := 0
	for range 8 {
		p := skewed(r)
		look := func(most int) *Small {
			small := &Small{StepS: 100, BestS: 100, BoundS: 1e-9}
			e := &every{p: p, c: oneRack(3), batch: 16, small: small, limit: most}
			if err := e.look(context.Background()); err != nil {
				t.Fatal(err)
			}
			return small
		}
		whole, part := look(0), look(40)
		switch {
		case !whole.AllDepths, whole.FloorS != whole.BestS, part.AllDepths, part.Simulated >= whole.Simulated,
			part.FloorS > whole.BestS*(1+plan.SameTime), part.FloorS > part.BestS:
			t.Errorf("in part %+v, as a whole %+v", *part, *whole)
		case part.FloorS < part.BestS:
			below++
		}
	}
	if below == 0 {
		t.Error("no floor lies below the best plan")
	}
}

// TestASearchEndsWhenTheVerdictIsKnown: a search limited by `enough` finds the same verdict as a whole search, and
// simulates no more plans. In each case here, the best step lies between the bound and the step of auto's plan.
func TestASearchEndsWhenTheVerdictIsKnown(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 2))
	seen := map[string]int{}
	for i := range 12 {
		p := skewed(r)
		look := func(bound, step float64, enough bool) *Small {
			small := &Small{StepS: step, BestS: step, BoundS: bound}
			e := &every{p: p, c: oneRack(4), batch: 8, small: small}
			if enough {
				e.enough = small.enough()
			}
			if err := e.look(context.Background()); err != nil {
				t.Fatal(err)
			}
			return small
		}
		best := look(1e-9, 100, false).BestS
		bound, step := best*[]float64{.7, .99, .8}[i%3], best*[]float64{1.01, 1.5, 1.25}[i%3]
		whole, soon := look(bound, step, false), look(bound, step, true)
		seen[soon.verdict()]++
		if whole.verdict() != soon.verdict() || soon.Simulated > whole.Simulated || soon.FloorS > best*(1+plan.SameTime) {
			t.Errorf("%s, of a whole search %s: %+v, %+v", soon.verdict(), whole.verdict(), *soon, *whole)
		}
	}
	if seen[Plan] == 0 || seen[Proof] == 0 || seen[Both] == 0 {
		t.Errorf("verdicts %v", seen)
	}
}

// TestTimesAreNeverAboveTheSimulator draws layouts and depths of random models. For ranges that contain the depths, the
// type `times` returns at most the simulated step. For a wide range it returns at most as much as for a narrower range.
// In pipelines of single devices that share no link, it returns exactly the simulated step if each range contains only
// the depth itself.
func TestTimesAreNeverAboveTheSimulator(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 9))
	exact, plans := 0, 0
	for range 40 {
		c := []*cluster.Cluster{servers(), oneRack(4)}[r.IntN(2)]
		e := &every{p: skewed(r), c: c, batch: 8, small: &Small{StepS: 100, BestS: 100, BoundS: 1e-9}}
		e.prepare()
		for _, m := range []int{1, 2, 4} {
			for _, split := range []bool{false, true} {
				e.from(layout{m: m, split: split}, taken{}, 0)
			}
		}
		for range 20 {
			l := e.open[r.IntN(len(e.open))]
			S, M := len(l.stages), e.batch/l.m
			if S == 1 {
				continue
			}
			depth, lo, hi := make([]int, S), make([]int, S), make([]int, S)
			for i := range depth {
				most := M
				if i > 0 {
					most = depth[i-1]
				}
				depth[i] = 1 + r.IntN(most)
				lo[i], hi[i] = 1+r.IntN(depth[i]), depth[i]+r.IntN(M-depth[i]+1)
			}
			e.small.BestS = 100
			stepS, err := e.try(l, depth, "1f1b")
			if err != nil {
				t.Fatal(err)
			}
			if math.IsInf(stepS, 1) {
				continue
			}
			plans++
			one, wide := e.timesOf(l).least(depth, depth, 100), e.timesOf(l).least(lo, hi, 100)
			if one > stepS*(1+1e-9) || wide > one*(1+1e-9) || l.least > stepS*(1+1e-9) {
				t.Fatalf("%+v with depths %v takes %g s; times give %g, and %g within %v to %v; least is %g", l, depth, stepS, one,
					wide, lo, hi, l.least)
			}
			if single := !slices.ContainsFunc(l.stages, func(h held) bool { return h.devices() > 1 }); single && e.groups == 1 {
				if math.Abs(one/stepS-1) > 1e-9 {
					t.Errorf("%+v with depths %v takes %g s; times give %g", l, depth, stepS, one)
				}
				exact++
			}
		}
	}
	if plans < 200 || exact < 20 {
		t.Errorf("%d plans, %d of them of single devices", plans, exact)
	}
}

// servers returns two servers of two devices, and oneRack a number of equal devices.
func servers() *cluster.Cluster {
	return &cluster.Cluster{Name: "servers", DeviceTypes: map[string]cluster.DeviceType{"x": {}},
		Devices: []string{"x", "x", "x", "x"}, Levels: []cluster.Level{
			{Name: "server", Size: 2, BandwidthBytesPerSecond: 40, LatencyS: 0.01, FullDuplex: true},
			{Name: "rack", Size: 2, BandwidthBytesPerSecond: 8, LatencyS: 0.05, FullDuplex: true, Uplinks: true}}}
}

func oneRack(devices int) *cluster.Cluster {
	return &cluster.Cluster{Name: "alike", DeviceTypes: map[string]cluster.DeviceType{"x": {}},
		Devices: slices.Repeat([]string{"x"}, devices), Levels: []cluster.Level{{Name: "rack", Size: devices,
			BandwidthBytesPerSecond: 10, LatencyS: 0.02, FullDuplex: true}}}
}

// skewed returns a model of three layers with random costs.
func skewed(r *rand.Rand) *profile.Profile {
	p := &profile.Profile{Version: 1, Model: "skewed", ModelID: "x"}
	for l := range 3 {
		one := profile.Layer{Name: fmt.Sprint("l", l), From: []int{l - 1}, TiedTo: -1, ParameterBytes: int64(r.IntN(40)),
			UpdateTimes: profile.UpdateTimes{UpdateS: r.Float64() / 20}}
		each, out := 0.2+r.Float64(), int64(1+r.IntN(8))
		for m := 1; m <= 16; m *= 2 {
			one.Costs = append(one.Costs, profile.Cost{Device: "x", MicroBatch: m, ForwardS: each * float64(m),
				BackwardS: 2 * each * float64(m), OutputBytes: out * int64(m)})
		}
		p.Layers = append(p.Layers, one)
	}
	return p
}

// bestOfAll returns the fastest step of all plans, in seconds, and the number of plans.
func bestOfAll(t *testing.T, p *profile.Profile, c *cluster.Cluster, batch int) (best float64, plans int) {
	t.Helper()
	best = math.Inf(1)
	n, W := len(p.Layers), len(c.Devices)
	holder, depth := make([]int, W), make([]int, n)
	for cuts := range 1 << (n - 1) {
		first := []int{0}
		for l := 1; l < n; l++ {
			if cuts>>(l-1)&1 == 1 {
				first = append(first, l)
			}
		}
		S := len(first)
		for code := range int(math.Pow(float64(S+1), float64(W))) {
			for d := range holder {
				holder[d] = code%(S+1) - 1
				code /= S + 1
			}
			for m := 1; m <= batch; m *= 2 {
				for depths := range int(math.Pow(float64(batch/m), float64(S))) {
					for i := range S {
						depth[i] = 1 + depths%(batch/m)
						depths /= batch / m
					}
					for _, way := range []string{"round_robin", "split"} {
						pl := &plan.Plan{Version: plan.Version, Model: p.Model, ModelID: p.ModelID, Cluster: c.Name, Replication: way,
							MicroBatch: m, MicroBatches: batch / m, Schedule: "1f1b", Weights: "sync", Planner: "given"}
						if S == 1 {
							pl.Schedule = "dp"
						}
						for i, l := range first {
							st := plan.Stage{FirstLayer: l, LastLayer: n - 1, Warmup: depth[i]}
							if i+1 < S {
								st.LastLayer = first[i+1] - 1
							}
							for d, s := range holder {
								if s == i {
									st.Devices = append(st.Devices, d)
								}
							}
							pl.Stages = append(pl.Stages, st)
						}
						if slices.ContainsFunc(pl.Stages, func(st plan.Stage) bool { return st.Devices == nil }) {
							continue
						}
						q, _, err := predict.PlanIf(p, c, pl, false, func(float64) bool { return false })
						if err == nil {
							plans++
							best = min(best, q.StepS)
						}
					}
				}
			}
		}
	}
	return best, plans
}

// TestAShrunkenCaseKeepsProportions halves the number of devices and of samples. In the small case, layers take half as
// long and have half as many parameters. Layers are merged in runs, and a run begins wherever a stage begins. Layers
// that are tied across runs stay tied.
func TestAShrunkenCaseKeepsProportions(t *testing.T) {
	c, err := cluster.Preset("pipedream-a")
	if err != nil {
		t.Fatal(err)
	}
	p, err := roofline("vgg16", c, 64)
	if err != nil {
		t.Fatal(err)
	}
	p.Layers[20].TiedTo, p.Layers[20].TiedBytes = 2, 4000
	small, err := merge(p, c.Devices[0], runsOf(p, c.Devices[0], 5, []int{7, 12}), 0.5, 0.5, 32)
	if err != nil {
		t.Fatal(err)
	}
	var parameters, fewer int64
	work, less := 0.0, 0.0
	for _, l := range p.Layers {
		parameters += l.ParameterBytes
		work += l.Costs[0].ForwardS + l.Costs[0].BackwardS
	}
	tied := 0
	for _, l := range small.Layers {
		fewer += l.ParameterBytes
		less += l.Costs[0].ForwardS + l.Costs[0].BackwardS
		if l.TiedTo >= 0 && l.TiedBytes == 2000 {
			tied++
		}
	}
	if len(small.Layers) != 5 || tied != 1 || math.Abs(2*less-work) > 1e-9*work ||
		math.Abs(float64(2*fewer)-float64(parameters)) > 100 {
		t.Errorf("%d layers of %g s and %d bytes, of %g s and %d", len(small.Layers), less, fewer, work,
			parameters)
	}
	runs := runsOf(p, c.Devices[0], 5, []int{7, 12})
	if !slices.Contains(runs, 7) || !slices.Contains(runs, 12) || len(runs) != 6 {
		t.Errorf("runs begin with layers %v", runs)
	}
	for devices, want := range map[int][]int{8: {4, 2}, 16: {4, 4}} {
		f := few(c, devices, devices/4)
		if got := []int{f.Levels[0].Size, f.Levels[1].Size}; !slices.Equal(got, want) || len(f.Devices) != devices {
			t.Errorf("%d devices are groups of %v, want %v", devices, got, want)
		}
	}
}

// TestJudged checks the verdict, which depends on where the best plan is between the bound and auto's plan, on a
// logarithmic scale. The verdict is undecided if the gap is too small, or if untried plans could change it.
func TestJudged(t *testing.T) {
	for _, c := range []struct {
		bound, floor, best, auto, gap float64
		whole                         bool
		want                          string
	}{
		{1, 1.0, 1.0, 1.2, 0.2, true, Plan}, {1, 1.2, 1.2, 1.2, 0.2, true, Proof}, {1, 1.1, 1.1, 1.2, 0.2, true, Both},
		{1, 1.0, 1.0, 1.05, 0.2, true, Undecided}, {1, 1.2, 1.2, 1.2, 0.2, false, Undecided},
		{1, 1.15, 1.2, 1.2, 0.2, true, Proof}, {1, 1.05, 1.2, 1.2, 0.2, true, Undecided},
		{1, 1.0, 1.05, 1.2, 0.2, false, Plan},
	} {
		s := &Small{BoundS: c.bound, FloorS: c.floor, BestS: c.best, StepS: c.auto, Gap: c.auto/c.bound - 1, Whole: c.whole}
		if s.judge(c.gap); s.Loose != c.want || (s.Why != "") != (c.want == Undecided) {
			t.Errorf("%+v: %+v", c, *s)
		}
	}
}

// TestEveryCutIsListedOnce checks that 5 layers are cut into 3 stages in 6 ways, at 2 of 4 places.
func TestEveryCutIsListedOnce(t *testing.T) {
	seen := map[string]bool{}
	if err := everyCut(5, 3, func(first []int) error {
		if first[0] != 0 || !slices.IsSorted(first) || first[2] > 4 {
			t.Errorf("stages begin with layers %v", first)
		}
		seen[fmt.Sprint(first)] = true
		return nil
	}); err != nil || len(seen) != 6 {
		t.Errorf("%v, %v", seen, err)
	}
}
