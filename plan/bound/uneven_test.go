package bound

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/tune/predict"
)

// TestTheBoundOfCostsThatFallWithRows simulates every split of random small pipelines over the devices. As in a
// measured profile, a layer may take more or less time if a replica has more rows. No argument may exclude a simulated
// plan, and the bound is at most the best plan's step.
func TestTheBoundOfCostsThatFallWithRows(t *testing.T) {
	const batch = 4
	r := rand.New(rand.NewPCG(21, 28))
	plans, met := 0, 0
	for world := range 200 {
		p, c := unevenWorld(r)
		kind := Kind{Workers: len(c.Devices), Batch: batch, Sizes: []int{batch, batch / 2}}
		best := math.Inf(1)
		for _, m := range kind.Sizes {
			for _, split := range []bool{false, true} {
				b := newBounder(p, c, kind, m, split)
				b.simple()
				b.refine(math.Inf(1))
				everyPlan(p, kind.Workers, m, batch/m, split, func(pl *plan.Plan) {
					q, _, err := predict.PlanIf(p, c, pl, false, func(float64) bool { return false })
					if err != nil {
						return // the depths are impossible for stages with unequal numbers of replicas
					}
					plans++
					if best = min(best, q.StepS); b.proof.StepS > q.StepS*(1+1e-9) {
						t.Errorf("world %d, micro-batches of %d: %v %s takes %g s, and %s is %g", world, m, pl.Stages,
							pl.Replication, q.StepS, b.proof.Term, b.proof.StepS)
					}
				})
			}
		}
		step := Step(p, c, kind)
		if step > best*(1+1e-9) {
			t.Errorf("world %d: the bound is %g, the best plan takes %g s", world, step, best)
		}
		if step > 0.99*best {
			met++
		}
	}
	t.Logf("%d plans; the bound is within 1 %% of the best in %d worlds", plans, met)
	if plans < 10000 || met < 20 {
		t.Errorf("%d plans were simulated; the bound is within 1 %% of the best in %d worlds", plans, met)
	}
}

// unevenWorld returns a few layers whose times are random for each number of rows, and a few devices. The devices have
// fast links, or are two pairs with a slower uplink each. The layers have no parameters.
func unevenWorld(r *rand.Rand) (*profile.Profile, *cluster.Cluster) {
	p := &profile.Profile{Version: 1, Model: "random", ModelID: "x"}
	for i := range 2 + r.IntN(3) {
		l := profile.Layer{Name: fmt.Sprint("l", i), From: []int{i - 1}, TiedTo: -1}
		for m := 1; m <= 4; m++ {
			l.Costs = append(l.Costs, profile.Cost{Device: "x", MicroBatch: m, ForwardS: 0.1 + r.Float64(),
				BackwardS: 0.1 + r.Float64(), OutputBytes: int64(m), SavedBytes: int64(m)})
		}
		p.Layers = append(p.Layers, l)
	}
	c := &cluster.Cluster{Name: "random", DeviceTypes: map[string]cluster.DeviceType{"x": {}}, Levels: []cluster.Level{
		{Size: 3 + r.IntN(2), BandwidthBytesPerSecond: 1e6, FullDuplex: true}}}
	devices := c.Levels[0].Size
	if r.IntN(2) == 0 {
		devices, c.Levels[0].Size = 4, 2
		c.Levels = append(c.Levels, cluster.Level{Size: 2, BandwidthBytesPerSecond: 2 + 8*r.Float64(), Uplinks: true,
			FullDuplex: true})
	}
	for range devices {
		c.Devices = append(c.Devices, "x")
	}
	return p, c
}

// everyPlan yields all 1F1B plans of a profile that use at most this many devices. Each stage has consecutive devices.
func everyPlan(p *profile.Profile, devices, m, micros int, split bool, yield func(pl *plan.Plan)) {
	layers := len(p.Layers)
	var extend func(stages []plan.Stage, layer, used int)
	extend = func(stages []plan.Stage, layer, used int) {
		if layer == layers {
			pl := &plan.Plan{Version: plan.Version, Model: p.Model, ModelID: p.ModelID, Cluster: "random",
				Replication: "round_robin", MicroBatch: m, MicroBatches: micros, Schedule: "1f1b", Weights: "sync",
				Planner: "given"}
			if split {
				pl.Replication = "split"
			}
			for i, st := range stages {
				st.Warmup = min(micros, len(stages)-i)
				pl.Stages = append(pl.Stages, st)
			}
			if len(stages) == 1 {
				pl.Schedule, pl.Stages[0].Warmup = "dp", 1
			}
			yield(pl)
			return
		}
		for last := layer; last < layers; last++ {
			st := plan.Stage{FirstLayer: layer, LastLayer: last}
			for d := used; d < devices; d++ {
				st.Devices = append(st.Devices[:len(st.Devices):len(st.Devices)], d)
				extend(append(stages[:len(stages):len(stages)], st), last+1, d+1)
			}
		}
	}
	extend(nil, 0, 0)
}
