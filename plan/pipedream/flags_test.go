package pipedream_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/plan/plantest"
	"github.com/millrace-ml/millrace/profile"
)

// publishedFlags holds the published optimizer's arguments, besides the profile and the levels.
type publishedFlags struct {
	straight, fewer bool    // --straight_pipeline, --use_fewer_machines
	memory          float64 // --use_memory_constraint -s; 0 means no limit
	ratio           float64 // --activation_compression_ratio; 0 means none
	max             bool    // not a flag: max in place of sum, as in the older optimizer.py
}

func (f publishedFlags) settings() map[string]string {
	set := map[string]string{"activation_compression_ratio": "none"}
	if f.ratio > 0 {
		set["activation_compression_ratio"] = fmt.Sprint(f.ratio)
	}
	for name, on := range map[string]bool{"straight_pipeline": f.straight, "use_fewer_machines": f.fewer} {
		if on {
			set[name] = "on"
		}
	}
	if f.memory > 0 {
		set["memory"] = fmt.Sprint(f.memory)
	}
	if f.max {
		set["overlap"] = "max"
	}
	return set
}

// bySegment returns a quantity for every segment from state i to j. The function `of` returns the sum of that quantity
// over a state and all earlier ones.
func bySegment(list []profile.State, of func(profile.State) float64) [][]float64 {
	n := len(list)
	out := make([][]float64, n+1)
	for i := range out {
		out[i] = make([]float64, n)
		for j := i; j < n; j++ {
			out[i][j] = of(list[j])
			if i > 0 {
				out[i][j] -= of(list[i-1])
			}
		}
	}
	return out
}

// flagged runs the published recursion with all of its flags, with the same tables and order of loops. It returns +Inf
// if the original returns None.
func flagged(s *profile.States, sizes []int, bandwidths []float64, f publishedFlags) float64 {
	n := len(s.List)
	compute := bySegment(s.List, func(s profile.State) float64 { return s.ComputeS })
	weights := bySegment(s.List, func(s profile.State) float64 { return float64(s.ParameterBytes) })
	outputs := bySegment(s.List, func(s profile.State) float64 { return float64(s.ActivationBytes) })
	together := func(compute, sync float64) float64 {
		if f.max {
			return max(compute, sync)
		}
		return compute + sync
	}
	inside := 1
	for level, machines := range sizes {
		b, rows := bandwidths[level], n
		if level == len(sizes)-1 {
			rows = 1
		}
		A := make([][][]float64, n)
		for i := range A {
			A[i] = make([][]float64, n)
			for j := i; j < n; j++ {
				A[i][j] = make([]float64, machines)
				for m := range machines {
					A[i][j][m] = math.Inf(1)
					stashed := math.Ceil(float64(machines-(m+1))/float64(m+1)) * (outputs[i][j] + weights[i][j])
					if f.straight && m > 0 || f.memory > 0 && stashed > f.memory {
						continue
					}
					sync := 4 * float64(m) * weights[i][j] / (b * float64(m+1)) / float64(inside)
					A[i][j][m] = together(compute[i][j], sync) / float64(m+1)
				}
			}
		}
		for i := range rows {
			for m := 1; m < machines; m++ {
				for j := i + 1; j < n; j++ {
					best := A[i][j][m]
					if f.fewer {
						best = min(best, A[i][j][m-1])
					}
					for k := range j {
						if !s.Before(k, j) || k < i || i > 0 && s.Before(k, i-1) {
							continue
						}
						most := m + 1
						if f.straight {
							most = 2
						}
						for q := 1; q < most; q++ {
							stashed := (outputs[k+1][j] + weights[k+1][j]) * math.Ceil(float64(machines-(m+1))/float64(q))
							if f.memory > 0 && stashed > f.memory {
								continue
							}
							last := together(compute[k+1][j],
								4*float64(q-1)*weights[k+1][j]/(b*float64(q))) / float64(q)
							t := max(A[i][k][m-q], last)
							if f.ratio > 0 {
								t = max(t, 2*float64(s.List[k].OutputBytes)/(b*float64(q))/f.ratio)
								if j < n-1 {
									t = max(t, 2*float64(s.List[j].OutputBytes)/(b*float64(q))/f.ratio)
								}
							}
							best = min(best, t)
						}
					}
					A[i][j][m] = best
				}
			}
		}
		for i := range n {
			for j := i; j < n; j++ {
				compute[i][j] = A[i][j][machines-1]
			}
		}
		inside = machines
	}
	return compute[0][n-1]
}

// drawFlags draws flags. `bytes` is the size of the whole model and scales the memory limit.
func drawFlags(rng *rand.Rand, bytes float64) publishedFlags {
	f := publishedFlags{straight: rng.IntN(4) == 0, fewer: rng.IntN(3) == 0, max: rng.IntN(3) == 0,
		ratio: []float64{0, 1, 1, 0.3, 7.5}[rng.IntN(5)]}
	if rng.IntN(3) == 0 {
		f.memory = math.Ceil(bytes * (0.05 + 1.5*rng.Float64()))
	}
	return f
}

// outcome counts the results of runs.
type outcome struct {
	planned, refused int
	bound            int // plans that are slower than without their memory limit
}

// compare checks the planner's result against that of flagged, the published recursion.
func (o *outcome) compare(t *testing.T, what string, p *profile.Profile, batch int, sizes []int, bandwidths []float64,
	f publishedFlags) {
	t.Helper()
	planner, err := plan.LookupPlanner("pipedream")
	if err != nil {
		t.Fatal(err)
	}
	costs, _, err := p.At("gpu", batch)
	if err != nil {
		t.Fatal(err)
	}
	states, err := profile.StatesOf(p, costs)
	if err != nil {
		t.Fatal(err)
	}
	want := flagged(states, sizes, bandwidths, f)
	free := f
	free.memory = 0
	switch {
	case math.IsInf(want, 1):
		o.refused++
	case f.memory > 0 && flagged(states, sizes, bandwidths, free) < want*(1-1e-9):
		o.bound++
		o.planned++
	default:
		o.planned++
	}
	pl, err := planner.Plan(t.Context(), plan.Request{Profile: p, Cluster: levels(sizes, bandwidths), Batch: batch,
		Formula: "artifact", Set: f.settings()})
	switch {
	case math.IsInf(want, 1):
		if err == nil {
			t.Errorf("%s %v %+v: %.12g, the literal recursion has no plan", what, sizes, f, pl.Objective.Value)
		}
	case err != nil:
		t.Errorf("%s %v %+v: %v, the literal recursion %.12g", what, sizes, f, err, want)
	case math.Abs(pl.Objective.Value-want) > 1e-9*want:
		t.Errorf("%s %v at %v %+v: %.12g, the literal recursion %.12g", what, sizes, bandwidths, f, pl.Objective.Value,
			want)
	}
}

// flagTopologies lists the level sizes of clusters. They have one to four levels, some with one member or an odd
// number.
var flagTopologies = [][]int{
	{1}, {2}, {3}, {5}, {7}, {16}, {1, 4}, {4, 1}, {7, 1}, {2, 2}, {3, 2}, {2, 5}, {3, 5}, {4, 4}, {2, 8}, {8, 2},
	{3, 1, 2}, {2, 2, 2}, {2, 3, 2}, {4, 2, 2}, {2, 2, 2, 2},
}

func drawBandwidths(rng *rand.Rand, sizes []int) []float64 {
	var out []float64
	for range sizes {
		out = append(out, math.Pow(10, 8+3*rng.Float64()))
	}
	return out
}

// TestFlagsOnPublishedProfiles compares the planner with the literal recursion under random flags. It uses published
// profiles, and only their first layers if the recursion would take too long. Times vary by up to a tenth. Clusters
// have one to four levels with random bandwidths, and an inner level may be the slower one.
func TestFlagsOnPublishedProfiles(t *testing.T) {
	rng := rand.New(rand.NewPCG(17, 4))
	var came outcome
	for _, c := range []struct {
		file                 string
		batch, times, layers int // layers is the number of first layers to use; 0 means all
	}{
		{"pipedream-alexnet.txt", 256, 60, 0}, {"pipedream-vgg16.txt", 128, 40, 0}, {"pipedream-gnmt.txt", 32, 8, 0},
		{"dapple-vgg-19-pbs-32.txt", 32, 60, 0},
		{"dapple-amoeba-36-pbs-1.txt", 1, 40, 0}, {"dapple-bert-24-pbs-6.txt", 6, 60, 0},
		{"dapple-bert-48-pbs-2.txt", 2, 30, 0}, {"dapple-xlnet-36-pbs-1.txt", 1, 40, 0},
		{"hpgo-bert_large.txt", 6, 60, 0}, {"pipedream-inception_v3.txt", 128, 8, 31},
		{"dapple-gnmt-16-pbs-64.txt", 64, 12, 24},
	} {
		p := plantest.ReadProfile(t, c.file, c.batch)
		if c.layers > 0 {
			p.Layers = p.Layers[:c.layers]
		}
		bytes := 0.0
		for _, l := range p.Layers {
			bytes += float64(l.ParameterBytes + l.Costs[0].OutputBytes)
		}
		for range c.times {
			for i := range p.Layers {
				p.Layers[i].Costs[0].ForwardS *= 0.9 + 0.2*rng.Float64()
				p.Layers[i].Costs[0].BackwardS *= 0.9 + 0.2*rng.Float64()
			}
			sizes := flagTopologies[rng.IntN(len(flagTopologies))]
			came.compare(t, c.file, p, c.batch, sizes, drawBandwidths(rng, sizes), drawFlags(rng, bytes))
		}
	}
	came.check(t)
}

// check fails unless enough runs were planned, refused, and changed by their memory limit.
func (o outcome) check(t *testing.T) {
	t.Helper()
	t.Logf("%+v", o)
	if o.planned < 30 || o.refused == 0 || o.bound == 0 {
		t.Errorf("%+v: there should be 30 plans at least, some refusals, and limits that change a plan", o)
	}
}

// TestFlagsOnRandomGraphs compares the planner with the literal recursion on small graphs, some of which branch.
func TestFlagsOnRandomGraphs(t *testing.T) {
	rng := rand.New(rand.NewPCG(23, 9))
	var came outcome
	for n := range 1500 {
		p := &profile.Profile{Version: profile.Version, Model: "graph", Source: "measured"}
		bytes := 0.0
		for i := range 1 + rng.IntN(10) {
			l := profile.Layer{Name: fmt.Sprint("layer", i), Kind: "linear", From: []int{i - 1}, TiedTo: -1,
				ParameterBytes: rng.Int64N(1e8)}
			if i > 1 && rng.IntN(3) == 0 {
				l.From = []int{rng.IntN(i - 1), i - 1}[rng.IntN(2):]
			}
			cost := profile.Cost{Device: "gpu", MicroBatch: 4, ForwardS: rng.Float64(), BackwardS: 2 * rng.Float64(),
				OutputBytes: rng.Int64N(1e9)}
			if rng.IntN(6) == 0 {
				cost.ForwardS, cost.BackwardS, l.ParameterBytes = 0, 0, 0
			}
			cost.SavedBytes = cost.OutputBytes
			bytes += float64(l.ParameterBytes + cost.OutputBytes)
			l.Costs = []profile.Cost{cost}
			p.Layers = append(p.Layers, l)
		}
		sizes := flagTopologies[rng.IntN(len(flagTopologies))]
		came.compare(t, fmt.Sprint("graph ", n), p, 4, sizes, drawBandwidths(rng, sizes), drawFlags(rng, bytes))
	}
	came.check(t)
}
