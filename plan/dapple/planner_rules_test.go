package dapple_test

import (
	"math"
	"slices"
	"testing"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
)

// two returns two layers on two devices of 1 GB/s without latency. A micro-batch of one sample takes 10 ms forward
// and 20 ms backward. Each layer has the given bytes of output, parameters and saved data.
func two(output, parameters, saved, memory int64) plan.Request {
	p := &profile.Profile{Version: 1, Model: "two"}
	for k := range 2 {
		p.Layers = append(p.Layers, profile.Layer{
			Name: string(rune('a' + k)), From: []int{k - 1}, TiedTo: -1, ParameterBytes: parameters,
			Costs: []profile.Cost{{Device: "x", MicroBatch: 1, ForwardS: .01, BackwardS: .02, OutputBytes: output,
				SavedBytes: saved}},
		})
	}
	return plan.Request{Profile: p, Batch: 8, MicroBatch: 1, Set: map[string]string{"recompute": "no"},
		Cluster: &cluster.Cluster{Name: "pair", Devices: []string{"x", "x"},
			DeviceTypes: map[string]cluster.DeviceType{"x": {MemoryBytes: memory}},
			Levels:      []cluster.Level{{Name: "rack", Size: 2, BandwidthBytesPerSecond: 1e9, FullDuplex: true}}}}
}

// depths plans a request, and returns K_i, the depth, of each of the plan's two stages.
func depths(t *testing.T, r plan.Request) (k []int) {
	t.Helper()
	r.Set["dp"] = "no"
	p := planWith(t, r)
	if len(p.Stages) != 2 {
		t.Fatalf("%d stages", len(p.Stages))
	}
	for _, s := range p.Stages {
		k = append(k, s.Warmup)
	}
	return k
}

// Section 5.3 chooses the policy by a ratio: the time between stages divided by the time in a stage. A micro-batch has
// `a` bytes of activations and as many of gradients, which take 2a/1e9 s between stages. A stage computes the
// micro-batch in 30 ms. From 0.1 on the policy is P_B, with K = 2(S-i)-1 = 3, 1; below 0.1 it is P_A, with K = S-i = 2,
// 1.
func TestThePolicyFollowsTheRatio(t *testing.T) {
	for _, c := range []struct {
		output    int64
		threshold string
		want      []int
	}{
		{1_400_000, "0.1", []int{2, 1}}, // the ratio is 2.8 / 30 = 0.093
		{1_600_000, "0.1", []int{3, 1}}, // the ratio is 3.2 / 30 = 0.107
		{1_600_000, "0.11", []int{2, 1}},
		{1_400_000, "0.09", []int{3, 1}},
	} {
		r := two(c.output, 1000, 1, 1<<30)
		r.Set["acr_threshold"] = c.threshold
		if k := depths(t, r); !slices.Equal(k, c.want) {
			t.Errorf("%d bytes, threshold %s: K = %v; want %v", c.output, c.threshold, k, c.want)
		}
	}
}

// Section 5.3: K_i is at most D, the number of micro-batches that memory holds. A stage has 1000 bytes of weights and
// 1000 of gradients, and needs 4000 for each micro-batch. So 6000 bytes are enough for one micro-batch, 10000 for two,
// and 14000 for three, which is the number that P_B needs.
func TestMemoryBoundsTheDepth(t *testing.T) {
	for _, c := range []struct {
		memory int64
		want   []int
	}{{1 << 20, []int{3, 1}}, {14_500, []int{3, 1}}, {12_000, []int{2, 1}}, {7_000, []int{1, 1}}} {
		r := two(1_600_000, 1000, 4000, c.memory)
		for i := range r.Profile.Layers { // the test is not about transfers to the other device
			r.Profile.Layers[i].Costs[0].OutputBytes = 0
		}
		r.Set["policy"] = "pb"
		if k := depths(t, r); !slices.Equal(k, c.want) {
			t.Errorf("%d bytes of memory: K = %v; want %v", c.memory, k, c.want)
		}
	}
}

// Section 6.2: data parallelism competes with pipelines. Eight micro-batches of 60 ms on two devices take 240 ms, and
// the all-reduce of W bytes takes 2*(1/2)*W/1e9 s more. Two stages take (8 + 1)*30 = 270 ms. Without weights, data
// parallelism is faster. With 100 MB in each of two layers, its all-reduce takes 200 ms, and the pipeline is faster,
// because it has no all-reduce.
func TestDataParallelismIsReturnedWhereItWins(t *testing.T) {
	for _, c := range []struct {
		parameters int64
		stages     int
		takes      float64
	}{{0, 1, .24}, {100_000_000, 2, .27}} {
		r := two(0, c.parameters, 1, 1<<33)
		r.Set["overlap"] = "no"
		p := planWith(t, r)
		if len(p.Stages) != c.stages || math.Abs(p.Objective.Value-c.takes) > 1e-9 {
			t.Errorf("%d bytes of weights: %d stages, %v s; want %d, %v", c.parameters, len(p.Stages), p.Objective.Value,
				c.stages, c.takes)
		}
		r.Set["dp"] = "no"
		if p = planWith(t, r); len(p.Stages) != 2 {
			t.Errorf("without data parallelism: %d stages", len(p.Stages))
		}
	}
}

// If the limit is two stages, a plan has two stages, although three are faster. Layers of 10 + 20, 10 + 20 and 12 + 24
// ms (forward + backward) run on three devices with M = 8, by equations (1) to (3). With three stages the pivot is the
// last one. A step then takes (10 + 10 + 12) + 7*36 + (20 + 20 + 24) = 348 ms. The best plan of two stages replicates
// the last two layers on two devices, 11 + 22 ms each. They sum 100 MB of gradients in 2*(1/2)*100 MB / (1 GB/s) = 100
// ms. A step then takes (10 + 11) + 7*33 + (22 + 100) = 374 ms.
func TestMostStages(t *testing.T) {
	r := two(0, 50_000_000, 1, 1<<30)
	third := r.Profile.Layers[1]
	third.Costs = slices.Clone(third.Costs)
	third.Costs[0].ForwardS, third.Costs[0].BackwardS = .012, .024
	third.Name, third.From = "c", []int{1}
	r.Profile.Layers = append(r.Profile.Layers, third)
	for i := range r.Profile.Layers { // one sample for each of two replicas
		r.Profile.Layers[i].Costs[0].MicroBatch = 2
	}
	r.Batch, r.MicroBatch = 16, 2
	r.Cluster.Devices = []string{"x", "x", "x"}
	r.Cluster.Levels[0].Size = 3
	r.Set["dp"] = "no"
	r.Set["most_stages"] = "2"
	p := planWith(t, r)
	if len(p.Stages) != 2 || len(p.Stages[1].Devices) != 2 || math.Abs(p.Objective.Value-.374) > 1e-9 {
		t.Errorf("at most two: %d stages take %v s; want 2, 0.374 s", len(p.Stages), p.Objective.Value)
	}
	r.Set["most_stages"] = "0"
	free := planWith(t, r)
	if len(free.Stages) != 3 || math.Abs(free.Objective.Value-.348) > 1e-9 {
		t.Errorf("any number of stages: %d take %v s; want 3, 0.348 s", len(free.Stages), free.Objective.Value)
	}
}
