package tune

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/plan/plantest"
	"pgregory.net/rapid"
)

// TestFixedStagesGiveNoFasterPlan: a search in a small space with a fixed schedule finds a plan as fast as the searches
// that fix the number of stages too.
func TestFixedStagesGiveNoFasterPlan(t *testing.T) {
	t.Parallel()
	for _, schedule := range []string{"1f1b", "zb-h1"} {
		found := 0
		checkSearches(t, 2, func(t *rapid.T) {
			p, c := world(t, rapid.IntRange(3, 5).Draw(t, "layers"), rapid.IntRange(2, 3).Draw(t, "devices"))
			r := Request{Profile: p, Cluster: c, Batch: 4, Fix: Overrides{Schedule: schedule, MicroBatches: 4}}
			free, err := Search(t.Context(), r)
			if memory := (*MemoryError)(nil); errors.As(err, &memory) {
				return
			} else if err != nil {
				t.Fatal(err)
			}
			if !free.search.exhausted {
				return // costs that vary are not examined
			}
			for S := 2; S <= len(c.Devices); S++ {
				r.Fix.Stages = S
				of, err := Search(t.Context(), r)
				if err != nil || slices.ContainsFunc(of.Best.Stages, func(st plan.Stage) bool { return st.Recompute.Again() }) {
					continue // no plan fits, or recompute is faster, which random costs may say, and measured ones seldom
				}
				found++
				if of.Best.Predicted.StepS < free.Best.Predicted.StepS*(1-tie) {
					t.Fatalf("%s: %d stages take %g s, any number takes %g", schedule, S, of.Best.Predicted.StepS,
						free.Best.Predicted.StepS)
				}
			}
		})
		if found == 0 {
			t.Errorf("%s: nothing was compared", schedule)
		}
	}
}

// asked is a context that counts how often it is asked for its error.
type asked struct {
	context.Context
	times *int
}

func (a asked) Err() error { *a.times++; return a.Context.Err() }

// TestFixedSettingsAreNoLongWalk: every shape that an enumeration visits is one that it yields. A walk past millions of
// shapes with other stages or schedules would use up the time of a search.
func TestFixedSettingsAreNoLongWalk(t *testing.T) {
	t.Parallel()
	for _, fix := range []Overrides{{Stages: 8}, {Stages: 1}, {Schedule: "chimera"}, {Schedule: "zb-h1"},
		{Schedule: "dp"}} {
		s, err := newSearch(Request{Profile: plantest.Chain(9, 1), Batch: 8, Fix: fix,
			Cluster: cluster.Local("cpu", 8, 0, 0, 0, 1e9, 1e9)})
		if err != nil {
			t.Fatal(err)
		}
		visited, yielded := 0, 0
		s.every.everyPlan(asked{t.Context(), &visited}, func(h *shape) bool {
			if yielded++; fix.Schedule != "" && h.family != fix.Schedule || fix.Stages > 0 && h.stages() != fix.Stages {
				t.Fatalf("%+v: %s with %d stages", fix, h.family, h.stages())
			}
			return yielded < 1000
		})
		if yielded == 0 || visited > yielded {
			t.Errorf("%+v: %d shapes visited, %d yielded", fix, visited, yielded)
		}
	}
}

// TestReplicasDivideAFixedMicroBatch: a step is one micro-batch of four samples, for four layers that take 1 s forward
// and 2 s backward a sample. One worker takes 48 s, two that divide it 24 s, and four 12 s, besides the sum of
// gradients. So do the free search and every search with the one micro-batch.
func TestReplicasDivideAFixedMicroBatch(t *testing.T) {
	t.Parallel()
	for workers, want := range map[int]float64{2: 24, 4: 12} {
		r := Request{Profile: plantest.Chain(4, 1, 2, 4), Batch: 4,
			Cluster: cluster.Local("cpu", workers, 0, 0, 0, 1e12, 1e12)}
		r.Profile.Slices = []int{1, 2}
		for _, fix := range []Overrides{{}, {MicroBatch: 4}, {MicroBatches: 1, MicroBatch: 4, Schedule: "dp"},
			{MicroBatches: 1, MicroBatch: 4, Stages: 1}} {
			r.Fix = fix
			found, err := Search(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			if got := found.Best.Predicted.StepS; math.Abs(got/want-1) > 1e-6 || len(found.Best.Devices()) != workers {
				t.Errorf("%+v: %d of %d workers take %v s, not %v", fix, len(found.Best.Devices()), workers, got, want)
			}
		}
		r.Whole, r.Fix = true, Overrides{MicroBatch: 4, Schedule: "dp"}
		if found, err := Search(t.Context(), r); err != nil || math.Abs(found.Best.Predicted.StepS/48-1) > 1e-6 {
			t.Errorf("a micro-batch that stays whole: %+v, %v", found, err)
		}
	}
}

// TestSlicesFitWhereMicroBatchesDoNot: two workers could take turns with two micro-batches of two samples, which save
// 8000 B each, besides 400 B of weights. With 6000 B they must divide each of them. Then each computes two slices of
// 12 s.
func TestSlicesFitWhereMicroBatchesDoNot(t *testing.T) {
	r := Request{Profile: plantest.Chain(4, 1, 2), Batch: 4, Cluster: cluster.Local("cpu", 2, 0, 6000, 0, 1e12, 1e12),
		Fix: Overrides{MicroBatch: 2, Schedule: "dp", Recompute: "none"}}
	for i := range r.Profile.Layers {
		for k := range r.Profile.Layers[i].Costs {
			r.Profile.Layers[i].Costs[k].SavedBytes *= 100
		}
	}
	found, err := Search(t.Context(), r)
	if err != nil || found.Best.Replication != "split" || math.Abs(found.Best.Predicted.StepS/24-1) > 1e-6 {
		t.Fatalf("%+v, %v", found, err)
	}
}

// TestStagesOfASplit: a fixed split must have the fixed number of stages, if there is one.
func TestStagesOfASplit(t *testing.T) {
	for stages, fits := range map[int]bool{0: true, 1: false, 2: true, 3: false} {
		found, err := Search(t.Context(), Request{Profile: plantest.Chain(4, 1), Batch: 4,
			Cluster: cluster.Local("cpu", 4, 0, 0, 0, 1e9, 1e9), Fix: Overrides{Split: []int{2}, Stages: stages}})
		var setting *SettingError
		if fits != (err == nil) || !fits && (!errors.As(err, &setting) || setting.Key != "split") {
			t.Errorf("%d stages: %+v, %v", stages, found, err)
		}
	}
}
