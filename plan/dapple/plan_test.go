package dapple_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/internal/shared"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/plan/dapple/artifact"
	_ "github.com/millrace-ml/millrace/plan/planners" // that are asked by their names
	"github.com/millrace-ml/millrace/plan/plantest"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/profile/importer"
)

// dappleModels are the workloads of DAPPLE's Table 4 whose profiles are at hand, with the
// constants of the published examples.
var dappleModels = []struct {
	file, set  string
	pbs, batch int
	table4     [3]string // configurations A, B, C
}{
	{"dapple-vgg-19-pbs-32", "min_micro_batch=32 optimizer_memory_scaling=2 peak_activation_per_batch=70e6", 32, 2048, [3]string{"dp", "dp", "15:1"}},
	{"dapple-gnmt-16-pbs-64", "min_micro_batch=64 optimizer_memory_scaling=3 peak_activation_per_batch=100e6", 64, 1024, [3]string{"8:8", "8:8", "straight"}},
	{"dapple-bert-48-pbs-2", "min_micro_batch=1 optimizer_memory_scaling=3 peak_activation_per_batch=3473379328", 2, 64, [3]string{"8:8", "straight", "straight"}},
	{"dapple-xlnet-36-pbs-1", "min_micro_batch=1 optimizer_memory_scaling=3 peak_activation_per_batch=5914161792", 1, 128, [3]string{"8:8", "8:8", "straight"}},
	{"dapple-amoeba-36-pbs-1", "min_micro_batch=1 optimizer_memory_scaling=2 peak_activation_per_batch=752535456", 1, 128, [3]string{"8:8", "11:5", "11:5"}},
}

func imported(t testing.TB, file string, batch int) *profile.Profile {
	t.Helper()
	p, _, err := importer.Read(filepath.Join(shared.Dir(t), "data", "profiles", file+".txt"), importer.Options{Format: "dapple", Batch: batch})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

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

func shapeOf(p *plan.Plan) string {
	if len(p.Stages) == 1 {
		return "dp"
	}
	var n []string
	straight := true
	for _, s := range p.Stages {
		n = append(n, fmt.Sprint(len(s.Devices)))
		straight = straight && len(s.Devices) == 1
	}
	if straight {
		return "straight"
	}
	return strings.Join(n, ":")
}

func preset(t testing.TB, name string) *cluster.Cluster {
	t.Helper()
	c, err := cluster.Preset(name)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestDappleTable4 is every shape of DAPPLE's Table 4 but ResNet-50's, whose profile is not
// at hand, by the published formula.
func TestDappleTable4(t *testing.T) {
	for _, m := range dappleModels {
		p := imported(t, m.file, m.pbs)
		for i, name := range []string{"dapple-a", "dapple-b", "dapple-c"} {
			set := plantest.Set(m.set + " dp=yes")
			if name == "dapple-c" {
				set["ethernet_p2p"], set["ethernet_nccl"] = "1.25e9", "1.25e9"
			}
			got := planWith(t, plan.Request{Profile: p, Cluster: preset(t, name), Batch: m.batch, Formula: "artifact", Set: set})
			if shapeOf(got) != m.table4[i] {
				t.Errorf("%s on %s: %s, the paper has %s\n%s", m.file, name, shapeOf(got), m.table4[i], strings.Join(got.Why, "\n"))
			}
		}
	}
}

// TestDappleTable6 is the plans of DAPPLE's Table 6, in states; the table counts the input
// as layer 0, so its first layer of the second stage is one more.
func TestDappleTable6(t *testing.T) {
	for _, c := range []struct {
		file, set          string
		pbs, batch, second int
		first              int // devices of the first stage
	}{
		{"dapple-vgg-19-pbs-32", "min_micro_batch=32 optimizer_memory_scaling=2 peak_activation_per_batch=70e6", 32, 1024, 16, 14},
		{"dapple-amoeba-36-pbs-1", "min_micro_batch=1 optimizer_memory_scaling=2 peak_activation_per_batch=752535456", 1, 128, 30, 8},
		{"hpgo-bert_large", "min_micro_batch=1 optimizer_memory_scaling=3 peak_activation_per_batch=1736689664", 6, 128, 13, 8},
		{"hpgo-bert_large", "min_micro_batch=1 optimizer_memory_scaling=3 peak_activation_per_batch=1736689664 profile_batch=2", 2, 128, 13, 8},
		{"dapple-xlnet-36-pbs-1", "min_micro_batch=1 optimizer_memory_scaling=3 peak_activation_per_batch=5914161792", 1, 128, 22, 8},
	} {
		set := plantest.Set(c.set)
		micro := 1
		fmt.Sscan(set["min_micro_batch"], &micro)
		got, err := artifact.Search(context.Background(), imported(t, c.file, c.pbs), preset(t, "dapple-a"), c.batch, artifact.Constants{
			MinMicroBatch: micro, OptimizerMemoryScaling: 3, PeakActivationPerSample: 1e9, NVLink: 25e9, EthernetP2P: 1e9, EthernetNCCL: 3e9, GPUMemory: 16e9,
		})
		if err != nil {
			t.Fatal(err)
		}
		best := got.Candidates[got.Best]
		if len(best.Stages) != 2 || best.Stages[1].First != c.second || len(best.Stages[0].Devices) != c.first {
			t.Errorf("%s: %+v; the paper cuts at state %d with %d devices before it", c.file, best, c.second, c.first)
		}
	}
}

// TestDappleIsFast: imported profiles on 16 devices, and a long chain on a thousand, well
// under what a person waits for; millrace bench plan prints the times.
func TestDappleIsFast(t *testing.T) {
	for _, m := range dappleModels {
		imp := imported(t, m.file, m.pbs)
		for _, formula := range []string{"paper", "artifact"} {
			start := time.Now()
			p := planWith(t, plan.Request{Profile: imp, Cluster: preset(t, "dapple-a"), Batch: m.batch, Formula: formula})
			t.Logf("%s %s: %v, %s, M %d of %d\n%s", m.file, formula, time.Since(start), shapeOf(p), p.MicroBatches, p.MicroBatch, strings.Join(p.Why, "\n"))
		}
	}
}

// TestDappleOnAThousandDevices: a long chain in four levels, thinned and said so.
func TestDappleOnAThousandDevices(t *testing.T) {
	big := longChain(1000)
	levels := []cluster.Level{
		{Name: "board", Size: 4, BandwidthBytesPerSecond: 100e9, FullDuplex: true}, {Name: "server", Size: 4, BandwidthBytesPerSecond: 50e9, FullDuplex: true},
		{Name: "rack", Size: 8, BandwidthBytesPerSecond: 25e9, FullDuplex: true, Uplinks: true}, {Name: "row", Size: 8, BandwidthBytesPerSecond: 12e9, FullDuplex: true, Uplinks: true},
	}
	c := &cluster.Cluster{Name: "big", DeviceTypes: map[string]cluster.DeviceType{"x": {}}, Levels: levels}
	for range 1024 {
		c.Devices = append(c.Devices, "x")
	}
	start := time.Now()
	p := planWith(t, plan.Request{Profile: big, Cluster: c, Batch: 16384, MicroBatch: 1024})
	t.Logf("1,000 layers on 1,024 devices: %v, %s, %v", time.Since(start), shapeOf(p), p.Why)
	if took := time.Since(start); took > 20*time.Second {
		t.Errorf("1,000 layers on 1,024 devices took %v", took)
	}
}

func longChain(n int) *profile.Profile {
	p := &profile.Profile{Version: 1, Model: "long", OptimizerStates: 2}
	for k := range n {
		p.Layers = append(p.Layers, profile.Layer{
			Name: fmt.Sprint("layer", k), From: []int{k - 1}, TiedTo: -1, ParameterBytes: 10e6,
			Costs: []profile.Cost{{Device: "x", MicroBatch: 1024, ForwardS: 0.01 + 0.001*float64(k%7), BackwardS: 0.02, OutputBytes: 4e6, SavedBytes: 8e6}},
		})
	}
	return p
}
