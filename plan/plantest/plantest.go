// Package plantest holds helpers for the tests of several planners: chains, splits, published profiles.
package plantest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/internal/shared"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/profile/importer"
)

// EverySplit calls yield for each choice of S-1 cuts of n layers.
func EverySplit(n, S int, yield func(cuts []int)) {
	var walk func(cuts []int, from int)
	walk = func(cuts []int, from int) {
		if len(cuts) == S-1 {
			yield(cuts)
			return
		}
		for c := from; c < n; c++ {
			walk(append(cuts[:len(cuts):len(cuts)], c), c+1)
		}
	}
	walk(nil, 1)
}

// EvenChain returns a request with equal layers (F = 1, B = 2, outputs of 10 bytes) on equal devices and 8
// micro-batches.
func EvenChain(layers, devices int, link float64) plan.Request {
	p := &profile.Profile{Version: profile.Version, Model: "even", ModelID: "x", Source: "roofline"}
	for i := range layers {
		p.Layers = append(p.Layers, profile.Layer{Name: string(rune('a' + i)), Kind: "linear", From: []int{i - 1},
			TiedTo: -1, ParameterBytes: 100,
			Costs: []profile.Cost{{Device: "d", MicroBatch: 1, ForwardS: 1, BackwardS: 2, OutputBytes: 10,
				SavedBytes: 10}}})
	}
	c := &cluster.Cluster{Name: "even", DeviceTypes: map[string]cluster.DeviceType{"d": {}},
		Levels: []cluster.Level{{Name: "chain", Size: devices, BandwidthBytesPerSecond: link, FullDuplex: true,
			CollectiveBandwidthBytesPerSecond: 0.1}}}
	for range devices {
		c.Devices = append(c.Devices, "d")
	}
	return plan.Request{Profile: p, Cluster: c, Batch: 8}
}

// Chain returns a profile of equal layers on cpu, for each of the micro-batch sizes. A sample costs 1 s forward and 2 s
// backward.
func Chain(layers int, sizes ...int) *profile.Profile {
	p := &profile.Profile{Version: profile.Version, Model: "chain", ModelID: "x"}
	for i := range layers {
		l := profile.Layer{Name: string(rune('a' + i)), From: []int{i - 1}, TiedTo: -1, ParameterBytes: 100}
		for _, m := range sizes {
			l.Costs = append(l.Costs, profile.Cost{Device: "cpu", MicroBatch: m, ForwardS: float64(m),
				BackwardS: 2 * float64(m), OutputBytes: int64(m), SavedBytes: 10 * int64(m)})
		}
		p.Layers = append(p.Layers, l)
	}
	return p
}

// ChainCase returns a random chain of layers on a random cluster. The cluster has two levels (either may have size 1)
// and one or two device types. It also returns the batch and the micro-batch.
func ChainCase(r *rand.Rand) (*profile.Profile, *cluster.Cluster, int, int) {
	p := &profile.Profile{Model: "chain", OptimizerStates: r.IntN(3)}
	mb := []int{8, 16}[r.IntN(2)]
	for k := range 2 + r.IntN(7) {
		l := profile.Layer{Name: string(rune('a' + k)), From: []int{k - 1}, TiedTo: -1, ParameterBytes: r.Int64N(1000)}
		saved := r.Int64N(200)
		output := r.Int64N(500)
		for _, device := range []string{"x", "y"} {
			l.Costs = append(l.Costs, profile.Cost{Device: device, MicroBatch: mb, ForwardS: r.Float64(),
				BackwardS: 2 * r.Float64(), OutputBytes: output, SavedBytes: saved})
		}
		p.Layers = append(p.Layers, l)
	}
	memory := []int64{0, 0, 6000, 3000}[r.IntN(4)]
	c := &cluster.Cluster{Name: "random", DeviceTypes: map[string]cluster.DeviceType{"x": {MemoryBytes: memory},
		"y": {MemoryBytes: memory}}}
	inner := cluster.Level{Name: "server", Size: 1 + r.IntN(3), BandwidthBytesPerSecond: 200 + 5000*r.Float64(),
		LatencyS: 0.01 * r.Float64(), FullDuplex: true}
	outer := cluster.Level{Name: "rack", Size: 1 + r.IntN(2), BandwidthBytesPerSecond: 100 + 1000*r.Float64(),
		FullDuplex: true, Uplinks: r.IntN(2) == 0}
	c.Levels = []cluster.Level{inner, outer}
	mixed := r.IntN(3) == 0
	for i := range inner.Size * outer.Size {
		t := "x"
		if mixed && i >= inner.Size {
			t = "y"
		}
		c.Devices = append(c.Devices, t)
	}
	return p, c, mb * (1 + r.IntN(6)), mb
}

// Close says whether a and b are equal to 1e-9, relative to b.
func Close(a, b float64) bool {
	return a == b || math.Abs(a-b) <= 1e-9*math.Abs(b)
}

// ReadProfile reads a published profile from the shared folder. The file is named after its format and model.
func ReadProfile(t testing.TB, file string, batch int) *profile.Profile {
	t.Helper()
	format, _, _ := strings.Cut(file, "-")
	if format == "hpgo" {
		format = "dapple"
	}
	p, _, err := importer.Read(filepath.Join(shared.Dir(t), "data", "profiles", file),
		importer.Options{Format: format, Batch: batch})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Published is a profile that DAPPLE's authors published: its file, the samples that it was measured with, and the
// samples of a step.
type Published struct {
	File           string
	Profile, Batch int
}

// Table4 lists the workloads of DAPPLE's Table 4 whose profiles are available.
var Table4 = []Published{
	{"dapple-vgg-19-pbs-32.txt", 32, 2048}, {"dapple-gnmt-16-pbs-64.txt", 64, 1024}, {"dapple-bert-48-pbs-2.txt", 2, 64},
	{"dapple-xlnet-36-pbs-1.txt", 1, 128}, {"dapple-amoeba-36-pbs-1.txt", 1, 128},
}

// Read reads the profile.
func (p Published) Read(t testing.TB) *profile.Profile {
	t.Helper()
	return ReadProfile(t, p.File, p.Profile)
}

// Preset returns a shipped cluster.
func Preset(t testing.TB, name string) *cluster.Cluster {
	t.Helper()
	c, err := cluster.Preset(name)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Shape writes a plan as in DAPPLE's tables: dp, straight, or the number of devices of each stage, as in 15:1.
func Shape(p *plan.Plan) string {
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

// Set reads settings like "memory=on states=5".
func Set(text string) map[string]string {
	set := map[string]string{}
	for _, kv := range strings.Fields(text) {
		k, v, _ := strings.Cut(kv, "=")
		set[k] = v
	}
	return set
}
