package avgpipe

import (
	"slices"
	"testing"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/plan/plantest"
)

// TestAtEqualMemory: every baseline is present. AvgPipe never needs more memory than the baseline that it is compared
// with. It is hardly slower than GPipe and DAPPLE, whose settings it can also choose.
func TestAtEqualMemory(t *testing.T) {
	w := workload()
	baselines, err := w.Baselines(t.Context(), 4)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, b := range baselines {
		names = append(names, b.Name)
		if u := b.Utilisation(); !(u > 0 && u <= 1) || !b.Fits {
			t.Errorf("%s computes for %v of the time; fits: %v", b.Name, u, b.Fits)
		}
	}
	if want := []string{"data parallelism", "GPipe", "DAPPLE", "PipeDream", "PipeDream-2BW"}; !slices.Equal(names, want) {
		t.Fatalf("baselines %v, want %v", names, want)
	}
	grid, err := Grid(w.Batch, w.Profile.Sizes("cpu"), 3)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := w.AtEqualMemory(t.Context(), grid, baselines)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		if r.AvgPipe == nil {
			t.Errorf("nothing of AvgPipe's fits the %d bytes of %s", slices.Max(r.Predicted.MemoryBytes), r.Name)
			continue
		}
		if r.AvgPipe.Peak() > slices.Max(r.Predicted.MemoryBytes) {
			t.Errorf("%s holds %d bytes, AvgPipe(%s) %d", r.Name, slices.Max(r.Predicted.MemoryBytes), r.AvgPipe.At,
				r.AvgPipe.Peak())
		}
		if (r.Name == "GPipe" || r.Name == "DAPPLE") && r.Speedup() < 1/(1+closeEnough) {
			t.Errorf("AvgPipe is %v times as fast as %s, which it can be itself", r.Speedup(), r.Name)
		}
	}
	if _, err := w.Baselines(t.Context(), 5); err == nil {
		t.Error("5 micro-batches of 16 samples are not refused")
	}
}

// TestBaselinesByHand has two stages of one layer each, with 100 B of parameters and 100 B of gradients. A sample keeps
// 10 B from its forward of 1 s to its backward of 2 s. A batch is 4 micro-batches of one sample. Messages take no time.
//
//   - Data parallelism: each device has both layers and computes two micro-batches, 12 s without a gap. It holds 400 B,
//     and 20 B for a sample.
//   - GPipe: (M+K-1)(F+B) = 15 s for M = 4 micro-batches on K = 2 stages. A device computes for 12 s of this. Gradients
//     exist from the end of the first backward, when 3 of 4 samples are left.
//   - DAPPLE: also 15 s. Stage i holds K-i samples: 2 on stage 0 and 1 on stage 1.
//   - PipeDream: a batch is one micro-batch of 40 B, and takes 12 s without a flush. The first stage has two batches in
//     flight. When a backward ends, it still holds one, and both versions of the parameters.
//   - PipeDream-2BW: also 12 s. The stages hold as many samples as DAPPLE's, and one more version of the parameters.
func TestBaselinesByHand(t *testing.T) {
	p := plantest.Chain(2, 1, 2, 4)
	for i := range p.Layers {
		for j := range p.Layers[i].Costs {
			p.Layers[i].Costs[j].OutputBytes = 0
		}
	}
	w := &Workload{
		Profile: p, Cluster: cluster.Local("cpu", 2, 0, 0, 0, 1e18, 1e18), Batch: 4,
		Base: &plan.Plan{Replication: "round_robin", Model: "chain", Stages: []plan.Stage{
			{FirstLayer: 0, LastLayer: 0, Devices: []int{0}}, {FirstLayer: 1, LastLayer: 1, Devices: []int{1}}}},
	}
	baselines, err := w.Baselines(t.Context(), 4)
	if err != nil {
		t.Fatal(err)
	}
	want := []struct {
		name         string
		stepS, using float64
		bytes        []int64
	}{
		{"data parallelism", 12, 1, []int64{420, 420}},
		{"GPipe", 15, .8, []int64{230, 230}},
		{"DAPPLE", 15, .8, []int64{220, 210}},
		{"PipeDream", 12, 1, []int64{340, 200}},
		{"PipeDream-2BW", 12, 1, []int64{320, 310}},
	}
	if len(baselines) != len(want) {
		t.Fatalf("%d baselines, want %d", len(baselines), len(want))
	}
	for i, b := range baselines {
		c := want[i]
		if b.Name != c.name || !near(b.Predicted.StepS, c.stepS) || !near(b.Utilisation(), c.using) ||
			!slices.Equal(b.Predicted.MemoryBytes, c.bytes) {
			t.Errorf("%s takes %v s, computes for %v of them and holds %v bytes; want %+v", b.Name, b.Predicted.StepS,
				b.Utilisation(), b.Predicted.MemoryBytes, c)
		}
	}
}

// TestSchedulesOfASetting: of the three schedules, 1F1B holds the least and AFAB the most (section 7.2). Advance
// forward propagation chooses its depth so that it is never slower than 1F1B, and at most a little slower than AFAB.
func TestSchedulesOfASetting(t *testing.T) {
	w := workload()
	one, advance, all, err := w.Schedules(t.Context(), Degrees{8, 1})
	if err != nil {
		t.Fatal(err)
	}
	if one.Peak() > advance.Peak() || advance.Peak() > all.Peak() || one.Peak() == all.Peak() {
		t.Errorf("1F1B holds %d, advance %d, AFAB %d", one.Peak(), advance.Peak(), all.Peak())
	}
	if advance.StepS > one.StepS*(1+1e-9) || advance.StepS > all.StepS*(1+fasterBy+1e-9) {
		t.Errorf("1F1B takes %v s, advance %v, AFAB %v", one.StepS, advance.StepS, all.StepS)
	}
}
