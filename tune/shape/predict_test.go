package shape_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/tune/shape"
)

// Parts add up to the step; of one device without recompute it is all kernels and the update, and twice the
// micro-batches take twice as long.
func TestPartsAddUp(t *testing.T) {
	m := gpt(t, 8, 512, 8, 128, 1024)
	c := machines(4)
	c.DeviceTypes["a100"].Kernels.StepS = 1e-3
	for _, s := range []shape.Shape{
		{Batch: 8, MicroBatch: 1}, {Batch: 32, MicroBatch: 1, Stages: 4, Replicas: 2, Tensor: 2, Recompute: "full"},
		{Batch: 64, MicroBatch: 2, Replicas: 8, Shard: "zero3"},
		{Batch: 64, MicroBatch: 2, Replicas: 4, Tensor: 8, SequenceParallel: true, Shard: "zero1", Behind: true},
		{Batch: 32, MicroBatch: 1, Stages: 4, Chunks: 2, Recompute: "selective"},
	} {
		s.Precision, s.States = "bf16", 2
		p, err := shape.Predict(m, c, s)
		if err != nil {
			t.Fatal(err)
		}
		q := p.Parts
		sum := q.KernelsS + q.SumsS + q.AgainS + q.GatherS + q.BubbleS + q.GradientsS + q.UpdateS + q.FixedS
		if math.Abs(sum/p.StepS-1) > 1e-9 || q.FixedS != 1e-3 || q.KernelsS <= 0 || q.BubbleS < -1e-12 {
			t.Errorf("%v: %+v of %v", p.Shape, q, p.StepS)
		}
		if (q.SumsS > 0) != (s.Tensor > 1) || (q.AgainS > 0) != (s.Recompute != "") ||
			(q.GatherS > 0) != (s.Shard == "zero3") || (q.BubbleS > 1e-9) != (s.Stages > 1) {
			t.Errorf("%v: %+v", p.Shape, q)
		}
	}
	one, err := shape.Predict(m, c, shape.Shape{Batch: 8, MicroBatch: 1, Precision: "bf16"})
	if err != nil {
		t.Fatal(err)
	}
	two, err := shape.Predict(m, c, shape.Shape{Batch: 16, MicroBatch: 1, Precision: "bf16"})
	if err != nil {
		t.Fatal(err)
	}
	if got := two.StepS - one.StepS; math.Abs(got/one.Parts.KernelsS-1) > 1e-9 {
		t.Errorf("eight more micro-batches take %v, want %v", got, one.Parts.KernelsS)
	}
}

// A step that is simulated with fewer micro-batches is what the whole simulation says, by the bubble of 1F1B for equal
// stages, (p-1)(F+B) (Narayanan et al., SC 2021, section 2.2.1), divided by the chunks.
func TestLongStepsSettle(t *testing.T) {
	for chunks, schedule := range map[int]string{1: "1f1b", 2: "interleaved"} {
		s := shape.Shape{Stages: 16, Chunks: chunks, Schedule: schedule, Batch: 16 * 256, MicroBatch: 1}
		got, err := shape.Uniform(s, 1, 1.5, 0.5, 0, 1)
		if err != nil {
			t.Fatal(err)
		}
		if want := 16*256*3 + 15*3/float64(chunks); math.Abs(got/want-1) > 1e-9 {
			t.Errorf("%s: %v, want %v", schedule, got, want)
		}
	}
}

// A prediction of 1,024 devices takes less than a second of one processor.
func TestAThousandDevicesInASecond(t *testing.T) {
	m := gpt(t, 96, 12288, 96, 2048, 51200)
	c := machines(128)
	began := time.Now()
	const n = 4
	for range n {
		p, err := shape.Predict(m, c, shape.Shape{Batch: 1536, MicroBatch: 1, Replicas: 8, Stages: 16, Tensor: 8, Chunks: 3,
			Precision: "f16", Recompute: "full", States: 2})
		if err != nil || p.Shape.Devices() != 1024 {
			t.Fatal(p, err)
		}
	}
	if took := time.Since(began) / n; took > 5*time.Second { // of a machine that six others use
		t.Errorf("a prediction takes %v", took)
	}
}

// Sweeps rank what fits in front of what does not, and try what divides alone.
func TestSweeps(t *testing.T) {
	m := gpt(t, 24, 2048, 16, 1024, 51200)
	c := machines(2)
	d := c.DeviceTypes["a100"]
	d.MemoryBytes = 12e9
	c.DeviceTypes["a100"] = d
	base := shape.Shape{Batch: 64, Precision: "f16", States: 2}
	found, err := shape.Run(m, c, shape.Sweep{Base: base, Replicas: []int{0},
		Stages: []int{1, 2, 4}, Tensors: []int{1, 2, 4}, MicroBatches: []int{1, 4, 64}, Recomputes: []string{"none", "full"}})
	if err != nil {
		t.Fatal(err)
	}
	fits := 0
	for i, p := range found {
		if p.Shape.Devices() != 16 || 64%(p.Shape.Replicas*p.Shape.MicroBatch) != 0 {
			t.Errorf("%v", p.Shape)
		}
		if p.Fits {
			fits++
		}
		if i > 0 && (p.Fits && !found[i-1].Fits || p.Fits == found[i-1].Fits && p.StepS < found[i-1].StepS) {
			t.Errorf("%v in front of %v", found[i-1].Shape, p.Shape)
		}
	}
	if fits == 0 || fits == len(found) {
		t.Errorf("%d of %d fit", fits, len(found))
	}
	pl, err := found[0].Plan(m, c)
	if err != nil {
		t.Fatal(err)
	}
	if pl.Batch() != 64 || len(pl.Devices())*max(1, found[0].Shape.Tensor) != 16 {
		t.Errorf("%+v", pl)
	}
}

func TestRefusedShapes(t *testing.T) {
	m := gpt(t, 8, 512, 8, 128, 1024)
	for want, s := range map[string]shape.Shape{
		"do not divide a batch of 9":  {Batch: 9, MicroBatch: 2},
		"is 64 devices; machines has": {Batch: 64, MicroBatch: 1, Replicas: 64},
		"recompute is \"some\"":       {Batch: 8, MicroBatch: 1, Recompute: "some"},
		"tensor is 1":                 {Batch: 8, MicroBatch: 1, SequenceParallel: true},
		"8 blocks on 16 virtual":      {Batch: 8, MicroBatch: 1, Stages: 16},
		"no peak in fp8":              {Batch: 8, MicroBatch: 1, Precision: "fp8"},
		"shard is \"zero4\"":          {Batch: 8, MicroBatch: 1, Shard: "zero4"},
	} {
		if s.Precision == "" {
			s.Precision = "f16"
		}
		if _, err := shape.Predict(m, machines(2), s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", s, err, want)
		}
	}
	plain := machines(1)
	plain.DeviceTypes["a100"] = cluster.DeviceType{PeakFLOPS: 1, MemoryBandwidthBytesPerSecond: 1}
	if _, err := shape.Predict(m, plain, shape.Shape{Batch: 8, MicroBatch: 1}); err == nil ||
		!strings.Contains(err.Error(), "has no kernels") {
		t.Errorf("without kernels: %v", err)
	}
}
