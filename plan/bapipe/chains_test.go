package bapipe

import (
	"context"
	"math"
	"slices"
	"testing"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/plan/plantest"
)

// TestChainsSideBySide has four layers of 3 s on four devices, and 8 micro-batches. One chain takes (8+4-1)*3 = 33 s.
// Two chains of two stages, with 4 micro-batches each, take (4+2-1)*6 = 30 s, and then sum each stage's gradients over
// both chains. A stage of two layers has 100 bytes of gradients. Their sum over two devices takes 2 s on links of 50
// B/s. On links of 20 B/s it takes 5 s, so that one chain is faster.
func TestChainsSideBySide(t *testing.T) {
	for _, c := range []struct {
		collective float64
		set        string
		objective  float64
		devices    [][]int
	}{
		{50, "auto", 32, [][]int{{0, 2}, {1, 3}}},
		{20, "auto", 33, [][]int{{0}, {1}, {2}, {3}}},
		{20, "2", 35, [][]int{{0, 2}, {1, 3}}},
		{50, "1", 33, [][]int{{0}, {1}, {2}, {3}}},
	} {
		r := plantest.EvenChain(4, 4, 1e12)
		r.Cluster.Levels[0].CollectiveBandwidthBytesPerSecond = c.collective
		for i := range r.Profile.Layers {
			r.Profile.Layers[i].ParameterBytes = 50
		}
		r.Set = map[string]string{"dp": "off", "chains": c.set}
		p, err := find(context.Background(), r)
		if err != nil {
			t.Fatal(err)
		}
		var devices [][]int
		for i, st := range p.Stages {
			devices = append(devices, st.Devices)
			if want := len(p.Stages) - i; p.Schedule == "1f1b" && st.Warmup != want {
				t.Errorf("chains %s: stage %d warms up with %d, want %d", c.set, i, st.Warmup, want)
			}
		}
		if math.Abs(p.Objective.Value-c.objective) > 1e-6 || !slices.EqualFunc(devices, c.devices, slices.Equal) {
			t.Errorf("chains %s, collectives of %v B/s: %v s on %v, want %v on %v", c.set, c.collective,
				p.Objective.Value, devices, c.objective, c.devices)
		}
		if err := p.Validate(); err != nil || p.MicroBatches != 8 || p.Replication != "round_robin" {
			t.Errorf("chains %s: %v, %d micro-batches, %s", c.set, err, p.MicroBatches, p.Replication)
		}
	}
}

// TestChainsOfMixedDevices: two fast and two slow devices form two chains. Each chain has one device of each type, and
// the types have the same order in both. If there are one device of one type and three of the other, the three equal
// devices form three chains of one stage.
func TestChainsOfMixedDevices(t *testing.T) {
	r := plantest.EvenChain(3, 4, 1e12)
	r.Cluster.Levels[0].CollectiveBandwidthBytesPerSecond = 1e12
	for i := range r.Profile.Layers {
		c := r.Profile.Layers[i].Costs[0]
		c.Device, c.ForwardS, c.BackwardS = "e", c.ForwardS/2, c.BackwardS/2
		r.Profile.Layers[i].Costs = append(r.Profile.Layers[i].Costs, c)
	}
	r.Cluster.DeviceTypes["e"] = cluster.DeviceType{}
	r.Cluster.Devices = []string{"d", "e", "e", "d"}
	r.Set = map[string]string{"dp": "off", "chains": "2", "fractions": "off"}
	p, err := find(context.Background(), r)
	if err != nil {
		t.Fatal(err)
	}
	// Each chain has one layer of 3 s on d and two layers of 1.5 s on e. So its pace is 3 s, with 4 micro-batches. A
	// chain may begin with either type.
	if len(p.Stages) != 2 || math.Abs(p.Objective.Value-5*3) > 1e-6 {
		t.Fatalf("%v s in %+v, want 15", p.Objective.Value, p.Stages)
	}
	for _, st := range p.Stages {
		if len(st.Devices) != 2 || r.Cluster.Devices[st.Devices[0]] != r.Cluster.Devices[st.Devices[1]] {
			t.Errorf("a stage on %v of %v", st.Devices, r.Cluster.Devices)
		}
	}
	r.Cluster.Devices = []string{"d", "e", "e", "e"}
	r.Set["chains"] = "3"
	if p, err = find(context.Background(), r); err != nil || len(p.Stages) != 1 {
		t.Errorf("three chains of three e's: %+v, %v", p, err)
	}
}

// TestDataParallelismWhereItIsBest: BaPipe's Table III uses data parallelism for ResNet-50, "as the communication
// consumption for activation between GPUs in the pipeline is larger than the amount of communication for weights
// gradient" (§4.2.1). Here four layers of 3 s run on two devices, with 8 micro-batches. Data parallelism takes 4*12 s,
// and 4 s more to sum 400 bytes of gradients at 100 B/s. A pipeline of two stages of 6 s takes (8+2-1)*6 = 54 s if
// transfers take no time. If features of 10 B cross at 1 B/s, it takes 54 + (2+8-2-ceil(7/2))*2*10 = 134 s by 1F1B-SNO.
func TestDataParallelismWhereItIsBest(t *testing.T) {
	for _, c := range []struct {
		link, collective float64
		set              string
		schedule         string
		objective        float64
	}{
		{1, 100, "on", "dp", 52},
		{1, 100, "off", "1f1b", 134},
		{1e12, 100, "on", "dp", 52},
		{1e12, 10, "on", "so", 54}, // data parallelism would take 48 s, and 40 s for the sum
	} {
		r := plantest.EvenChain(4, 2, c.link)
		r.Cluster.Levels[0].CollectiveBandwidthBytesPerSecond = c.collective
		r.Set = map[string]string{"dp": c.set, "fractions": "off"}
		p, err := find(context.Background(), r)
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(p.Objective.Value-c.objective) > 1e-6 || p.Schedule != c.schedule {
			t.Errorf("link %v, collectives %v, dp %s: %s takes %v s; want %s and %v", c.link, c.collective, c.set, p.Schedule,
				p.Objective.Value, c.schedule, c.objective)
		}
		if p.Schedule == "dp" && (len(p.Stages) != 1 || len(p.Stages[0].Devices) != 2) {
			t.Errorf("data parallelism on %+v", p.Stages)
		}
	}
}
