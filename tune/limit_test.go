package tune

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/plan/plantest"
	"github.com/millrace-ml/millrace/tune/predict"
	"pgregory.net/rapid"
)

// TestAPlannersNamedLimitIsMet: each planner that refuses names a limit. By its own count it finds a plan with that
// limit, and none with one byte less. The error says where and by how much the memory is exceeded. With the limit of
// FittingLimit, the planner's plan fits in simulation too.
func TestAPlannersNamedLimitIsMet(t *testing.T) {
	t.Parallel()
	straight := map[string]string{"memory": "on", "straight_pipeline": "on"}
	for _, asked := range []struct {
		planner string
		set     map[string]string
	}{
		{"bapipe", nil}, {"dapple", nil}, {"dapple", map[string]string{"dp": "no", "recompute": "no"}},
		{"dapple", map[string]string{"recompute": "yes"}},
		{"avgpipe", map[string]string{"memory": "on"}}, {"pipedream", straight},
		{"pipedream", map[string]string{"memory": "on", "straight_pipeline": "on", "use_fewer_machines": "on",
			"cuts": "ancestors"}},
	} {
		planner, err := plan.LookupPlanner(asked.planner)
		if err != nil {
			t.Fatal(err)
		}
		refused := 0
		checkSearches(t, 1, func(t *rapid.T) {
			p, c := world(t, rapid.IntRange(2, 6).Draw(t, "layers"), rapid.IntRange(1, 4).Draw(t, "devices"))
			for i := range p.Layers {
				for k := range p.Layers[i].Costs {
					p.Layers[i].Costs[k].WorkspaceBytes = rapid.Int64Range(0, 50).Draw(t, "workspace")
				}
			}
			r := plan.Request{Profile: p, Cluster: limitedTo(c, 1), Batch: 4, Set: asked.set}
			_, err := planner.Plan(t.Context(), r)
			if err == nil || !errors.Is(err, plan.ErrMemory) {
				// With settings, a planner may find a plan in one byte, because by PipeDream's rule a single stage
				// holds nothing. Or it may have another reason to refuse. PipeDream must use every device unless
				// use_fewer_machines is on. DAPPLE without dp needs two stages, and a stage has at most as many
				// replicas as samples.
				if asked.set == nil {
					t.Fatalf("one byte is enough? %v", err)
				}
				return
			}
			refused++
			var memory *plan.MemoryError
			if !errors.As(err, &memory) {
				t.Fatalf("%v names no limit", err)
			}
			if memory.Planner != asked.planner || memory.NeedBytes != memory.SmallestBytes || memory.LimitBytes != 1 ||
				memory.Stage < 0 || memory.Stage >= memory.Stages {
				t.Fatalf("%+v", memory)
			}
			from := memory.SmallestBytes
			for _, less := range []int64{0, 1} {
				r.Cluster = limitedTo(c, from-less)
				if _, err := planner.Plan(t.Context(), r); (err == nil) != (less == 0) {
					t.Fatalf("%d bytes were said to be the least that would do; %d less: %v", from, less, err)
				}
			}
			r.Cluster = limitedTo(c, 1)
			limit, _, err := FittingLimit(t.Context(), planner, r, from)
			if err != nil {
				t.Fatal(err)
			}
			r.Cluster = limitedTo(c, limit)
			again, err := planner.Plan(t.Context(), r)
			if err != nil {
				t.Fatalf("%d bytes fit before: %v", limit, err)
			}
			predicted, err := predict.Plan(p, r.Cluster, again, false)
			if err != nil {
				t.Fatal(err)
			}
			if peak := slices.Max(predicted.Needs()); peak > limit {
				t.Fatalf("%d bytes are said to fit, %d are held", limit, peak)
			}
		})
		if refused == 0 {
			t.Errorf("%s with %v refused nothing", asked.planner, asked.set)
		}
	}
}

// TestALimitOfSettingsIsNotTheDevices: a planner with a limit in its settings is run only once, because larger devices
// would not change its answer.
func TestALimitOfSettingsIsNotTheDevices(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, c := world(t, rapid.IntRange(2, 6).Draw(t, "layers"), rapid.IntRange(2, 4).Draw(t, "devices"))
		planner, err := plan.LookupPlanner("pipedream")
		if err != nil {
			t.Fatal(err)
		}
		asked, own := 0, planner.Plan
		planner.Plan = func(ctx context.Context, r plan.Request) (*plan.Plan, error) {
			asked++
			return own(ctx, r)
		}
		r := plan.Request{Profile: p, Cluster: c, Batch: 4, Set: map[string]string{"memory": "1", "straight_pipeline": "on"}}
		var memory *plan.MemoryError
		if _, err := own(t.Context(), r); !errors.As(err, &memory) {
			return // more devices than layers
		}
		if limit, _, err := FittingLimit(t.Context(), planner, r, memory.SmallestBytes); !errors.Is(err,
			plan.ErrMemory) || asked != 1 {
			t.Fatalf("asked %d times: %d, %v", asked, limit, err)
		}
	})
}

// TestTheNamedLimitIsLean: further searches lower the limit that a search names, and a search with it finds a plan.
func TestTheNamedLimitIsLean(t *testing.T) {
	t.Parallel()
	lower := 0
	for _, layers := range []int{8, 12, 16} {
		p := plantest.Chain(layers, 1)
		for l := range p.Layers {
			for i := range p.Layers[l].Costs {
				p.Layers[l].Costs[i].SavedBytes = 50 * p.Layers[l].Costs[i].OutputBytes
			}
		}
		r := Request{Profile: p, Cluster: limitedTo(cluster.Local("cpu", 2, 0, 0, 0, 1e9, 1e9), 1), Batch: 8, inner: true,
			Longest: time.Hour}
		var once, again *MemoryError
		if _, err := Search(t.Context(), r); !errors.As(err, &once) {
			t.Fatal(err)
		}
		r.inner = false
		if _, err := Search(t.Context(), r); !errors.As(err, &again) || again.SmallestBytes > once.SmallestBytes {
			t.Fatalf("%v, and after one search %v", err, once)
		}
		if again.SmallestBytes < once.SmallestBytes {
			lower++
		}
		if over := again.SmallestBytes - again.LimitBytes; again.OverBytes != over {
			t.Errorf("it is %d over, and with %d more there is a plan", again.OverBytes, over)
		}
		r.Cluster = limitedTo(r.Cluster, again.SmallestBytes)
		if _, err := Search(t.Context(), r); err != nil {
			t.Errorf("with what was named: %v", err)
		}
	}
	if lower == 0 {
		t.Error("no limit is lower, so the test shows nothing")
	}
}

// A plan far above the bound that needs nearly all the memory is said to be one of which better ones may be missed.
func TestLittleMemoryIsNamed(t *testing.T) {
	r := Request{Profile: plantest.Chain(8, 1), Batch: 8,
		Cluster: limitedTo(cluster.Local("cpu", 2, 0, 0, 0, 1e9, 1e9), 1000)}
	for _, k := range []struct {
		stepS float64
		needs int64
		want  bool
	}{{4, 990, true}, {2, 990, false}, {4, 900, false}} {
		s, err := newSearch(r)
		if err != nil {
			t.Fatal(err)
		}
		found := &Result{LowestS: 1, Best: &plan.Plan{Stages: []plan.Stage{{Devices: []int{0}}},
			Predicted: &plan.Predicted{StepS: k.stepS, MemoryBytes: []int64{k.needs}}}}
		if pressed(s, found) != k.want {
			t.Errorf("%v s for a bound of 1 s, with %d of 1000 bytes: want %v", k.stepS, k.needs, k.want)
		}
		s.cutAt = 1 // then another line says that the search ended early
		if pressed(s, found) {
			t.Error("two lines say that there may be a better plan")
		}
	}
}
