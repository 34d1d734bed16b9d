package sim

import (
	"testing"

	"github.com/millrace-ml/millrace/internal/packing"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/schedule/programs"
)

// TestPackedBoundariesByHand: two layers on two workers, forwards of 1 s, backwards of 2 s, and one micro-batch of 4
// samples. The first layer makes 25 numbers for each sample, 400 bytes in all. A link moves 100 bytes a second, packing
// runs at 400 bytes a second and unpacking at 800. Unpacked tensors take 4 s each way, so a step takes 1+4+1 s forward
// and 2+4+2 s backward. In 16 bits a message has 200 bytes: each way takes 1 s to pack, 2 s on the link and 0.5 s to
// unpack. In 8 bits each sample has 25 bytes and a scale of 4 bytes, so a message has 116 bytes. The first worker holds
// its output and the packed copy at once.
func TestPackedBoundariesByHand(t *testing.T) {
	p := &profile.Profile{Version: profile.Version, Model: "pair", Transfer: &profile.Transfer{}}
	for _, f := range []packing.Format{packing.F16, packing.BF16, packing.I8} {
		p.Transfer.Packing = append(p.Transfer.Packing, profile.Packing{Format: f, PackBytesPerSecond: 400,
			UnpackBytesPerSecond: 800})
	}
	for i := range 2 {
		p.Layers = append(p.Layers, profile.Layer{Name: string(rune('a' + i)), From: []int{i - 1}, TiedTo: -1,
			FloatOutputs: []int64{25}, Costs: []profile.Cost{{Device: "cpu", MicroBatch: 4, ForwardS: 1, BackwardS: 2,
				OutputBytes: 400}}})
	}
	c := local(2)
	c.Levels[0].LatencyS, c.Levels[0].BandwidthBytesPerSecond = 0, 100
	for _, x := range []struct {
		format packing.Format
		stepS  float64
		bytes  int64 // bytes of a message
		peak   int64 // peak of the first worker
	}{
		{packing.Whole, 14, 400, 400}, {packing.F16, 13, 200, 600}, {packing.BF16, 13, 200, 600},
		{packing.I8, 2*(1+1.16+0.5) + 6, 116, 516},
	} {
		pl := &plan.Plan{MicroBatch: 4, MicroBatches: 1, Replication: "round_robin", Schedule: "1f1b", Weights: "sync",
			Boundary: x.format, Stages: []plan.Stage{{Devices: []int{0}, Warmup: 1},
				{FirstLayer: 1, LastLayer: 1, Devices: []int{1}, Warmup: 1}}}
		program, err := programs.Build(pl, nil, false, 1)
		if err != nil {
			t.Fatal(err)
		}
		costs, err := CostsOf(p, c, pl)
		if err != nil {
			t.Fatal(err)
		}
		costs.Cores = nil
		tl, sum, err := Run(program, costs, Options{Record: true})
		if err != nil {
			t.Fatal(err)
		}
		exactly(t, sum.StepS, x.stepS, "%s: a step", x.format)
		for _, e := range tl.Events {
			if (e.Kind == "SF" || e.Kind == "SB" || e.Kind == "RF" || e.Kind == "RB") && e.Bytes != x.bytes {
				t.Errorf("%s: %s has %d bytes, wanted %d", x.format, e.Instruction, e.Bytes, x.bytes)
			}
		}
		if sum.PeakBytes[0] != x.peak {
			t.Errorf("%s: the first worker holds %d bytes, wanted %d", x.format, sum.PeakBytes[0], x.peak)
		}
		evaluation, err := EvaluationBytes(program, costs)
		if err != nil {
			t.Fatal(err)
		}
		if evaluation[0] > 4*400 {
			t.Errorf("%s: an evaluation holds %v bytes; it sends tensors as they are", x.format, evaluation)
		}
	}
}

// TestPackedBytesOfLayers: a layer's outputs are packed tensor by tensor, and integers are not packed. If a profile
// does not know the outputs, they count as one tensor.
func TestPackedBytesOfLayers(t *testing.T) {
	cost := []profile.Cost{{Device: "cpu", MicroBatch: 3, OutputBytes: 3 * 4 * 30}}
	p := &profile.Profile{Layers: []profile.Layer{
		{FloatOutputs: []int64{10, 20}, WholeOutputBytes: 8, Costs: cost}, {Costs: cost},
	}}
	for f, want := range map[packing.Format][2]int64{
		packing.Whole: {360, 360}, packing.F16: {3 * (60 + 8), 180}, packing.I8: {3 * (4 + 10 + 4 + 20 + 8), 3 * (4 + 30)},
	} {
		for l, bytes := range want {
			if got := p.Packed(f).Layers[l].Costs[0].OutputBytes; got != bytes {
				t.Errorf("%s, layer %d: %d bytes, wanted %d", f, l, got, bytes)
			}
		}
	}
	if p.Layers[0].Costs[0].OutputBytes != 360 {
		t.Error("packing a profile has changed it")
	}
}
