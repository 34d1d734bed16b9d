package tune

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/plan/bound"
	"github.com/millrace-ml/millrace/plan/plantest"
	"github.com/millrace-ml/millrace/plan/split"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/tune/predict"
	"pgregory.net/rapid"
)

func TestFreeTransfersAndCostlySumsMakeAPipeline(t *testing.T) {
	t.Parallel()
	request := Request{Profile: plantest.Chain(8, 1), Cluster: cluster.Local("cpu", 2, 0, 0, 0, 1e9, 0.01), Batch: 16}
	free, err := Search(context.Background(), request)
	if err != nil {
		t.Fatal(err)
	}
	if free.Best.Predicted.StepS > 204*1.001 || free.Best.LowerBound.Gap < 0 {
		t.Errorf("any family takes %v, 1F1B 204; gap %v", free.Best.Predicted.StepS, free.Best.LowerBound.Gap)
	}
	request.Fix.Schedule = "1f1b"
	r, err := Search(context.Background(), request)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Best.Stages) != 2 || r.Best.Stages[1].FirstLayer != 4 {
		t.Errorf("chose %v", r.Best.Why)
	}
	// 16 + 2 - 1 = 17 slots of 12 s on each of two equal stages.
	if got, want := r.Best.Predicted.StepS, 17.0*12; got < want || got > want*1.001 {
		t.Errorf("step %v, want %v", got, want)
	}
	if r.Best.LowerBound.Gap < 0 || r.Best.LowerBound.Gap > 0.001 {
		t.Errorf("gap %v to the bound; the formula is met, so it is 0", r.Best.LowerBound.Gap)
	}
}

func TestFreeSumsMakeDataParallelism(t *testing.T) {
	t.Parallel()
	r, err := Search(context.Background(), Request{Profile: plantest.Chain(8, 1),
		Cluster: cluster.Local("cpu", 2, 0, 0, 0.1, 1, 1e12),
		Batch:   16})
	if err != nil {
		t.Fatal(err)
	}
	if r.Best.Schedule != "dp" || len(r.Best.Stages[0].Devices) != 2 {
		t.Errorf("chose %v", r.Best.Why)
	}
}

func TestMemoryMakesItRecompute(t *testing.T) {
	t.Parallel()
	request := Request{Profile: plantest.Chain(8, 1), Cluster: cluster.Local("cpu", 2, 0, 0, 0, 1e9, 0.01), Batch: 16,
		Fix: Overrides{Stages: 2}}
	free, err := Search(context.Background(), request)
	if err != nil {
		t.Fatal(err)
	}
	request.Cluster = cluster.Local("cpu", 2, 0, slices.Max(free.Best.Predicted.MemoryBytes)-1, 0, 1e9, 0.01)
	tight, err := Search(context.Background(), request)
	if err != nil {
		t.Fatal(err)
	}
	for i, bytes := range tight.Best.Predicted.MemoryBytes {
		if bytes > request.Cluster.MemoryBytes(i) {
			t.Errorf("worker %d holds %d of %d", i, bytes, request.Cluster.MemoryBytes(i))
		}
	}
	request.Cluster = cluster.Local("cpu", 2, 0, 10, 0, 1e9, 0.01)
	_, err = Search(context.Background(), request)
	var memory *MemoryError
	if !errors.As(err, &memory) {
		t.Fatalf("got %v, want a refusal", err)
	}
	request.Cluster = cluster.Local("cpu", 2, 0, memory.SmallestBytes, 0, 1e9, 0.01)
	if _, err := Search(context.Background(), request); err != nil {
		t.Errorf("the limit it asked for is refused too: %v", err)
	}
}

// TestBoundIsBelowEverything: on small random chains, no plan of any split, family and size beats the bound.
func TestBoundIsBelowEverything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 5).Draw(t, "layers")
		p := plantest.Chain(n, 1, 2)
		for i := range p.Layers {
			p.Layers[i].UpdateS = rapid.Float64Range(0, 2).Draw(t, "u")
			if i > 1 && rapid.Bool().Draw(t, "skip") {
				p.Layers[i].From = []int{rapid.IntRange(0, i-1).Draw(t, "from")}
			}
			for j := range p.Layers[i].Costs {
				c := &p.Layers[i].Costs[j]
				c.ForwardS, c.BackwardS = rapid.Float64Range(0.1, 3).Draw(t, "f"), rapid.Float64Range(0.1, 3).Draw(t, "b")
				c.OutputBytes = rapid.Int64Range(0, 20).Draw(t, "out")
			}
		}
		workers := rapid.IntRange(1, 3).Draw(t, "workers")
		c := cluster.Local("cpu", workers, rapid.IntRange(0, workers).Draw(t, "cores"), 0,
			rapid.Float64Range(0, 1).Draw(t, "latency"), 10, 10)
		batch := rapid.SampledFrom([]int{2, 4, 6}).Draw(t, "batch")
		bound := bound.Step(p, c, bound.Kind{Workers: workers, Batch: batch, Sizes: []int{1, 2}})
		check := func(pl *plan.Plan) {
			got, err := predict.Plan(p, c, pl, false)
			if err != nil {
				t.Fatal(err)
			}
			if got.StepS < bound*(1-1e-9) {
				t.Fatalf("%s takes %v, the bound is %v", describe(p, pl), got.StepS, bound)
			}
		}
		for _, m := range []int{1, 2} {
			for r := 1; r <= min(workers, batch/m); r++ {
				pl, err := split.DataParallel(p, c, m, batch/m, r)
				if err != nil {
					t.Fatal(err)
				}
				check(pl)
			}
			for S := 2; S <= min(workers, n); S++ {
				for _, f := range family.All() {
					if f.Warmup == nil || !f.AdmitsPolicy(schedule.Sync) {
						continue
					}
					pl, err := split.Pipeline(p, c, split.Limits{Stages: S, MicroBatch: m, MicroBatches: batch / m,
						Depths: f.Warmup(S, batch/m)})
					if err != nil {
						t.Fatal(err)
					}
					pl.Schedule = f.Name
					plantest.EverySplit(n, S, func(cuts []int) {
						for i := range pl.Stages {
							pl.Stages[i].FirstLayer, pl.Stages[i].LastLayer = 0, n-1
							if i > 0 {
								pl.Stages[i].FirstLayer = cuts[i-1]
							}
							if i < len(cuts) {
								pl.Stages[i].LastLayer = cuts[i] - 1
							}
						}
						check(pl)
					})
				}
			}
		}
	})
}

func TestRefusals(t *testing.T) {
	c := cluster.Local("cpu", 2, 0, 0, 0, 1e9, 1)
	for _, r := range []Request{
		{Profile: plantest.Chain(3, 2), Cluster: c, Batch: 7},
		{Profile: plantest.Chain(3, 1), Cluster: c, Batch: 8, Fix: Overrides{MicroBatches: 3}},
		{Profile: plantest.Chain(3, 1), Cluster: c, Batch: 8, Fix: Overrides{Stages: 3}},
		{Profile: plantest.Chain(3, 1), Cluster: cluster.Local("cpu", 9, 0, 0, 0, 1, 1), Batch: 8, Fix: Overrides{Stages: 4}},
		{Profile: plantest.Chain(3, 1), Cluster: c, Batch: 8, Fix: Overrides{Schedule: "1f2b"}},
		{Profile: plantest.Chain(3, 1), Cluster: c, Batch: 8, Fix: Overrides{Split: []int{3}}},
		{Profile: plantest.Chain(3, 1), Cluster: c, Batch: 8, Fix: Overrides{Recompute: "some"}},
		{Profile: plantest.Chain(3, 1), Cluster: c, Batch: 8, Fix: Overrides{Stages: 2, Schedule: "dp"}},
	} {
		if got, err := Search(context.Background(), r); err == nil {
			t.Errorf("%+v was accepted: %v", r.Fix, got.Best.Why)
		} else {
			t.Log(err)
		}
	}
}

// TestBoundOfWhatIsKnownOfSlices: a micro-batch size whose costs are known only for slices has a bound. A size without
// any costs has none.
func TestBoundOfWhatIsKnownOfSlices(t *testing.T) {
	p, c := plantest.Chain(2, 1), cluster.Local("cpu", 2, 0, 0, 0, 10, 10)
	pl, err := split.DataParallel(p, c, 1, 4, 2)
	if err != nil {
		t.Fatal(err)
	}
	pl.MicroBatch, pl.MicroBatches, pl.Replication = 2, 2, "split"
	got, err := predict.Plan(p, c, pl, false)
	if err != nil {
		t.Fatal(err)
	}
	least := bound.Step(p, c, bound.Kind{Workers: 2, Batch: 4, Sizes: []int{2}})
	if least < 12 || least > got.StepS { // two micro-batches of two layers, 3 s each for a sample
		t.Errorf("bound %v, the plan takes %v", least, got.StepS)
	}
	if least := bound.Step(p, c, bound.Kind{Workers: 2, Batch: 28, Sizes: []int{7, 14}}); least != 0 {
		t.Errorf("of sizes that nothing is known of: %v", least)
	}
}

// TestBoundTakesTheFewestBytes: the bytes that cross a cut may depend on the device that sends them. The bound takes
// the fewest.
func TestBoundTakesTheFewestBytes(t *testing.T) {
	p := plantest.Chain(2, 1)
	for i := range p.Layers {
		few := p.Layers[i].Costs[0]
		few.Device, few.OutputBytes = "few", 0
		p.Layers[i].Costs[0].OutputBytes, p.Layers[i].UpdateS = 100, 10 // with such long updates, two stages are faster
		p.Layers[i].Costs = append(p.Layers[i].Costs, few)
	}
	c := cluster.Local("cpu", 3, 0, 0, 0, 1, 1e9)
	c.DeviceTypes["few"] = cluster.DeviceType{}
	for _, order := range [][]string{{"few", "few", "cpu"}, {"cpu", "few", "few"}} {
		c.Devices = order
		pl, err := split.Pipeline(p, c, split.Limits{Stages: 2, MicroBatch: 1, MicroBatches: 1})
		if err != nil {
			t.Fatal(err)
		}
		for i := range pl.Stages {
			pl.Stages[i].Devices = []int{slices.Index(order, "few") + i}
		}
		got, err := predict.Plan(p, c, pl, false)
		if err != nil {
			t.Fatal(err)
		}
		if least := bound.Step(p, c, bound.Kind{Workers: 3, Batch: 1, Sizes: []int{1}}); least > got.StepS {
			t.Errorf("%v: bound %v, a plan takes %v", order, least, got.StepS)
		}
	}
}
