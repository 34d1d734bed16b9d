package artifact_test

import (
	"math"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/plan/dapple/artifact"
	"github.com/millrace-ml/millrace/plan/plantest"
	"github.com/millrace-ml/millrace/profile"
)

// workloads lists the models of DAPPLE's Table 4, with the constants of the published examples. `shapes` holds the
// table's plans for configurations A, B and C.
var workloads = []struct {
	plantest.Published
	told   artifact.Constants
	shapes [3]string
}{
	{plantest.Table4[0], artifact.Constants{MinMicroBatch: 32, OptimizerMemoryScaling: 2, PeakActivationPerSample: 70e6},
		[3]string{"dp", "dp", "15:1"}},
	{plantest.Table4[1], artifact.Constants{MinMicroBatch: 64, OptimizerMemoryScaling: 3, PeakActivationPerSample: 100e6},
		[3]string{"8:8", "8:8", "straight"}},
	{plantest.Table4[2], artifact.Constants{MinMicroBatch: 1, OptimizerMemoryScaling: 3,
		PeakActivationPerSample: 3473379328}, [3]string{"8:8", "straight", "straight"}},
	{plantest.Table4[3], artifact.Constants{MinMicroBatch: 1, OptimizerMemoryScaling: 3,
		PeakActivationPerSample: 5914161792}, [3]string{"8:8", "8:8", "straight"}},
	{plantest.Table4[4], artifact.Constants{MinMicroBatch: 1, OptimizerMemoryScaling: 2,
		PeakActivationPerSample: 752535456}, [3]string{"8:8", "11:5", "11:5"}},
}

// linked returns k with the published code's links and memory. Configuration C's links come from the published
// analysis script.
func linked(k artifact.Constants, configuration string) artifact.Constants {
	k.NVLink, k.EthernetP2P, k.EthernetNCCL, k.GPUMemory = 25e9, 1e9, 3e9, 16e9
	if configuration == "dapple-c" {
		k.EthernetP2P, k.EthernetNCCL = 1.25e9, 1.25e9
	}
	return k
}

// TestTable4 checks every plan of DAPPLE's Table 4 except ResNet-50's, whose profile we do not have.
func TestTable4(t *testing.T) {
	for _, m := range workloads {
		p := m.Read(t)
		for i, name := range []string{"dapple-a", "dapple-b", "dapple-c"} {
			got, err := artifact.Plan(t.Context(), plan.Request{Profile: p, Cluster: plantest.Preset(t, name),
				Batch: m.Batch}, linked(m.told, name), true)
			if err != nil {
				t.Fatal(err)
			}
			if err := got.Validate(); err != nil {
				t.Fatal(err)
			}
			if plantest.Shape(got) != m.shapes[i] {
				t.Errorf("%s on %s: %s, the paper has %s\n%s", m.File, name, plantest.Shape(got), m.shapes[i],
					strings.Join(got.Why, "\n"))
			}
		}
	}
}

// TestTable6 checks the plans of DAPPLE's Table 6, with cuts as numbers of states. The table counts the input as
// layer 0, which adds one to the number of the second stage's first layer.
func TestTable6(t *testing.T) {
	for _, c := range []struct {
		file               string
		micro              int
		pbs, batch, second int
		first              int // devices of the first stage
	}{
		{"dapple-vgg-19-pbs-32", 32, 32, 1024, 16, 14},
		{"dapple-amoeba-36-pbs-1", 1, 1, 128, 30, 8},
		{"hpgo-bert_large", 1, 6, 128, 13, 8},
		{"hpgo-bert_large", 1, 2, 128, 13, 8},
		{"dapple-xlnet-36-pbs-1", 1, 1, 128, 22, 8},
	} {
		told := artifact.Constants{MinMicroBatch: c.micro, OptimizerMemoryScaling: 3, PeakActivationPerSample: 1e9}
		got, err := artifact.Search(t.Context(), plantest.ReadProfile(t, c.file+".txt", c.pbs),
			plantest.Preset(t, "dapple-a"), c.batch, linked(told, "dapple-a"))
		if err != nil {
			t.Fatal(err)
		}
		best := got.Candidates[got.Best]
		if len(best.Stages) != 2 || best.Stages[1].First != c.second || len(best.Stages[0].Devices) != c.first {
			t.Errorf("%s: %+v; the paper cuts at state %d with %d devices before it", c.file, best, c.second, c.first)
		}
	}
}

// TestLinksAreTheClusters checks the bandwidths inside a server, between two servers, and between several, for
// servers of several sizes.
func TestLinksAreTheClusters(t *testing.T) {
	p := &profile.Profile{OptimizerStates: 1}
	inf := math.Inf(1)
	for _, c := range []struct {
		server            int
		inside, pair, all float64
	}{
		{0, 100, 10, 5}, {8, 100, 10, 5}, {1, inf, 10, 5}, {4, 100, 10, 5}, {16, 10, 20, 20}, {32, 10, inf, inf},
	} {
		of := &cluster.Cluster{DeviceTypes: map[string]cluster.DeviceType{"big": {MemoryBytes: 9},
			"small": {MemoryBytes: 7}}, Levels: []cluster.Level{
			{Size: 8, BandwidthBytesPerSecond: 100, CollectiveBandwidthBytesPerSecond: 130},
			{Size: 2, BandwidthBytesPerSecond: 10, CollectiveBandwidthBytesPerSecond: 5},
			{Size: 1, BandwidthBytesPerSecond: 1}, {Size: 2, BandwidthBytesPerSecond: 20}}}
		for d := range 32 {
			of.Devices = append(of.Devices, []string{"big", "small"}[d%2])
		}
		k := artifact.ConstantsOf(plan.Request{Profile: p, Cluster: of, MicroBatch: 3}, c.server)
		if k.NVLink != c.inside || k.EthernetP2P != c.pair || k.EthernetNCCL != c.all || k.GPUMemory != 7 ||
			k.MinMicroBatch != 3 || k.OptimizerMemoryScaling != 3 {
			t.Errorf("servers of %d: %+v; want %v inside, %v and %v between", c.server, k, c.inside, c.pair, c.all)
		}
	}
}
