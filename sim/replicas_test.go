package sim

import (
	"math"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
)

// replicated returns the costs of one stage of two layers on n devices of a server, with 1000 bytes a second and no
// latency. The layers have 400 and 100 bytes of parameters. Backwards take 2 and 3 s, forwards 1 s each, and all
// updates together 4 s.
func replicated(t *testing.T, n int, change func(pl *plan.Plan, p *profile.Profile, d *cluster.DeviceType)) StageCost {
	t.Helper()
	p := &profile.Profile{Model: "m", Version: profile.Version, Layers: []profile.Layer{
		{Name: "block0.mlp", From: []int{-1}, TiedTo: -1, ParameterBytes: 400, UpdateTimes: profile.UpdateTimes{UpdateS: 3},
			Costs: []profile.Cost{{Device: "gpu", MicroBatch: 1, ForwardS: 1, BackwardS: 2}}},
		{Name: "head", From: []int{0}, TiedTo: -1, ParameterBytes: 100, UpdateTimes: profile.UpdateTimes{UpdateS: 1},
			Costs: []profile.Cost{{Device: "gpu", MicroBatch: 1, ForwardS: 1, BackwardS: 3}}}}}
	pl := &plan.Plan{Replication: "round_robin", MicroBatch: 1, MicroBatches: n, Stages: []plan.Stage{{LastLayer: 1}}}
	c := &cluster.Cluster{Name: "c", Levels: []cluster.Level{{Name: "server", Size: n, BandwidthBytesPerSecond: 1000,
		FullDuplex: true}}}
	for d := range n {
		pl.Stages[0].Devices, c.Devices = append(pl.Stages[0].Devices, d), append(c.Devices, "gpu")
	}
	d := cluster.DeviceType{}
	if change != nil {
		change(pl, p, &d)
	}
	c.DeviceTypes = map[string]cluster.DeviceType{"gpu": d}
	costs, err := CostsOf(p, c, pl)
	if err != nil {
		t.Fatal(err)
	}
	return costs.Stages[0][0]
}

// TestTrafficOfDividedReplicas checks what n replicas send in a step (Rajbhandari et al., ZeRO, SC 2020, section 7): 2
// (n-1)/n of the parameters without sharding and with zero1 and zero2, and 3 (n-1)/n with zero3. If layers compute
// nothing meanwhile, the step takes the time of that traffic.
func TestTrafficOfDividedReplicas(t *testing.T) {
	for _, n := range []int{2, 4, 8} {
		once := 500.0 * float64(n-1) / float64(n) / 1000
		for shard, want := range map[plan.Shard]float64{plan.ShardNothing: 2, plan.ZeRO1: 2, plan.ZeRO2: 2, plan.ZeRO3: 3} {
			k := replicated(t, n, func(pl *plan.Plan, p *profile.Profile, _ *cluster.DeviceType) {
				pl.Shard = shard
				for l := range p.Layers {
					p.Layers[l].Costs[0].ForwardS, p.Layers[l].Costs[0].BackwardS = 0, 0
				}
			})
			if got := k.ForwardS + k.BackwardS + k.AllReduceS + k.GatherS; math.Abs(got-want*once) > 1e-9 {
				t.Errorf("%v of %d: %v s, want %v", shard, n, got, want*once)
			}
			// With sharding, an update covers only a part of the states.
			update := 4.0
			if shard != plan.ShardNothing {
				update /= float64(n)
			}
			if math.Abs(k.UpdateS-update) > 1e-12 {
				t.Errorf("%v of %d: an update of %v s, want %v", shard, n, k.UpdateS, update)
			}
		}
	}
}

// TestCollectivesBesideUnits: a unit takes the longer of its computation and its collectives. By hand: two replicas are
// connected at 1000 bytes a second, and half of a unit's bytes cross the link. A gather or a sum of the block's 400
// bytes takes 0.2 s, and of the head's 100 bytes 0.05 s. With links of 100 bytes a second these are 2 s and 0.5 s. Then
// the block's forward waits 1 s for its weights. Its backward computes for 2 s and waits 2 s for weights and gradients,
// which take 4 s. If only six tenths of a collective can be hidden, the unit takes longer. Four tenths of the
// computation or of the collectives are added, whichever take less time.
func TestCollectivesBesideUnits(t *testing.T) {
	zero3 := func(overlap, bandwidth float64) StageCost {
		return replicated(t, 2, func(pl *plan.Plan, p *profile.Profile, d *cluster.DeviceType) {
			pl.Shard = plan.ZeRO3
			for l := range p.Layers {
				p.Layers[l].ParameterBytes = int64(float64(p.Layers[l].ParameterBytes) * 1000 / bandwidth)
			}
			if overlap < 1 {
				d.Kernels = &cluster.Kernels{Overlap: overlap}
			}
		})
	}
	for _, c := range []struct{ overlap, bandwidth, forward, backward float64 }{
		{1, 1000, 2, 5},
		{1, 100, 2 + 1, 5 + 2},
		{0.6, 1000, 2 + 0.4*0.25, 5 + 0.4*0.5},
		{0.6, 100, 2 + 1 + 0.4*(1+0.5), 5 + 2 + 0.4*(2+1)},
	} {
		k := zero3(c.overlap, c.bandwidth)
		if math.Abs(k.ForwardS-c.forward) > 1e-9 || math.Abs(k.BackwardS-c.backward) > 1e-9 ||
			math.Abs(k.InputS-c.backward) > 1e-9 {
			t.Errorf("%+v: forward %v, backward %v, its first half %v", c, k.ForwardS, k.BackwardS, k.InputS)
		}
	}
}

// TestWhenReplicasSum checks a step by hand, with F = 2, U = 4 and B = 5. The first 3 s of the backward are the head's.
// The all-reduce takes 4 s, of which 0.8 s, a fifth, are the head's. If sums come after the backward, a step takes 2 +
// 5 + 4 + 4. In buckets of 100 bytes the head is summed from 5 to 5.8 and the block from 7 to 10.2. In one bucket of
// 500, everything is summed from 7 on. If only half of a sum is hidden, half of the head's 0.8 s is added.
func TestWhenReplicasSum(t *testing.T) {
	program := replicas(t, "dp", 2, 2)
	for _, c := range []struct {
		gradients plan.Gradients
		overlap   float64
		want      float64
	}{
		{plan.GradientsBehind, 1, 15},
		{"bucket=100B", 1, 10.2 + 4},
		{"bucket=500B", 1, 11 + 4},
		{plan.GradientsOverlapped, 1, 15}, // the gradients do not fill a bucket of the runtime's size
		{"bucket=100B", 0.5, 10.2 + 0.4 + 4},
		{plan.GradientsBehind, 0.5, 15},
	} {
		k := replicated(t, 2, func(pl *plan.Plan, _ *profile.Profile, d *cluster.DeviceType) {
			pl.Gradients = c.gradients
			if c.overlap < 1 {
				d.Kernels = &cluster.Kernels{Overlap: c.overlap}
			}
		})
		k.AllReduceS = 4
		_, sum, err := Run(program, Costs{Stages: [][]StageCost{{k}}}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		exactly(t, sum.StepS, c.want, "gradients %v, %v of it hidden", c.gradients, c.overlap)
	}
}

// TestStepsOfDividedReplicas checks the time of a step for each way of sharding, by hand. Two replicas are connected at
// 1000 bytes a second. The block has 4000 bytes and the head 1000. A gather takes 2 s and 0.5 s, and so does a scatter.
// Forwards take 1 s each. Backwards take 3 s for the head, which is first, and 2 s for the block. An update takes 4 s,
// or 2 s if it is divided. The head's last backward ends at 5 and the block's at 7.
//
// Without sharding, the head is summed from 5 to 6 and the block from 7 to 11. With zero1 they are summed from 5 to 5.5
// and from 7 to 9. After the update, gathering all weights takes 2.5 s, which nothing hides. With zero2 the block's
// backward and its scatter take 2 s each, the head's 3 s and 0.5 s. That is 7 s for a micro-batch, and then the gather
// of the weights. With zero3 forwards take 1 s for the head and 2 s for the block, and backwards 3 s and 4 s: 10 s for
// a micro-batch. If only half is hidden, half of the overlapped time is added. In a step that is half of the head's sum
// of 1 s or 0.5 s. In a micro-batch it is half of 2.5 s with zero2, and half of 1.5 s and 3 s with zero3.
func TestStepsOfDividedReplicas(t *testing.T) {
	for _, c := range []struct {
		shard     plan.Shard
		micros    int // of each replica
		all, half float64
	}{
		{plan.ShardNothing, 1, 11 + 4, 11 + 0.5 + 4}, {plan.ShardNothing, 4, 36, 36.5},
		{plan.ZeRO1, 1, 9 + 2 + 2.5, 9 + 0.25 + 2 + 2.5}, {plan.ZeRO1, 4, 34.5, 34.75},
		{plan.ZeRO2, 1, 7 + 2 + 2.5, 8.25 + 2 + 2.5}, {plan.ZeRO2, 4, 28 + 4.5, 33 + 4.5},
		{plan.ZeRO3, 1, 10 + 2, 12.25 + 2}, {plan.ZeRO3, 4, 40 + 2, 49 + 2},
	} {
		for overlap, want := range map[float64]float64{1: c.all, 0.5: c.half} {
			k := replicated(t, 2, func(pl *plan.Plan, p *profile.Profile, d *cluster.DeviceType) {
				pl.Shard = c.shard
				for l := range p.Layers {
					p.Layers[l].ParameterBytes *= 10
				}
				if !c.shard.Gradients() {
					pl.Gradients = "bucket=1000B"
				}
				d.Kernels = &cluster.Kernels{Overlap: overlap}
			})
			_, sum, err := Run(replicas(t, "dp", 2, 2*c.micros), Costs{Stages: [][]StageCost{{k}}}, Options{})
			if err != nil {
				t.Fatal(err)
			}
			exactly(t, sum.StepS, want, "%v of %d micro-batches, %v of it hidden", c.shard, c.micros, overlap)
		}
	}
}

// TestBlocksAloneAreComputedAgain: with plan.Blocks only blocks are recomputed. The block's forward of 1 s runs again,
// the head's does not.
func TestBlocksAloneAreComputedAgain(t *testing.T) {
	for again, want := range map[plan.Recompute]float64{plan.KeepAll: 5, plan.Blocks: 6, plan.KeepInput: 7} {
		k := replicated(t, 1, func(pl *plan.Plan, _ *profile.Profile, _ *cluster.DeviceType) {
			pl.Stages[0].Recompute = again
		})
		exactly(t, k.BackwardS, want, "recompute %v: a backward", again)
		exactly(t, k.ForwardS, 2, "recompute %v: a forward", again)
	}
}

// TestScoresAreComputedAgain: recomputed attention scores add their time to the backward and are no longer saved. A
// profile without scores is refused.
func TestScoresAreComputedAgain(t *testing.T) {
	selective := func(scores profile.Scores) (kept, again StageCost) {
		change := func(how plan.Recompute) func(*plan.Plan, *profile.Profile, *cluster.DeviceType) {
			return func(pl *plan.Plan, p *profile.Profile, _ *cluster.DeviceType) {
				pl.Stages[0].Recompute = how
				p.Layers[0].Costs[0].SavedBytes, p.Layers[0].Costs[0].OutputBytes = 100, 10
				p.Layers[0].Costs[0].Scores = scores
			}
		}
		return replicated(t, 1, change(plan.KeepAll)), replicated(t, 1, change(plan.Selective))
	}
	kept, again := selective(profile.Scores{AgainS: 0.5, Bytes: 60})
	exactly(t, again.BackwardS, kept.BackwardS+0.5, "a backward")
	exactly(t, again.InputS, kept.InputS+0.5, "its first half")
	if kept.SavedBytes-again.SavedBytes != 60 || again.BackwardPeak-kept.BackwardPeak != 60 {
		t.Errorf("saved %d and %d, for a moment %d and %d", kept.SavedBytes, again.SavedBytes, kept.BackwardPeak,
			again.BackwardPeak)
	}
	p := &profile.Profile{Model: "gpt", Layers: []profile.Layer{{Costs: []profile.Cost{{}}}}}
	if _, err := p.Selective(); err == nil || !strings.Contains(err.Error(), "no layer of the profile of gpt says") {
		t.Errorf("without scores: %v", err)
	}
}
