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

// TestNoPlanBeatsTheBestOfEvery compares every with bestOfAll, which simulates all plans. Random models run on two
// servers of two devices, and on four equal devices. bestOfAll lists plans in another way: it tries every stage on
// every device, and every depth for every stage.
func TestNoPlanBeatsTheBestOfEvery(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 21))
	servers := &cluster.Cluster{Name: "servers", DeviceTypes: map[string]cluster.DeviceType{"x": {}},
		Devices: []string{"x", "x", "x", "x"}, Levels: []cluster.Level{
			{Name: "server", Size: 2, BandwidthBytesPerSecond: 40, LatencyS: 0.01, FullDuplex: true},
			{Name: "rack", Size: 2, BandwidthBytesPerSecond: 8, LatencyS: 0.05, FullDuplex: true, Uplinks: true}}}
	alike := *servers
	alike.Name, alike.Levels = "alike", []cluster.Level{{Name: "rack", Size: 4, BandwidthBytesPerSecond: 10,
		LatencyS: 0.02, FullDuplex: true}}
	pipelines := 0
	for i := range 10 {
		c := []*cluster.Cluster{servers, &alike}[i%2]
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

// With 32 samples, a pipeline of three stages has too many depths to try them all. Plans with untried depths may be
// faster than the best plan that was tried. So the floor is the lower bound of their steps if that is below the best
// plan's step. It is never above the best plan's step.
func TestTheFloorCountsDepthsThatAreNotTried(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 5))
	c := &cluster.Cluster{Name: "alike", DeviceTypes: map[string]cluster.DeviceType{"x": {}},
		Devices: []string{"x", "x", "x"}, Levels: []cluster.Level{{Name: "rack", Size: 3, BandwidthBytesPerSecond: 10,
			LatencyS: 0.02, FullDuplex: true}}}
	below := 0
	for range 5 {
		small := &Small{StepS: 100, BestS: 100, BoundS: 1e-9}
		if err := (&every{p: skewed(r), c: c, batch: 32, small: small}).look(context.Background()); err != nil {
			t.Fatal(err)
		}
		switch {
		case small.FloorS > small.BestS, small.AllDepths && small.FloorS < small.BestS && small.Simulated < mostSimulated:
			t.Errorf("%+v", *small)
		case !small.AllDepths && small.FloorS < small.BestS:
			below++
		}
	}
	if below == 0 {
		t.Error("no floor lies below the best plan")
	}
}

// skewed returns a model of three layers with random costs.
func skewed(r *rand.Rand) *profile.Profile {
	p := &profile.Profile{Version: 1, Model: "skewed", ModelID: "x"}
	for l := range 3 {
		one := profile.Layer{Name: fmt.Sprint("l", l), From: []int{l - 1}, TiedTo: -1, ParameterBytes: int64(r.IntN(40)),
			UpdateTimes: profile.UpdateTimes{UpdateS: r.Float64() / 20}}
		each, out := 0.2+r.Float64(), int64(1+r.IntN(8))
		for m := 1; m <= 4; m *= 2 {
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

// TestAShrunkenCaseKeepsProportions halves the number of devices. Then layers take half as long, a batch has half as
// many samples, and the model half as many parameters. Layers are merged in runs, and a run begins wherever a stage
// begins. Layers that are tied across runs stay tied.
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
	small, batch, err := merge(p, c, 5, []int{7, 12}, 0.5, 64)
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
	if len(small.Layers) != 5 || batch != 32 || tied != 1 || math.Abs(2*less-work) > 1e-9*work ||
		math.Abs(float64(2*fewer)-float64(parameters)) > 100 {
		t.Errorf("%d layers of %g s and %d bytes, a batch of %d, of %g s and %d", len(small.Layers), less, fewer, batch, work,
			parameters)
	}
	runs := runsOf(p, c.Devices[0], 5, []int{7, 12})
	if !slices.Contains(runs, 7) || !slices.Contains(runs, 12) || len(runs) != 6 {
		t.Errorf("runs begin with layers %v", runs)
	}
	for devices, want := range map[int][]int{8: {4, 2}, 16: {4, 4}} {
		f := few(c, devices)
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
