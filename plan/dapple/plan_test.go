package dapple_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/plan"
	_ "github.com/millrace-ml/millrace/plan/planners" // registers the planners
	"github.com/millrace-ml/millrace/plan/plantest"
	"github.com/millrace-ml/millrace/profile"
)

func planWith(t testing.TB, r plan.Request) *plan.Plan {
	t.Helper()
	planner, err := plan.LookupPlanner("dapple")
	if err != nil {
		t.Fatal(err)
	}
	p, err := planner.Plan(context.Background(), r)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}
	return p
}

// TestIsFast logs the times to plan for imported profiles on 16 devices. `millrace-lab bench plan` measures them.
func TestIsFast(t *testing.T) {
	for _, m := range plantest.Table4 {
		imp := m.Read(t)
		for _, formula := range []string{"paper", "artifact"} {
			start := time.Now()
			p := planWith(t, plan.Request{Profile: imp, Cluster: plantest.Preset(t, "dapple-a"), Batch: m.Batch,
				Formula: formula})
			t.Logf("%s %s: %v, %s, M %d of %d\n%s", m.File, formula, time.Since(start), plantest.Shape(p),
				p.MicroBatches, p.MicroBatch, strings.Join(p.Why, "\n"))
		}
	}
}

// TestOnAThousandDevices plans for a long chain on four levels of 1,024 devices within 20 s.
func TestOnAThousandDevices(t *testing.T) {
	big := longChain(1000)
	levels := []cluster.Level{
		{Name: "board", Size: 4, BandwidthBytesPerSecond: 100e9, FullDuplex: true},
		{Name: "server", Size: 4, BandwidthBytesPerSecond: 50e9, FullDuplex: true},
		{Name: "rack", Size: 8, BandwidthBytesPerSecond: 25e9, FullDuplex: true, Uplinks: true},
		{Name: "row", Size: 8, BandwidthBytesPerSecond: 12e9, FullDuplex: true, Uplinks: true},
	}
	c := &cluster.Cluster{Name: "big", DeviceTypes: map[string]cluster.DeviceType{"x": {}}, Levels: levels}
	for range 1024 {
		c.Devices = append(c.Devices, "x")
	}
	start := time.Now()
	p := planWith(t, plan.Request{Profile: big, Cluster: c, Batch: 16384, MicroBatch: 1024})
	t.Logf("1,000 layers on 1,024 devices: %v, %s, %v", time.Since(start), plantest.Shape(p), p.Why)
	if took := time.Since(start); took > 20*time.Second {
		t.Errorf("1,000 layers on 1,024 devices took %v", took)
	}
}

func longChain(n int) *profile.Profile {
	p := &profile.Profile{Version: 1, Model: "long", OptimizerStates: 2}
	for k := range n {
		p.Layers = append(p.Layers, profile.Layer{
			Name: fmt.Sprint("layer", k), From: []int{k - 1}, TiedTo: -1, ParameterBytes: 10e6,
			Costs: []profile.Cost{{Device: "x", MicroBatch: 1024, ForwardS: 0.01 + 0.001*float64(k%7), BackwardS: 0.02,
				OutputBytes: 4e6, SavedBytes: 8e6}},
		})
	}
	return p
}
