package tune

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/plan/plantest"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/tune/predict"
)

// uneven returns a chain of layers that cannot be cut into equal stages.
func uneven(layers int, sizes ...int) *profile.Profile {
	p := plantest.Chain(layers, sizes...)
	for i := range p.Layers {
		for k := range p.Layers[i].Costs {
			p.Layers[i].Costs[k].ForwardS *= float64(1 + (7*i)%5)
			p.Layers[i].Costs[k].BackwardS *= float64(1 + (5*i)%7)
		}
	}
	return p
}

// TestAFamilyThatIsFixedIsCutInTime: on many devices, the search has time left to simulate plans of a fixed family.
// Their stages come from cutAnew, because the search over depths has no plans that are similar to those of this family.
func TestAFamilyThatIsFixedIsCutInTime(t *testing.T) {
	t.Parallel()
	found, err := Search(t.Context(), Request{Profile: uneven(64, 1, 2, 4), Batch: 128,
		Cluster: cluster.Local("cpu", 64, 0, 0, 0, 1e9, 1e9), Fix: Overrides{Schedule: "zb-h1"}})
	if err != nil || found.Best.Schedule != "zb-h1" {
		t.Fatalf("%+v, %v", found, err)
	}
}

// TestFixedStagesAreThoseOfEveryPlan: if the number of stages is fixed, every plan has that number. Families with
// several stages a worker would use more, and some do if nothing is fixed.
func TestFixedStagesAreThoseOfEveryPlan(t *testing.T) {
	for _, fixed := range []int{0, 2} {
		found, err := Search(t.Context(), Request{Profile: uneven(16, 1, 2, 4), Batch: 4,
			Cluster: cluster.Local("cpu", 4, 0, 0, 0, 1e9, 1e9), Fix: Overrides{Stages: fixed}})
		if err != nil {
			t.Fatal(err)
		}
		other := len(found.Best.Stages) != 2
		for _, r := range found.Rivals {
			other = other || r.Plan != nil && len(r.Plan.Stages) != 2
		}
		if other != (fixed == 0) {
			t.Errorf("stages fixed to %d: %d in the plan; with other numbers: %v", fixed, len(found.Best.Stages), other)
		}
	}
}

// TestACutFamilyHasEveryNumberOfStages: for each number of stages there are three partitions, each with and without
// recompute. One is on as many devices as stages. The others are on all devices; replicas take turns with micro-batches
// or divide each of them. A partition is one that fits or, if none fits, the fastest.
func TestACutFamilyHasEveryNumberOfStages(t *testing.T) {
	for _, memory := range []int64{0, 700} { // each of two stages of four layers holds 800 B of weights and gradients
		s, err := newSearch(Request{Profile: plantest.Chain(8, 1), Cluster: cluster.Local("cpu", 5, 0, memory, 0, 1e9, 1e9),
			Batch: 16, Fix: Overrides{Schedule: "zb-h1"}})
		if err != nil {
			t.Fatal(err)
		}
		count := map[string]int{}
		for _, h := range s.cut.cutAnew(t.Context()) {
			count[fmt.Sprint(h.stages(), h.used(), h.split, h.again[0])]++
		}
		for stages := 2; stages <= 5; stages++ {
			for _, c := range []struct {
				devices int
				split   bool
			}{{stages, false}, {5, false}, {5, true}} {
				if c.split && stages == 5 {
					continue // there are no replicas
				}
				for _, again := range []plan.Recompute{plan.KeepAll, plan.KeepInput} {
					if n := count[fmt.Sprint(stages, c.devices, c.split, again)]; n != 1 {
						t.Errorf("%d B each: %d ways to cut %d stages, %+v, recompute %v", memory, n, stages, c, again)
					}
				}
			}
		}
	}
}

// TestStagesBeyondTheWorkers: a number of stages above the number of workers is planned if the family can have that
// many stages, with several on a worker. Otherwise it is refused.
func TestStagesBeyondTheWorkers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		schedule string
		stages   int
		want     string // part of the refusal; empty if there is a plan with this many stages
	}{
		{"interleaved", 4, ""}, {"interleaved", 8, ""}, {"zb-v", 4, ""}, {"v-half", 4, ""}, {"bfs", 4, ""},
		{"interleaved", 6, ""}, {"dp-overlap", 2, ""}, {"dp-overlap", 3, ""}, {"dp-overlap", 5, ""},
		{"interleaved", 3, `schedule "interleaved": it has 4 or 8 stages on 2 workers, not 3`},
		{"zb-v", 3, `schedule "zb-v": it has 4 stages on 2 workers, not 3`},
		{"chimera", 4, `schedule "chimera": it has 2 stages on 2 workers, not 4`},
		{"1f1b", 3, "3 stages for 2 workers"},
	} {
		found, err := Search(t.Context(), Request{Profile: uneven(12, 1, 2, 4, 8), Batch: 8,
			Cluster: cluster.Local("cpu", 2, 0, 0, 0, 1e9, 1e9), Fix: Overrides{Schedule: c.schedule, Stages: c.stages}})
		switch {
		case c.want == "" && (err != nil || len(found.Best.Stages) != c.stages || found.Best.Schedule != c.schedule):
			t.Errorf("%s on %d stages: %+v, %v", c.schedule, c.stages, found, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s on %d stages: %v; want it to say %q", c.schedule, c.stages, err, c.want)
		}
	}
}

// TestPlansOfOtherFamiliesAreMovedToo: on a chain that cannot be cut into equal stages, no single move makes a best
// plan clearly better. This is checked for families with several stages on a worker, and for one without a flush.
func TestPlansOfOtherFamiliesAreMovedToo(t *testing.T) {
	t.Parallel()
	p := uneven(26, 1, 2)
	c := cluster.Local("cpu", 4, 0, 0, 0, 1e9, 1e9)
	for _, fix := range []Overrides{{Schedule: "interleaved"}, {Schedule: "zb-v"}, {Schedule: "chimera"},
		{Weights: schedule.Stash}} {
		r := Request{Profile: p, Cluster: c, Batch: 16, Fix: fix}
		found, err := Search(context.Background(), r)
		if err != nil {
			t.Fatal(err)
		}
		s, err := newSearch(r)
		if err != nil {
			t.Fatal(err)
		}
		if !movable(found.Best) {
			t.Errorf("%+v: %s", fix, found.Best.Why[0])
			continue
		}
		moves := 0
		s.move.nearby(found.Best, func(next *plan.Plan) bool {
			moves++
			if q, err := predict.Plan(p, c, next, false); err == nil && q.StepS < found.Best.Predicted.StepS*(1-2*worthMoving) {
				t.Errorf("%s %s: %v s, a move away %v s: %s", found.Best.Schedule, found.Best.Weights,
					found.Best.Predicted.StepS, q.StepS, describe(p, next))
				return false
			}
			return true
		})
		if moves < 4 {
			t.Errorf("%s: %d moves", found.Best.Schedule, moves)
		}
	}
}
