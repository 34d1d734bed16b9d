package avgpipe

import (
	"context"
	"math"
	"testing"

	"github.com/millrace-ml/millrace/lab/reproduce/table"
)

// trainingOf returns a training of Figure 11's table.
func trainingOf(t *testing.T, name string) compared {
	t.Helper()
	trainings, err := ofTrainings[compared](&table.Table{}, "fig11")
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range trainings {
		if w.Training.Name == name {
			return w
		}
	}
	t.Fatalf("there is no training of %s", name)
	return compared{}
}

// Each assumption changes what its name says. A baseline of BERT cuts 32 samples into 8 micro-batches of 4. If 4
// samples fill 60 % of a GPU, every computation of a layer takes longer, by the time of 4*(1/0.6 - 1) = 8/3 samples at
// the peak rate. So 4 samples at the peak rate would take 0.6 of the time that such a micro-batch takes.
func TestWorldsChangeWhatTheyName(t *testing.T) {
	w := trainingOf(t, "bert")
	described, _, err := world{}.load(t.Context(), w.Training, w.MicroBatches)
	if err != nil {
		t.Fatal(err)
	}
	emptier, _, err := world{fill: peak}.load(t.Context(), w.Training, w.MicroBatches)
	if err != nil {
		t.Fatal(err)
	}
	device := described.Cluster.Devices[0]
	of := func(layer, size int) (now, then, best float64) {
		a, _, err := described.Profile.At(device, size)
		if err != nil {
			t.Fatal(err)
		}
		b, _, err := emptier.Profile.At(device, size)
		if err != nil {
			t.Fatal(err)
		}
		forward, _, err := described.Profile.Stretches(device, layer, layer, size)
		if err != nil {
			t.Fatal(err)
		}
		return a[layer].ForwardS, b[layer].ForwardS, forward[0].PeakS
	}
	const block = 3
	if _, then, best := of(block, 4); math.Abs(best/then-.6) > .05 {
		t.Errorf("4 samples fill %.2f of a GPU, want 0.6", best/then)
	}
	now, then, best := of(block, 1)
	if want := 8. / 3 * best; math.Abs(then-now-want) > 1e-3*want {
		t.Errorf("a sample takes %v s more, want %v", then-now, want)
	}
	blocking, _, err := world{blocking: true}.load(t.Context(), w.Training, w.MicroBatches)
	if err != nil {
		t.Fatal(err)
	}
	for i, l := range blocking.Cluster.Levels {
		if !l.OccupiesDevice || described.Cluster.Levels[i].OccupiesDevice {
			t.Errorf("level %s occupies devices: %v, and as described %v", l.Name, l.OccupiesDevice,
				described.Cluster.Levels[i].OccupiesDevice)
		}
	}
	// In the text, advance saves 37.2 % of AFAB's memory on GPU 1. So activations must be a large part of this memory.
	// But if the partitioner considers the wires' 1 Gbps, GPU 1 gets at most three layers.
	narrow, _, err := world{narrow: true}.load(t.Context(), w.Training, w.MicroBatches)
	if err != nil {
		t.Fatal(err)
	}
	if a, b := described.Base.Stages[0].LastLayer, narrow.Base.Stages[0].LastLayer; a < 4 || b > 2 {
		t.Errorf("GPU 1 ends with layer %d, and where the partitioner sees the wires with %d", a, b)
	}
	launches, _, err := world{kernels: true}.load(t.Context(), trainingOf(t, "awd-lm").Training, 4)
	if err != nil {
		t.Fatal(err)
	}
	few, _, err := launches.Profile.At(device, 1)
	if err != nil {
		t.Fatal(err)
	}
	many, _, err := launches.Profile.At(device, 8)
	if err != nil {
		t.Fatal(err)
	}
	if a, b := few[1].ForwardS, many[1].ForwardS; launches.Profile.Layers[1].Kind != "lstm" || b > 1.5*a {
		t.Errorf("an LSTM of 70 positions takes %v s for a sample and %v for 8: launches are most of either", a, b)
	}
	untied, _, err := world{untied: true}.load(t.Context(), trainingOf(t, "awd-lm").Training, 4)
	if err != nil {
		t.Fatal(err)
	}
	if groups := untied.Profile.TiedLayers(); len(groups) != 0 {
		t.Errorf("layers %v are tied", groups)
	}
}

// comparedIn returns a training of Figure 11, compared with its baselines under the assumptions `x`.
func comparedIn(ctx context.Context, t *testing.T, name string, x world) *comparison {
	t.Helper()
	c, err := trainingOf(t, name).in(ctx, x)
	if err != nil {
		t.Fatal(err)
	}
	return c
}
