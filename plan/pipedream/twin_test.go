package pipedream_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/plan"
	_ "github.com/millrace-ml/millrace/plan/planners" // registers the planners
	"github.com/millrace-ml/millrace/plan/plantest"
	"github.com/millrace-ml/millrace/profile"
)

// TestArtifactTwin compares the planner with the literal recursion, on published profiles whose times vary by up to 10
// %.
func TestArtifactTwin(t *testing.T) {
	planner, err := plan.LookupPlanner("pipedream")
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(3, 5))
	for _, c := range []struct {
		file         string
		batch, times int
		sizes        [][]int
	}{
		{"pipedream-alexnet.txt", 256, 6, [][]int{{4}, {4, 4}, {2, 3, 2}}},
		{"pipedream-vgg16.txt", 128, 6, [][]int{{4}, {4, 4}, {2, 3, 2}}},
		{"pipedream-gnmt.txt", 32, 6, [][]int{{4}, {4, 4}, {2, 3, 2}}},
		{"pipedream-resnet50.txt", 128, 1, [][]int{{2, 2}}}, // 240 states, for which the literal recursion is slow
	} {
		p := plantest.ReadProfile(t, c.file, c.batch)
		for range c.times {
			for i := range p.Layers {
				p.Layers[i].Costs[0].ForwardS *= 0.9 + 0.2*rng.Float64()
				p.Layers[i].Costs[0].BackwardS *= 0.9 + 0.2*rng.Float64()
			}
			costs, _, err := p.At("gpu", c.batch)
			if err != nil {
				t.Fatal(err)
			}
			states, err := profile.StatesOf(p, costs)
			if err != nil {
				t.Fatal(err)
			}
			for _, sizes := range c.sizes {
				bandwidths := []float64{12e9 * rng.Float64(), 6e9 * rng.Float64(), 1e9 * rng.Float64()}
				for _, ratio := range []string{"none", "1", "2.5"} {
					var number float64
					fmt.Sscan(ratio, &number)
					pl, err := planner.Plan(t.Context(),
						plan.Request{Profile: p, Cluster: levels(sizes, bandwidths), Batch: c.batch,
							Formula: "artifact", Set: map[string]string{"activation_compression_ratio": ratio}})
					if err != nil {
						t.Fatal(err)
					}
					if want := flagged(states, sizes, bandwidths,
						publishedFlags{ratio: number}); math.Abs(pl.Objective.Value-want) > 1e-9*want {
						t.Errorf("%s %v ratio %s: %.12g, the literal recursion %.12g", c.file, sizes, ratio,
							pl.Objective.Value, want)
					}
				}
			}
		}
	}
}

// TestBruteForce compares the planner with every partition and number of replicas, by the paper's formula. It uses
// thousands of small chains, with one or two levels and one or two types of devices.
func TestBruteForce(t *testing.T) {
	planner, err := plan.LookupPlanner("pipedream")
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(7, 11))
	shapes := [][]int{{1}, {2}, {3}, {6}, {2, 2}, {3, 2}, {2, 3}}
	for range 3000 {
		n, sizes := 1+rng.IntN(8), shapes[rng.IntN(len(shapes))]
		p := &profile.Profile{Version: profile.Version, Model: "chain", Source: "measured"}
		slow := 1 + 2*rng.Float64()
		for i := range n {
			l := profile.Layer{Name: fmt.Sprint("layer", i), Kind: "linear", From: []int{i - 1}, TiedTo: -1,
				ParameterBytes: rng.Int64N(1e8)}
			f, b, out := rng.Float64(), 2*rng.Float64(), rng.Int64N(1e9)
			for _, d := range []string{"fast", "slow"} {
				x := 1.0
				if d == "slow" {
					x = slow
				}
				l.Costs = append(l.Costs, profile.Cost{Device: d, MicroBatch: 4, ForwardS: f * x, BackwardS: b * x,
					OutputBytes: out, SavedBytes: out})
			}
			p.Layers = append(p.Layers, l)
		}
		types := [][]string{{"fast"}, {"fast", "slow"}}[rng.IntN(2)]
		bandwidths := []float64{1e9 * (0.1 + rng.Float64()), 1e9 * (0.05 + rng.Float64())}
		c := levels(sizes, bandwidths, types...)
		x := 1.0
		if len(types) > 1 && len(c.Devices) > 1 {
			x = slow // every device counts as the slowest
		}
		pl, err := planner.Plan(t.Context(), plan.Request{Profile: p, Cluster: c, Batch: 4})
		if err != nil {
			t.Fatal(err)
		}
		// best tries every division into layers and workers, level by level.
		var best func(level, i, j, m int) float64
		stage := func(level, i, j, m int) float64 {
			inner, weights := 0.0, 0.0
			for k := i; k <= j; k++ {
				inner += x * (p.Layers[k].Costs[0].ForwardS + p.Layers[k].Costs[0].BackwardS)
				weights += float64(p.Layers[k].ParameterBytes)
			}
			if level > 0 {
				inner = best(level-1, i, j, sizes[level-1])
			}
			return max(inner, 2*float64(m-1)*weights/bandwidths[level]) / float64(m)
		}
		best = func(level, i, j, m int) float64 {
			least := stage(level, i, j, m)
			for k := i; k < j; k++ { // the first stage ends with k
				for first := 1; first < m; first++ {
					least = min(least, max(stage(level, i, k, first),
						2*float64(p.Layers[k].Costs[0].OutputBytes)/bandwidths[level], best(level, k+1, j, m-first)))
				}
			}
			return least
		}
		want := best(len(sizes)-1, 0, n-1, sizes[len(sizes)-1])
		if math.Abs(pl.Objective.Value-want) > 1e-9*want {
			t.Fatalf("%d layers on %v: %.12g, brute force %.12g", n, sizes, pl.Objective.Value, want)
		}
		devices := 0
		for _, st := range pl.Stages {
			devices += len(st.Devices)
		}
		if devices != len(c.Devices) {
			t.Fatalf("%d of %d devices used: %+v", devices, len(c.Devices), pl.Stages)
		}
		if pl.Stages[0].Warmup != (devices+len(pl.Stages[0].Devices)-1)/len(pl.Stages[0].Devices) {
			t.Fatalf("the input stage's warm-up is %d, not NOAM: %+v", pl.Stages[0].Warmup, pl.Stages)
		}
	}
}

// TestAvgPipeIsStraight: AvgPipe's planner returns a straight pipeline with a flush.
func TestAvgPipeIsStraight(t *testing.T) {
	planner, err := plan.LookupPlanner("avgpipe")
	if err != nil {
		t.Fatal(err)
	}
	for _, layers := range []int{1, 3, 40} {
		pl, err := planner.Plan(t.Context(), plan.Request{Profile: uneven(layers),
			Cluster: levels([]int{2, 3}, []float64{12e9, 0.125e9}), Batch: 64})
		if err != nil {
			t.Fatal(err)
		}
		if pl.Weights != "sync" || len(pl.Stages) > min(6, layers) {
			t.Errorf("%d layers: %d stages, weights %s", layers, len(pl.Stages), pl.Weights)
		}
		for _, st := range pl.Stages {
			if len(st.Devices) != 1 {
				t.Errorf("%d layers: a stage on %v", layers, st.Devices)
			}
		}
	}
}

func TestRefuses(t *testing.T) {
	planner, err := plan.LookupPlanner("pipedream")
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{
		"overlap": "min", "volume": "all", "hierarchy": "round", "transfer": "x", "activation_compression_ratio": "0",
		"inner_division": "1",
		"cuts":           "any", "memory": "-3", "use_fewer_machines": "yes", "straight_pipeline": "yes",
		"bandwidths": "1e9,2e9,3e9", "states": "0", "depth": "3",
	} {
		r := plan.Request{Profile: uneven(4), Cluster: levels([]int{2, 2}, []float64{1e9, 1e9}), Batch: 64,
			Set: map[string]string{name: value}}
		if _, err := planner.Plan(t.Context(), r); err == nil {
			t.Errorf("%s=%s is taken", name, value)
		}
	}
	r := plan.Request{Profile: uneven(4), Cluster: levels([]int{2}, []float64{1e9}), Batch: 64,
		Set: map[string]string{"memory": "1000", "straight_pipeline": "on"}}
	if _, err := planner.Plan(t.Context(), r); err == nil {
		t.Error("1000 bytes a device hold 20 MB")
	}
}

// TestRefusalsSayOfWhichPlans: a refusal names the least memory limit. If the search examined only some of a model's
// cuts, the refusal also says for which plans this limit holds.
func TestRefusalsSayOfWhichPlans(t *testing.T) {
	for _, c := range []struct {
		planner string
		set     map[string]string
		layers  int
		among   string
	}{
		{"pipedream", map[string]string{"memory": "1000", "straight_pipeline": "on"}, 383, ""},
		{"pipedream", map[string]string{"memory": "1000", "straight_pipeline": "on"}, 400, "those cut at 384 of its " +
			"400 states"},
		{"dapple", nil, 40, ""},
		{"dapple", map[string]string{"max_states": "60"}, 40, "those cut behind 15 of its 40 layers"},
	} {
		planner, err := plan.LookupPlanner(c.planner)
		if err != nil {
			t.Fatal(err)
		}
		hardware := levels([]int{4}, []float64{1e9})
		for name, d := range hardware.DeviceTypes {
			d.MemoryBytes = 1000
			hardware.DeviceTypes[name] = d
		}
		_, err = planner.Plan(t.Context(), plan.Request{Profile: uneven(c.layers), Cluster: hardware, Batch: 64,
			Set: c.set})
		var memory *plan.MemoryError
		if !errors.As(err, &memory) {
			t.Fatalf("%s, %d layers: %v", c.planner, c.layers, err)
		}
		says := strings.Contains(err.Error(), "of the plan that needs least of "+c.among+",")
		if memory.Among != c.among || says != (c.among != "") {
			t.Errorf("%s, %d layers: of %q, %v", c.planner, c.layers, memory.Among, err)
		}
	}
}
