package sim

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/schedule/lower"
	"github.com/millrace-ml/millrace/sim/memory"
)

// chain returns a profile of four layers with costs that are easy to add up. Layer 3 reads layers 2 and 0, and
// shares a parameter of 6 bytes with layer 0. Micro-batches of 1 and 2 samples are profiled; every cost of 2 samples
// is twice that of 1.
func chain() *profile.Profile {
	p := &profile.Profile{
		Version: profile.Version, Model: "chain", OptimizerStates: 2,
		Transfer: &profile.Transfer{DispatchS: 0.25},
	}
	for i := range 4 {
		l := profile.Layer{Name: string(rune('a' + i)), From: []int{i - 1}, ParameterBytes: 10, BufferBytes: 1, TiedTo: -1,
			UpdateTimes: profile.UpdateTimes{UpdateS: 0.5}}
		if i == 3 {
			l.From, l.TiedTo, l.TiedBytes = []int{2, 0}, 0, 6
		}
		for _, size := range []int{1, 2} {
			n := float64(size)
			l.Costs = append(l.Costs, profile.Cost{
				Device: "cpu", MicroBatch: size, ForwardS: n * float64(i+1), BackwardS: 2 * n * float64(i+1),
				OutputBytes: int64(size) * 100, SavedBytes: int64(size) * 150, ForwardPeakBytes: int64(size) * 170,
				BackwardPeakBytes: int64(size) * 130,
			})
		}
		p.Layers = append(p.Layers, l)
	}
	return p
}

func local(devices int) *cluster.Cluster { return cluster.Local("cpu", devices, 2, 0, 1e-3, 1e6, 2e6) }

func twoStages() *plan.Plan {
	return &plan.Plan{
		MicroBatch: 1, MicroBatches: 2, Replication: "round_robin", Schedule: "1f1b", Weights: "sync",
		Stages: []plan.Stage{
			{FirstLayer: 0, LastLayer: 1, Devices: []int{0}, Warmup: 2},
			{FirstLayer: 2, LastLayer: 3, Devices: []int{1}, Warmup: 1},
		},
	}
}

var close9 = cmpopts.EquateApprox(1e-12, 1e-12)

func TestCostsOfTwoStages(t *testing.T) {
	c, err := CostsOf(chain(), local(2), twoStages())
	if err != nil {
		t.Fatal(err)
	}
	tied := 1e-3 + 6/1e6 // one transfer of the shared parameter's gradient
	norm := 1e-3 + 4*8/1e6
	want := [][]StageCost{{{
		ForwardS: 1 + 2, BackwardS: 2 + 4, InputS: 6, UpdateTimes: profile.UpdateTimes{UpdateS: 1}, EvaluateS: 3, TiedS: tied,
		NormS: norm,
		Held: memory.Held{
			ActivationBytes: 200, // layer 1's output, and layer 0's for layer 3
			SavedBytes:      300,
			FixedBytes:      2*10*3 + 2, // parameters, two states each, buffers
			StateBytes:      2 * 10 * 2,
			WeightBytes:     20,
			ParameterBytes:  20,
			ReferenceBytes:  22,
			ForwardPeak:     150 + 170,
			EvaluatePeak:    100 + 170, // a later stage reads layer 0's output, so it stays
			// The peak is the larger of two. Layer 1 needs 130. After that layer 0 needs 130 more. By then the 150 that
			// layer 1 had saved are freed, and the gradient of layer 0's output, 100, is held: -150 + 100 + 130.
			BackwardPeak:      130,
			InputPeak:         130,
			FirstBackwardPeak: 130, // of layer 1; after it layer 0 needs 90: -150 + 100 + 10 (layer 1's gradients) + 130
			FirstInputPeak:    130, // no layer has a split backward
			WholeBytes:        20,
			UpdatePeak:        10,
			LayerBytes:        10,
		},
	}}, {{
		ForwardS: 3 + 4, BackwardS: 6 + 8, InputS: 14, UpdateTimes: profile.UpdateTimes{UpdateS: 1}, EvaluateS: 7,
		TiedS: tied, NormS: norm,
		GradientBytes: 200,
		Held: memory.Held{
			InputBytes: 200, SavedBytes: 300,
			StateBytes:     (20 + 6) * 2,
			FixedBytes:     (20+6)*3 + 2, // its own copy of the shared parameter, with states
			WeightBytes:    26,
			ParameterBytes: 26,
			ReferenceBytes: 28,
			ForwardPeak:    320,
			EvaluatePeak:   100 + 170,
			// Layer 3 needs 130. After that its 150 are freed, and it has made the gradients of layers 2 and 0, 100
			// each. Layer 2 needs 130 more: -150 + 200 + 130.
			BackwardPeak:      180,
			InputPeak:         180,
			FirstBackwardPeak: 180 + 16,
			FirstInputPeak:    180 + 16,
			WholeBytes:        26,
			UpdatePeak:        16,
			LayerBytes:        16,
		},
	}}}
	if d := cmp.Diff(want, c.Stages, close9, cmpopts.IgnoreUnexported(StageCost{})); d != "" {
		t.Error(d)
	}
	if c.Noise.DispatchS != 0.25 || len(c.Cores) != 1 || c.Cores[0].Cores != 2 || len(c.Cores[0].Workers) != 2 {
		t.Errorf("dispatch %v, cores %v", c.Noise.DispatchS, c.Cores)
	}
	if latency, link := c.Transfer(0, 1, 1000); math.Abs(latency-1e-3) > 1e-15 || math.Abs(link-1e-3) > 1e-15 {
		t.Errorf("1000 bytes take %v and %v", latency, link)
	}
	if d := cmp.Diff([][]int{{0, 1}}, twoStages().TiedStages(chain().TiedLayers())); d != "" {
		t.Error(d)
	}
}

func TestRecomputeTradesTimeForMemory(t *testing.T) {
	pl := twoStages()
	pl.Stages[1].Recompute = plan.KeepInput
	plain, err := CostsOf(chain(), local(2), twoStages())
	if err != nil {
		t.Fatal(err)
	}
	again, err := CostsOf(chain(), local(2), pl)
	if err != nil {
		t.Fatal(err)
	}
	a, b := plain.Stages[1][0], again.Stages[1][0]
	if b.SavedBytes != 0 || b.BackwardS != a.BackwardS+a.ForwardS || b.ForwardS != a.ForwardS {
		t.Errorf("recompute: saved %d, backward %v s", b.SavedBytes, b.BackwardS)
	}
	if want := a.SavedBytes + a.BackwardPeak; b.BackwardPeak != want || b.ForwardPeak != a.EvaluatePeak {
		t.Errorf("recompute: backward's peak %d, want %d; forward's %d, want %d", b.BackwardPeak, want, b.ForwardPeak,
			a.EvaluatePeak)
	}
}

// TestWhatInstructionsTakeBeside checks the measured times of everything except the layers. Inputs are copied once for
// each forward, and recomputing takes its measured time, not that of a forward.
func TestWhatInstructionsTakeBeside(t *testing.T) {
	p := chain()
	p.Transfer = &profile.Transfer{DispatchS: 1, SendS: 2, ReceiveS: 3}
	for l := range p.Layers {
		for i := range p.Layers[l].Costs {
			c := &p.Layers[l].Costs[i]
			c.BareForwardS, c.AgainS = new(c.ForwardS/2), new(c.ForwardS/4+c.BackwardS)
		}
	}
	for i := range p.Layers[0].Costs {
		p.Layers[0].Costs[i].FeedS = 0.125
	}
	without, err := CostsOf(chain(), local(2), twoStages())
	if err != nil {
		t.Fatal(err)
	}
	pl := twoStages()
	c, err := CostsOf(p, local(2), pl)
	if err != nil {
		t.Fatal(err)
	}
	if c.Noise.DispatchS != 1 || c.SendS != 2 || c.ReceiveS != 3 {
		t.Errorf("%v %v %v", c.Noise.DispatchS, c.SendS, c.ReceiveS)
	}
	pl.Stages[0].Recompute, pl.Stages[1].Recompute = plan.KeepInput, plan.KeepInput
	again, err := CostsOf(p, local(2), pl)
	if err != nil {
		t.Fatal(err)
	}
	for s := range pl.Stages {
		plain, got, thrice := without.Stages[s][0], c.Stages[s][0], again.Stages[s][0]
		fed := 0.0
		if s == 0 {
			fed = 0.125
		}
		same := func(what string, got, want float64) {
			if math.Abs(got-want) > 1e-12 {
				t.Errorf("stage %d: %s takes %v s, want %v", s, what, got, want)
			}
		}
		same("a forward", got.ForwardS, plain.ForwardS+fed)
		same("a backward", got.BackwardS, plain.BackwardS)
		same("an evaluation", got.EvaluateS, plain.ForwardS/2+fed)
		same("a forward that keeps nothing", thrice.ForwardS, plain.ForwardS/2+fed)
		same("a backward that computes again", thrice.BackwardS, plain.ForwardS/4+plain.BackwardS)
		same("what computing again adds to the first half", thrice.InputS-got.InputS, plain.ForwardS/4)
	}
}

// TestRecomputeTwoLayersAtATime checks by hand the memory of four layers in one stage that are recomputed two at a
// time. Layers 2 and 3 read the outputs of layers 1 and 0, so these two outputs of 100 are kept.
func TestRecomputeTwoLayersAtATime(t *testing.T) {
	pl := twoStages()
	pl.Stages = []plan.Stage{{LastLayer: 3, Devices: []int{0}, Warmup: 1, Recompute: plan.Every(2)}}
	c, err := CostsOf(chain(), local(1), pl)
	if err != nil {
		t.Fatal(err)
	}
	got := c.Stages[0][0]
	// Forward: layer 3 runs (170) while the outputs of layers 0, 1 and 2 are held.
	if got.SavedBytes != 200 || got.ForwardPeak != 300+170 {
		t.Errorf("held %d, forward's peak %d; want 200 and 470", got.SavedBytes, got.ForwardPeak)
	}
	// In the backward, layers 2 and 3 run again and save 300. Layer 3 frees 150 of these, and makes the gradients of
	// layers 2 and 0, 200 in all. Layer 2 needs 130 more. Without segments all layers run again first, and the peak is
	// 600 -150 +200 +130.
	if got.BackwardPeak != 300-150+200+130 {
		t.Errorf("backward's peak %d, want 480", got.BackwardPeak)
	}
	pl.Stages[0].Recompute = plan.KeepInput
	if c, err = CostsOf(chain(), local(1), pl); err != nil {
		t.Fatal(err)
	}
	if whole := c.Stages[0][0]; whole.BackwardPeak != 600-150+200+130 || whole.SavedBytes != 0 ||
		whole.BackwardS != got.BackwardS || whole.InputS != got.InputS {
		t.Errorf("all at once: %+v; two layers at a time: %+v", whole, got)
	}
	pl.Stages[0].Recompute = plan.Every(7)
	again, err := CostsOf(chain(), local(1), pl)
	if d := cmp.Diff(c.Stages, again.Stages, cmp.AllowUnexported(StageCost{}, layerwise{})); d != "" || err != nil {
		t.Errorf("seven of four layers at a time are not all at once: %v %s", err, d)
	}
}

func TestSplitReplicasComputeSlices(t *testing.T) {
	pl := &plan.Plan{
		MicroBatch: 2, MicroBatches: 1, Replication: "split", Schedule: "1f1b", Weights: "sync",
		Stages: []plan.Stage{{FirstLayer: 0, LastLayer: 1, Devices: []int{0, 1}},
			{FirstLayer: 2, LastLayer: 3, Devices: []int{2}}},
	}
	c, err := CostsOf(chain(), local(3), pl)
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Stages[0]) != 2 || c.Stages[0][1].ForwardS != 3 || c.Stages[1][0].ForwardS != 14 {
		t.Errorf("forwards take %v and %v, want 3 on each half and 14 on the whole", c.Stages[0], c.Stages[1][0].ForwardS)
	}
	// Two devices send 20 bytes of gradients round a ring: 2 messages of 10 bytes.
	if want := 2*1e-3 + 20/2e6; math.Abs(c.Stages[0][0].AllReduceS-want) > 1e-12 {
		t.Errorf("all-reduce takes %v, want %v", c.Stages[0][0].AllReduceS, want)
	}
	name, settings := schedule.FromPlan(pl)
	p, err := family.Generate(name, settings)
	if err == nil {
		p, err = lower.Lower(p, lower.Options{Tied: pl.TiedStages(chain().TiedLayers())})
	}
	if err != nil {
		t.Fatal(err)
	}
	tl, sum, err := Run(p, c, Options{Record: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range tl.Events {
		if want := map[string]int64{"SF": 200, "SB": 200}[e.Kind]; want != e.Bytes && want != 0 {
			t.Errorf("%s carries %d bytes, want %d", e.Instruction, e.Bytes, want)
		}
	}
	for w, m := range sum.PeakBytes {
		if m <= c.of(map[int]int{0: 0, 1: 0, 2: 1}[w], 0).FixedBytes {
			t.Errorf("worker %d never holds more than its parameters", w)
		}
	}
	last := map[int]int64{}
	for _, m := range tl.Memory {
		last[m.Worker] = m.Bytes
	}
	for w := range 3 {
		if want := c.of(map[int]int{0: 0, 1: 0, 2: 1}[w], 0).FixedBytes; last[w] != want {
			t.Errorf("worker %d holds %d bytes in the end, want %d", w, last[w], want)
		}
	}
}

func TestPartsOfLayers(t *testing.T) {
	pl := twoStages()
	pl.Stages[0].LastLayer, pl.Stages[0].LastFraction = 2, 0.25
	pl.Stages[1].FirstFraction = 0.75
	c, err := CostsOf(chain(), local(2), pl)
	if err != nil {
		t.Fatal(err)
	}
	if a, b := c.Stages[0][0].ForwardS, c.Stages[1][0].ForwardS; a != 1+2+0.25*3 || b != 0.75*3+4 {
		t.Errorf("forwards take %v and %v", a, b)
	}
}

func TestLinksOfAHierarchy(t *testing.T) {
	c := &cluster.Cluster{
		Name: "two servers", Devices: []string{"cpu", "cpu", "cpu", "cpu"},
		DeviceTypes: map[string]cluster.DeviceType{"cpu": {}},
		Levels: []cluster.Level{
			{Name: "server", Size: 2, BandwidthBytesPerSecond: 100, FullDuplex: true},
			{Name: "rack", Size: 2, BandwidthBytesPerSecond: 10, Shared: true},
		},
	}
	link := func(c *cluster.Cluster, a, b int) [2]int { return c.Links(a, b)[0] }
	if link(c, 0, 1) == link(c, 1, 0) || link(c, 0, 2) != link(c, 3, 1) || link(c, 0, 1) == link(c, 2, 3) {
		t.Errorf("links %v %v, %v %v, %v", link(c, 0, 1), link(c, 1, 0), link(c, 0, 2), link(c, 3, 1), link(c, 2, 3))
	}
	c.Levels[1].FullDuplex = true
	if link(c, 0, 2) == link(c, 2, 0) || link(c, 0, 2) != link(c, 1, 3) {
		t.Errorf("a shared full-duplex level: %v %v %v", link(c, 0, 2), link(c, 2, 0), link(c, 1, 3))
	}
	c.Levels[0].FullDuplex = false
	if link(c, 0, 1) != link(c, 1, 0) {
		t.Error("half duplex is one link for both directions")
	}
}

func TestCostsRefused(t *testing.T) {
	for name, change := range map[string]func(p *profile.Profile, pl *plan.Plan){
		"uses device 7":             func(_ *profile.Profile, pl *plan.Plan) { pl.Stages[1].Devices = []int{7} },
		"layers 0 to 3":             func(_ *profile.Profile, pl *plan.Plan) { pl.Stages[1].LastLayer = 4 },
		"no cost for micro-batches": func(_ *profile.Profile, pl *plan.Plan) { pl.MicroBatch = 3 },
		"stage 0 of the plan is on no device": func(_ *profile.Profile, pl *plan.Plan) {
			pl.Stages[0].Devices = nil
		},
		"stage 1 of the plan is on no device": func(_ *profile.Profile, pl *plan.Plan) { // tied to stage 0
			pl.Stages[1].Devices = nil
		},
	} {
		p, pl := chain(), twoStages()
		change(p, pl)
		if _, err := CostsOf(p, local(2), pl); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("got %v, want it to say %q", err, name)
		}
	}
	program := program(t, "1f1b", 2, 2, 1)
	bad := Uniform(2, 1, 1, 0)
	bad.Stages[1][0].BackwardS = math.NaN()
	var cost *CostError
	if _, _, err := Run(program, bad, Options{}); !errors.As(err, &cost) || cost.Stage != 1 {
		t.Errorf("got %v, want a CostError of stage 1", err)
	}
	if _, _, err := Run(program, Uniform(3, 1, 1, 0), Options{}); err == nil {
		t.Error("costs of three stages served a program of two")
	}
}
