package plan_test

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"github.com/millrace-ml/millrace/internal/shared"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/profile/importer"
)

// oddFlags are the published optimizer's flags beside its levels.
type oddFlags struct {
	ratio           float64 // --activation_compression_ratio; 0: not given
	straight, fewer bool    // --straight_pipeline, --use_fewer_machines
	memory          float64 // --use_memory_constraint -s; 0: not given
}

// literalWith is literal with all flags. Where nothing fits, a table's entry is infinite, as the published
// code's is none.
func literalWith(s *profile.States, sizes []int, bandwidths []float64, f oddFlags) float64 {
	n := len(s.List)
	sum := func(of func(profile.State) float64) [][]float64 {
		out := make([][]float64, n+1)
		for i := range out {
			out[i] = make([]float64, n)
			for j := i; j < n; j++ {
				if out[i][j] = of(s.List[j]); i > 0 {
					out[i][j] -= of(s.List[i-1])
				}
			}
		}
		return out
	}
	compute := sum(func(x profile.State) float64 { return x.ComputeS })
	weights := sum(func(x profile.State) float64 { return float64(x.ParameterBytes) })
	held := sum(func(x profile.State) float64 { return float64(x.ParameterBytes + x.ActivationBytes) })
	keeps := func(i, j, ahead, m int) bool {
		return f.memory == 0 || math.Ceil(float64(ahead)/float64(m))*held[i][j] <= f.memory
	}
	inside := 1
	for level, workers := range sizes {
		b := bandwidths[level]
		table := make([][][]float64, n+1)
		most := workers
		if f.straight {
			most = 1
		}
		for i := range table {
			table[i] = make([][]float64, n)
			for j := i; j < n; j++ {
				table[i][j] = slices.Repeat([]float64{math.Inf(1)}, workers+1)
				for m := 1; m <= most; m++ {
					if keeps(i, j, workers-m, m) {
						table[i][j][m] = (compute[i][j] + 4*float64(m-1)*weights[i][j]/(b*float64(m))/float64(inside)) / float64(m)
					}
				}
			}
		}
		for i := range n {
			for m := 2; m <= workers; m++ {
				for j := i + 1; j < n; j++ {
					best := table[i][j][m]
					if f.fewer {
						best = min(best, table[i][j][m-1])
					}
					for k := i; k < j; k++ {
						if !s.Before(k, j) || i > 0 && s.Before(k, i-1) {
							continue
						}
						for q := 1; q < m && (q == 1 || !f.straight); q++ {
							if !keeps(k+1, j, workers-m, q) {
								continue
							}
							t := (compute[k+1][j] + 4*float64(q-1)*weights[k+1][j]/(b*float64(q))) / float64(q)
							t = max(t, table[i][k][m-q])
							if f.ratio > 0 {
								t = max(t, 2*float64(s.List[k].OutputBytes)/(b*float64(q))/f.ratio)
								if j < n-1 {
									t = max(t, 2*float64(s.List[j].OutputBytes)/(b*float64(q))/f.ratio)
								}
							}
							best = min(best, t)
						}
					}
					table[i][j][m] = best
				}
			}
		}
		for i := range n {
			for j := i; j < n; j++ {
				compute[i][j] = table[i][j][workers]
			}
		}
		inside = workers
	}
	return compute[0][n-1]
}

// oddProfiles are published profiles, of the largest the first layers: those of Inception
// have more states than a literal recursion comes through.
func oddProfiles(t *testing.T) map[string]*profile.Profile {
	out := map[string]*profile.Profile{}
	for file, of := range map[string]struct {
		format        string
		batch, layers int
	}{
		"pipedream-alexnet": {"pipedream", 256, 0}, "pipedream-vgg16": {"pipedream", 128, 0}, "pipedream-gnmt": {"pipedream", 32, 0},
		"pipedream-inception_v3": {"pipedream", 128, 31}, "dapple-amoeba-36-pbs-1": {"dapple", 1, 0}, "dapple-xlnet-36-pbs-1": {"dapple", 1, 0},
		"dapple-vgg-19-pbs-32": {"dapple", 32, 0}, "dapple-bert-48-pbs-2": {"dapple", 2, 0}, "dapple-gnmt-16-pbs-64": {"dapple", 64, 24},
	} {
		p, _, err := importer.Read(filepath.Join(shared.Dir(t), "data", "profiles", file+".txt"), importer.Options{Format: of.format, Batch: of.batch})
		if err != nil {
			t.Fatal(err)
		}
		if of.layers > 0 {
			p.Layers = p.Layers[:of.layers]
		}
		out[file] = p
	}
	return out
}

// TestPipeDreamOddRuns: runs that nobody published, of every profile with times, levels, bandwidths and
// flags drawn at random, against the literal recursion: no replication, idle devices, memory
// that binds, links of which the inner is the slower one.
func TestPipeDreamOddRuns(t *testing.T) {
	planner, err := plan.LookupPlanner("pipedream")
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(20, 26))
	profiles := oddProfiles(t)
	shapes := [][]int{{2, 8}, {8, 2}, {4, 2, 2}, {16}, {3, 5}, {1, 4}, {2, 2, 2, 2}, {5}, {7, 1}}
	refused, bound, runs := 0, 0, 0
	for _, name := range slices.Sorted(maps.Keys(profiles)) {
		p := profiles[name]
		for i := range p.Layers {
			p.Layers[i].Costs[0].ForwardS *= 0.9 + 0.2*rng.Float64()
			p.Layers[i].Costs[0].BackwardS *= 0.9 + 0.2*rng.Float64()
		}
		batch := p.Sizes("gpu")[0]
		costs, _, err := p.At("gpu", batch)
		if err != nil {
			t.Fatal(err)
		}
		states, err := profile.StatesOf(p, costs)
		if err != nil {
			t.Fatal(err)
		}
		last := states.List[len(states.List)-1]
		for range 6 {
			sizes := shapes[rng.IntN(len(shapes))]
			if len(states.List) > 60 && len(sizes) > 2 {
				sizes = sizes[:2]
			}
			bandwidths := make([]float64, len(sizes))
			for i := range bandwidths {
				bandwidths[i] = math.Pow(10, 8+3*rng.Float64())
			}
			f := oddFlags{ratio: []float64{0, 1, 3}[rng.IntN(3)], straight: rng.IntN(4) == 0}
			f.fewer = !f.straight && rng.IntN(4) == 0
			if rng.IntN(3) == 0 && !f.fewer {
				f.memory = float64(last.ParameterBytes+last.ActivationBytes) * (0.05 + rng.Float64())
			}
			set := map[string]string{"activation_compression_ratio": "none", "straight_pipeline": "off", "use_fewer_machines": "off", "memory": "off"}
			if f.ratio > 0 {
				set["activation_compression_ratio"] = fmt.Sprint(f.ratio)
			}
			if f.straight {
				set["straight_pipeline"] = "on"
			}
			if f.fewer {
				set["use_fewer_machines"] = "on"
			}
			if f.memory > 0 {
				f.memory = math.Floor(f.memory)
				set["memory"] = fmt.Sprintf("%.0f", f.memory)
			}
			runs++
			want := literalWith(states, sizes, bandwidths, f)
			pl, err := planner.Plan(t.Context(), plan.Request{Profile: p, Cluster: levels(sizes, bandwidths), Batch: batch, Formula: "artifact", Set: set})
			switch {
			case math.IsInf(want, 1):
				refused++
				if err == nil {
					t.Errorf("%s %v %+v: %v, literally nothing fits", name, sizes, f, pl.Objective.Value)
				}
			case err != nil:
				t.Errorf("%s %v %+v: %v, literally %v", name, sizes, f, err, want)
			case math.Abs(pl.Objective.Value-want) > 1e-9*want:
				t.Errorf("%s %v at %v, %+v: %.12g, literally %.12g", name, sizes, bandwidths, f, pl.Objective.Value, want)
			}
			free := f
			free.memory = 0
			if f.memory > 0 && literalWith(states, sizes, bandwidths, free) < want*(1-1e-9) {
				bound++
			}
		}
	}
	t.Logf("%d runs, %d refused, %d changed by their memory limit", runs, refused, bound)
	if runs-refused < 30 || bound == 0 {
		t.Errorf("%d of %d runs had a plan, %d were changed by their memory limit; there should be 30 and some", runs-refused, runs, bound)
	}
}
