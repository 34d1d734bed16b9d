package shape_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/tune/shape"
)

// TestExplained: Explain returns the same step time as Predict. The time of messages is the part of the bubble that
// disappears if links are 1e9 times as fast and have no latency. If launches take three times as long, only the
// launches' part of the kernels grows.
func TestExplained(t *testing.T) {
	m := gpt(t, 8, 512, 8, 128, 1024)
	c := machines(2)
	c.DeviceTypes["a100"].Kernels.LaunchS = 3e-6
	s := shape.Shape{Batch: 16, MicroBatch: 1, Stages: 8, Precision: "bf16", States: 2}
	plain, err := shape.Predict(m, c, s)
	if err != nil {
		t.Fatal(err)
	}
	p, err := shape.Explain(m, c, s)
	if err != nil {
		t.Fatal(err)
	}
	fast := c.Copied()
	for i := range fast.Levels {
		fast.Levels[i].BandwidthBytesPerSecond *= 1e9
		fast.Levels[i].LatencyS = 0
	}
	free, err := shape.Predict(m, fast, s)
	if err != nil {
		t.Fatal(err)
	}
	if p.StepS != plain.StepS || math.Abs(p.Parts.BubbleS+p.Parts.TransfersS-plain.Parts.BubbleS) > 1e-12 ||
		plain.Parts.TransfersS != 0 {
		t.Errorf("%+v explained, %+v", p.Parts, plain.Parts)
	}
	// Only the bubbles are compared, because the tied embedding's sum also uses the links.
	want := (plain.Parts.BubbleS - free.Parts.BubbleS)
	if want <= 0 || math.Abs(p.Parts.TransfersS/want-1) > 1e-6 {
		t.Errorf("messages take %v, want %v", p.Parts.TransfersS, want)
	}
	slow := c.Copied()
	slow.DeviceTypes["a100"].Kernels.LaunchS *= 3
	more, err := shape.Predict(m, slow, s)
	if err != nil {
		t.Fatal(err)
	}
	if got, was := more.Parts, plain.Parts; math.Abs(got.LaunchesS/was.LaunchesS-3) > 1e-9 ||
		got.ProductsS != was.ProductsS || got.MemoryS != was.MemoryS || was.ProductsS <= 0 {
		t.Errorf("launches three times as long: %+v, before %+v", got, was)
	}
}

// TestSensitivitiesAreSweeps: the best shape under a worse assumption is the one that a sweep under that assumption
// finds, even if Rank left it out.
func TestSensitivitiesAreSweeps(t *testing.T) {
	m := gpt(t, 16, 1024, 16, 512, 8192)
	c := machines(2)
	c.DeviceTypes["a100"].Kernels.LaunchS = 3e-6
	d := c.DeviceTypes["a100"]
	d.MemoryBytes = 5e9
	c.DeviceTypes["a100"] = d
	w := shape.Sweep{Base: shape.Shape{Batch: 64, Precision: "f16", States: 2}, Replicas: []int{0},
		Stages: []int{1, 2, 4, 8}, Tensors: []int{1, 2, 4, 8}, MicroBatches: []int{1, 2, 4, 8},
		Recomputes: []string{"none", "selective", "full"}}
	found, err := shape.Run(m, c, w)
	if err != nil {
		t.Fatal(err)
	}
	all, err := shape.Sensitivities(m, c, found, shape.Others{})
	if err != nil {
		t.Fatal(err)
	}
	few, others, err := shape.Rank(m, c, 0, w)
	if err != nil || len(few) != 1 {
		t.Fatal(len(few), err)
	}
	ranked, err := shape.Sensitivities(m, c, few, others)
	if err != nil {
		t.Fatal(err)
	}
	changes := map[string]func(c *cluster.Cluster, d *cluster.DeviceType){
		"launches take a tenth longer": func(_ *cluster.Cluster, d *cluster.DeviceType) { d.Kernels.LaunchS /= 0.9 },
		"devices have a tenth less":    func(_ *cluster.Cluster, d *cluster.DeviceType) { d.MemoryBytes = 4.5e9 },
		"links of level node are": func(c *cluster.Cluster, _ *cluster.DeviceType) {
			c.Levels[0].BandwidthBytesPerSecond *= 0.9
			c.Levels[0].CollectiveBandwidthBytesPerSecond *= 0.9
		},
		"products reach a tenth less": func(_ *cluster.Cluster, d *cluster.DeviceType) {
			r := d.Kernels.Rate(cluster.RateMatmul)
			r.Limit *= 0.9
			d.Kernels.Rates[cluster.RateMatmul] = r
		},
	}
	changed := 0
	for begins, change := range changes {
		other := c.Copied()
		d := other.DeviceTypes["a100"]
		change(other, &d)
		other.DeviceTypes["a100"] = d
		again, err := shape.Run(m, other, w)
		if err != nil {
			t.Fatal(err)
		}
		seen := false
		for _, a := range slices.Concat(all, ranked) {
			if !strings.HasPrefix(a.Assumption, begins) {
				continue
			}
			seen = true
			best, stepS := found[0].Shape, a.StepS
			if a.Best != nil {
				best, stepS = *a.Best, a.BestS
				changed++
			}
			if math.Abs(stepS/again[0].StepS-1) > 1e-9 {
				t.Errorf("%s: %v, %v s; a sweep finds %v, %v s", a.Assumption, best, stepS, again[0].Shape, again[0].StepS)
			}
		}
		if !seen {
			t.Errorf("%s is not assumed to be worse: %+v", begins, all)
		}
	}
	if changed == 0 {
		t.Error("no assumption changes the choice; give the devices less memory")
	}
}
