package split

import (
	"errors"
	"math"
	"testing"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/plan/plantest"
	"github.com/millrace-ml/millrace/profile"
	"pgregory.net/rapid"
)

// randomProfile draws a chain of up to 8 layers, some of which also read an earlier layer's output.
func randomProfile(t *rapid.T) *profile.Profile {
	n := rapid.IntRange(1, 8).Draw(t, "layers")
	p := &profile.Profile{Version: 1, Model: "random", ModelID: "x",
		OptimizerStates: rapid.IntRange(0, 2).Draw(t, "states")}
	for i := range n {
		l := profile.Layer{Name: "l", From: []int{i - 1}, TiedTo: -1,
			ParameterBytes: rapid.Int64Range(0, 50).Draw(t, "parameters"),
			UpdateTimes:    profile.UpdateTimes{UpdateS: rapid.Float64Range(0, 1).Draw(t, "update")}}
		if i > 1 && rapid.Bool().Draw(t, "skip") {
			l.From = append(l.From, rapid.IntRange(0, i-2).Draw(t, "from"))
		}
		l.Costs = []profile.Cost{{Device: "cpu", MicroBatch: 1, ForwardS: rapid.Float64Range(0, 5).Draw(t, "f"),
			BackwardS:   rapid.Float64Range(0, 9).Draw(t, "b"),
			OutputBytes: rapid.Int64Range(0, 40).Draw(t, "out"), SavedBytes: rapid.Int64Range(0, 40).Draw(t,
				"saved"), WorkspaceBytes: rapid.Int64Range(0, 40).Draw(t, "work")}}
		p.Layers = append(p.Layers, l)
	}
	return p
}

func TestPipelineIsOptimal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := randomProfile(t)
		S := rapid.IntRange(1, len(p.Layers)).Draw(t, "stages")
		c := cluster.Local("cpu", S, 0, int64(rapid.IntRange(0, 400).Draw(t, "memory")), 0.1, 20, 0)
		l := Limits{Stages: S, MicroBatch: 1, MicroBatches: rapid.IntRange(1, 5).Draw(t, "M")}
		for range S {
			l.Recompute = append(l.Recompute, rapid.SampledFrom([]plan.Recompute{plan.KeepAll, plan.KeepInput,
				plan.Every(1), plan.Every(2)}).Draw(t, "again"))
		}
		s, err := newSplitter(p, c, l)
		if err != nil {
			t.Fatal(err)
		}
		want, smallest := math.Inf(1), int64(math.MaxInt64)
		plantest.EverySplit(len(p.Layers), S, func(cuts []int) {
			worst, most := 0.0, int64(0)
			for i, st := range s.plan(cuts).Stages {
				worst = max(worst, s.time(i, st.FirstLayer, st.LastLayer+1), s.transfer(i, st.FirstLayer))
				most = max(most, s.memory(i, st.FirstLayer, st.LastLayer+1))
			}
			smallest = min(smallest, most)
			if c.MemoryBytes(0) == 0 || most <= c.MemoryBytes(0) {
				want = min(want, worst)
			}
		})
		got, err := Pipeline(p, c, l)
		var memory *plan.MemoryError
		switch {
		case errors.As(err, &memory):
			if !math.IsInf(want, 1) || memory.SmallestBytes != smallest {
				t.Fatalf("refused with smallest %d; brute force: bottleneck %v, smallest %d", memory.SmallestBytes,
					want, smallest)
			}
		case err != nil:
			t.Fatal(err)
		case got.Objective.Value != want:
			t.Fatalf("bottleneck %v, brute force %v", got.Objective.Value, want)
		}
	})
}

func TestPipelineRefusals(t *testing.T) {
	p := &profile.Profile{Model: "m", Layers: []profile.Layer{{TiedTo: -1,
		Costs: []profile.Cost{{Device: "cpu", MicroBatch: 2}}}}}
	c := cluster.Local("cpu", 4, 0, 0, 0, 1, 0)
	for _, l := range []Limits{{Stages: 2, MicroBatch: 2, MicroBatches: 1}, {Stages: 1, MicroBatch: 3, MicroBatches: 1},
		{Stages: 1, MicroBatch: 2}} {
		if _, err := Pipeline(p, c, l); err == nil {
			t.Errorf("%+v was accepted", l)
		}
	}
}
