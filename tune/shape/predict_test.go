package shape_test

import (
	"math"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile/kernels"
	"github.com/millrace-ml/millrace/schedule/programs"
	"github.com/millrace-ml/millrace/tune/shape"
)

// TestPartsAddUp: the parts add up to the step. On one device, eight more micro-batches take as long as the kernels of
// the first eight.
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
		if spent := q.ProductsS + q.AttentionS + q.MemoryS + q.LaunchesS; math.Abs(spent/q.KernelsS-1) > 1e-9 {
			t.Errorf("%v: kernels take %v, by kind %v", p.Shape, q.KernelsS, spent)
		}
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

// TestLongStepsSettle: a step that is extrapolated from fewer micro-batches takes the time of its work and of one
// bubble. The bubble is that of 1F1B on p equal stages, (p-1)(F+B) (Narayanan et al., SC 2021, section 2.2.1), divided
// by the number of chunks.
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

// TestAThousandDevicesAreOneOfEachStage: a prediction for 1,024 devices simulates one device of each stage. In the
// first case, it simulates the forwards and backwards of 192 micro-batches in 48 virtual stages. The second case is a
// long step, for which it simulates two shorter ones: of 96 micro-batches, six for each stage, and of 112, seven for
// each stage. `millrace-lab bench shapes` measures how long a prediction takes.
func TestAThousandDevicesAreOneOfEachStage(t *testing.T) {
	m := gpt(t, 96, 12288, 96, 2048, 51200)
	c := machines(128)
	for batch, want := range map[int]int{1536: 2 * 48 * 192, 15360: 2 * 48 * (96 + 112)} {
		p, err := shape.Predict(m, c, shape.Shape{Batch: batch, MicroBatch: 1, Replicas: 8, Stages: 16, Tensor: 8, Chunks: 3,
			Precision: "f16", Recompute: "full", States: 2})
		if err != nil || p.Shape.Devices() != 1024 {
			t.Fatal(p, err)
		}
		if p.Played != want {
			t.Errorf("a batch of %d: %d computations are simulated, want %d", batch, p.Played, want)
		}
	}
}

// TestSweeps: a sweep ranks shapes that fit before those that do not, and tries only shapes that divide the batch and
// the devices.
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

// TestRefusedSweeps: a sweep refuses numbers whose products overflow, and too many shapes, and says what it accepts.
func TestRefusedSweeps(t *testing.T) {
	m := gpt(t, 8, 512, 8, 128, 1024)
	base := shape.Shape{Batch: 16, MicroBatch: 1, Precision: "f16"}
	long := make([]int, 300)
	for i := range long {
		long[i] = i + 1
	}
	for want, w := range map[string]shape.Sweep{
		"replicas is 4611686018427387904; give 0 to 1048576": {Base: base, Replicas: []int{1, 1 << 62},
			MicroBatches: []int{4}},
		"replicas is -1; give":          {Base: base, Replicas: []int{-1}},
		"stages is 0; give 1 to":        {Base: base, Stages: []int{0}},
		"micro_batch is 0; give 1 to":   {Base: base, MicroBatches: []int{0}},
		"more than 65536 shapes":        {Base: base, Stages: long, Replicas: long},
		"chunks is 2 of 1 stage":        {Base: base, Stages: []int{1}, Chunks: []int{2}},
		"do not divide a batch of 16":   {Base: base, Replicas: []int{3, 5}},
		"dp has the whole model":        {Base: shape.Shape{Batch: 16, MicroBatch: 1, Schedule: "dp"}, Stages: []int{1, 2}},
		"tensor is 2097152; give 1 to ": {Base: base, Tensors: []int{1 << 21}},
	} {
		if _, err := shape.Run(m, machines(2), w); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// TestSweepsOfASchedule: a sweep over one schedule gives each shape that schedule's chunks, and lists no shape twice.
func TestSweepsOfASchedule(t *testing.T) {
	m := gpt(t, 8, 512, 8, 128, 1024)
	for name, chunks := range map[string][]int{"zb-v": nil, "v-half": nil, "bfs": {2, 2}, "zb-h1": nil, "mp": {1}} {
		found, err := shape.Run(m, machines(1), shape.Sweep{Base: shape.Shape{Batch: 16, MicroBatch: 1, Precision: "f16",
			Schedule: name}, Stages: []int{2, 4}, Chunks: chunks, Shards: []string{"none", "none"}})
		if err != nil || len(found) != 2 {
			t.Errorf("%s: %d shapes, %v", name, len(found), err)
			continue
		}
		want := map[string]int{"zb-v": 2, "v-half": 2, "bfs": 2}[name]
		for _, p := range found {
			if p.Shape.Schedule != name || p.Shape.Chunks != max(1, want) {
				t.Errorf("%s: %+v", name, p.Shape)
			}
		}
	}
}

// TestBlocksThatDiffer: if blocks differ, each has its own time. The kernel time of a stage is the sum of its layers'
// times, which are computed one by one.
func TestBlocksThatDiffer(t *testing.T) {
	m, err := model.Build("resnet50", nil)
	if err != nil {
		t.Fatal(err)
	}
	c := machines(1)
	p, err := shape.Predict(m, c, shape.Shape{Batch: 4, MicroBatch: 4, Precision: "bf16"})
	if err != nil {
		t.Fatal(err)
	}
	want := 0.0
	for i := range m.Layers {
		cost, err := kernels.Of(m, i, 4, "a100", c.DeviceTypes["a100"], kernels.Options{Precision: "bf16"})
		if err != nil {
			t.Fatal(err)
		}
		want += cost.ForwardS + cost.InputS + cost.WeightS
	}
	if math.Abs(p.Parts.KernelsS/want-1) > 1e-9 {
		t.Errorf("%v s, want %v", p.Parts.KernelsS, want)
	}
	if m, err = model.Build("gnmt", nil); err != nil {
		t.Fatal(err)
	}
	if _, err := shape.Predict(m, c, shape.Shape{Batch: 4, MicroBatch: 4, Precision: "bf16"}); err == nil ||
		!strings.Contains(err.Error(), "between its blocks") {
		t.Errorf("gnmt: %v", err)
	}
}

// TestPlansOfShapesAreBuilt: if a shape can be written as a plan, the plan has a Program and the shape's recompute, a
// block at a time. Other shapes are refused.
func TestPlansOfShapesAreBuilt(t *testing.T) {
	m := gpt(t, 8, 512, 8, 128, 1024)
	c := machines(1)
	for refused, s := range map[string]shape.Shape{"": {Stages: 2, Replicas: 2, Recompute: "full"},
		"cannot be written as a plan": {Stages: 2, Replicas: 2, Chunks: 2}} {
		s.Batch, s.MicroBatch, s.Precision = 16, 1, "bf16"
		p, err := shape.Predict(m, c, s)
		if err != nil {
			t.Fatal(err)
		}
		pl, err := p.Plan(m, c)
		if refused != "" {
			if err == nil || !strings.Contains(err.Error(), refused) {
				t.Errorf("%v, want %q", err, refused)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, st := range pl.Stages {
			if st.Recompute != plan.Blocks {
				t.Errorf("recompute is %v", st.Recompute)
			}
		}
		if _, err := programs.Build(pl, m.TiedLayers(), false, 1); err != nil {
			t.Error(err)
		}
	}
}

// TestWeightsGatheredInFewerBytes compares zero3 steps if nothing hides collectives and links have no latency. Two
// gathers of 2 bytes per weight and the sum of 4 bytes per gradient take the time of 8 bytes. With weights of 1 byte
// they take the time of 6 bytes. A plan cannot say in how many bytes weights are gathered.
func TestWeightsGatheredInFewerBytes(t *testing.T) {
	m, c := gpt(t, 8, 512, 8, 128, 1024), machines(2)
	d := c.DeviceTypes["a100"]
	d.Kernels.Overlap = 0
	for i := range c.Levels {
		c.Levels[i].LatencyS = 0
	}
	s := shape.Shape{Batch: 16, MicroBatch: 1, Replicas: 16, Shard: "zero3", Precision: "bf16"}
	took := map[int]float64{}
	for _, bytes := range []int{0, 1, 2} {
		s.WeightBytes = bytes
		p, err := shape.Predict(m, c, s)
		if err != nil {
			t.Fatal(err)
		}
		took[bytes] = p.Parts.GatherS
		if _, err := p.Plan(m, c); bytes > 0 && (err == nil || !strings.Contains(err.Error(), "a weight")) {
			t.Errorf("a plan of %d bytes a weight: %v", bytes, err)
		}
	}
	if took[0] != took[2] || math.Abs(took[1]/took[2]-6.0/8) > 1e-6 {
		t.Errorf("gathers take %v", took)
	}
}

func TestRefusedShapes(t *testing.T) {
	m := gpt(t, 8, 512, 8, 128, 1024)
	for want, s := range map[string]shape.Shape{
		"do not divide a batch of 9":  {Batch: 9, MicroBatch: 2},
		"is 64 devices; machines has": {Batch: 64, MicroBatch: 1, Replicas: 64},
		"recompute is \"some\"":       {Batch: 8, MicroBatch: 1, Recompute: "some"},
		"tensor is 1":                 {Batch: 8, MicroBatch: 1, SequenceParallel: true},
		"level node of machines":      {Batch: 8, MicroBatch: 1, Tensor: 3},
		"8 blocks on 16 virtual":      {Batch: 8, MicroBatch: 1, Stages: 16},
		"no peak in fp8":              {Batch: 8, MicroBatch: 1, Precision: "fp8"},
		"shard is \"zero4\"":          {Batch: 8, MicroBatch: 1, Shard: "zero4"},

		"replicas is -1; give 1 to 1048576":       {Batch: 8, MicroBatch: 1, Replicas: -1},
		"chunks is 99999999; give 1 to 1048576":   {Batch: 8, MicroBatch: 1, Stages: 2, Chunks: 99999999},
		"chunks is 2 of 1 stage":                  {Batch: 8, MicroBatch: 1, Chunks: 2},
		"schedule \"bogus\"":                      {Batch: 8, MicroBatch: 1, Schedule: "bogus"},
		"dp has the whole model":                  {Batch: 8, MicroBatch: 1, Stages: 2, Schedule: "dp"},
		"single has the whole model":              {Batch: 8, MicroBatch: 1, Schedule: "single"},
		"dp-async keeps weights 2bw":              {Batch: 8, MicroBatch: 1, Stages: 2, Schedule: "dp-async"},
		"asp keeps weights asp":                   {Batch: 8, MicroBatch: 1, Stages: 2, Schedule: "asp"},
		"1f1b-rr keeps weights stash":             {Batch: 8, MicroBatch: 1, Stages: 2, Schedule: "1f1b-rr"},
		"elastic keeps weights elastic":           {Batch: 8, MicroBatch: 1, Stages: 2, Schedule: "elastic"},
		"dp-overlap has stages on several":        {Batch: 8, MicroBatch: 1, Stages: 2, Chunks: 2, Schedule: "dp-overlap"},
		"chimera has stages on several":           {Batch: 8, MicroBatch: 1, Stages: 2, Schedule: "chimera", Chunks: 1},
		"fbp-as is for devices that transfer":     {Batch: 8, MicroBatch: 1, Stages: 2, Schedule: "fbp-as"},
		"1f1b has 2 virtual stages on 2":          {Batch: 8, MicroBatch: 1, Stages: 2, Chunks: 2, Schedule: "1f1b"},
		"zb-v has 4 virtual stages on 2 devices":  {Batch: 8, MicroBatch: 1, Stages: 2, Chunks: 1, Schedule: "zb-v"},
		"interleaved is of several chunks on eac": {Batch: 8, MicroBatch: 1, Stages: 2, Schedule: "interleaved"},
	} {
		if s.Precision == "" {
			s.Precision = "f16"
		}
		if _, err := shape.Predict(m, machines(2), s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", s, err, want)
		}
	}
	if _, err := shape.Predict(gpt(t, 2, 384, 12, 128, 1024), machines(1), shape.Shape{Batch: 8, MicroBatch: 1, Tensor: 8,
		Precision: "f16"}); err == nil || !strings.Contains(err.Error(), "12 heads, which a group of 8") {
		t.Errorf("heads: %v", err)
	}
	plain := machines(1)
	plain.DeviceTypes["a100"] = cluster.DeviceType{PeakFLOPS: 1, MemoryBandwidthBytesPerSecond: 1}
	if _, err := shape.Predict(m, plain, shape.Shape{Batch: 8, MicroBatch: 1}); err == nil ||
		!strings.Contains(err.Error(), "has no kernels") {
		t.Errorf("without kernels: %v", err)
	}
}
