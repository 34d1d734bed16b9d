package tune

import (
	"errors"
	"slices"
	"testing"

	"github.com/millrace-ml/millrace/plan"
	"pgregory.net/rapid"
)

// TestAPlannersNamedLimitIsMet: under the limit that FittingLimit names, the planner that refused
// plans, and the simulator finds its plan to keep it; under what it named itself it plans too, by its own count.
func TestAPlannersNamedLimitIsMet(t *testing.T) {
	for _, name := range []string{"bapipe", "dapple"} {
		planner, err := plan.LookupPlanner(name)
		if err != nil {
			t.Fatal(err)
		}
		refused := 0
		rapid.Check(t, func(t *rapid.T) {
			p, c := world(t, rapid.IntRange(2, 6).Draw(t, "layers"), rapid.IntRange(1, 4).Draw(t, "devices"))
			for i := range p.Layers {
				for k := range p.Layers[i].Costs {
					p.Layers[i].Costs[k].WorkspaceBytes = rapid.Int64Range(0, 50).Draw(t, "workspace")
				}
			}
			r := plan.Request{Profile: p, Cluster: limitedTo(c, 1), Batch: 4}
			_, err := planner.Plan(t.Context(), r)
			if !errors.Is(err, plan.ErrMemory) {
				t.Fatalf("one byte is enough? %v", err)
			}
			refused++
			from := int64(1)
			var memory *plan.MemoryError
			if errors.As(err, &memory) {
				from = memory.SmallestBytes
				r.Cluster = limitedTo(c, from)
				if _, err := planner.Plan(t.Context(), r); err != nil {
					t.Fatalf("%d bytes were said to do: %v", from, err)
				}
			}
			limit, _, err := FittingLimit(t.Context(), planner, r, from)
			if err != nil {
				t.Fatal(err)
			}
			r.Cluster = limitedTo(c, limit)
			again, err := planner.Plan(t.Context(), r)
			if err != nil {
				t.Fatalf("%d bytes fit before: %v", limit, err)
			}
			predicted, err := Simulate(p, r.Cluster, again, false)
			if err != nil {
				t.Fatal(err)
			}
			if peak := slices.Max(predicted.Needs()); peak > limit {
				t.Fatalf("%d bytes are said to fit, %d are held", limit, peak)
			}
		})
		if refused == 0 {
			t.Errorf("%s refused nothing", name)
		}
	}
}
