package artifact_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/internal/shared"
	"github.com/millrace-ml/millrace/plan/dapple/artifact"
	"github.com/millrace-ml/millrace/plan/plantest"
	"github.com/millrace-ml/millrace/profile"
)

// publishedRun holds a file with the published planner's answer for one run.
type publishedRun struct {
	Profile  string
	Topology struct {
		Seps   []int
		P2P    float64 `json:"eth_p2p"`
		NCCL   float64 `json:"eth_nccl"`
		NVLink float64 `json:"nvlink_p2p"`
	}
	Batch struct {
		Profile int     `json:"profile_batch_size"`
		Global  int     `json:"global_batch_size"`
		Micro   int     `json:"min_micro_batch_size"`
		Scaling float64 `json:"optimizer_memory_scaling"`
		Peak    float64 `json:"peak_activation_per_batch_bytes"`
	}
	Result struct {
		Stages    []struct{ Devices []int }
		BestMulti struct {
			Speedup float64 `json:"speedup_over_single"`
			Stages  []struct {
				Devices []int
				Layers  []string
			}
		} `json:"best_multistage"`
		Objective  float64
		DP         map[string]float64 `json:"dp_speedups"`
		Recursive  float64            `json:"recursive_simulation_speedup_of_best_multistage"`
		States     int                `json:"num_states"`
		Total      float64            `json:"total_compute_s"`
		Candidates []struct {
			RP      int
			Speedup float64
			Stages  [][4]int
		}
	}
}

// TestArtifactAnswersAsPublished compares Search with every run of the published planner in the oracles: each
// candidate, the plan layer by layer, and data parallelism.
func TestArtifactAnswersAsPublished(t *testing.T) {
	for name, want := range shared.Oracles[publishedRun](t, "dapple_*") {
		t.Run(name, func(t *testing.T) {
			p := plantest.ReadProfile(t, want.Profile, want.Batch.Profile)
			seps := want.Topology.Seps
			c := flatCluster(seps[len(seps)-1])
			got, err := artifact.Search(context.Background(), p, c, want.Batch.Global, artifact.Constants{
				MinMicroBatch: want.Batch.Micro, OptimizerMemoryScaling: want.Batch.Scaling,
				PeakActivationPerSample: want.Batch.Peak,
				NVLink:                  want.Topology.NVLink, EthernetP2P: want.Topology.P2P,
				EthernetNCCL: want.Topology.NCCL,
				GPUMemory:    16e9, ProfileBatch: want.Batch.Profile, Server: seps[0],
			})
			if err != nil {
				t.Fatal(err)
			}
			same := func(what string, a, b float64) {
				t.Helper()
				alike(t, what, a, b)
			}
			r := want.Result
			if len(got.Order) != r.States || len(got.Candidates) != len(r.Candidates) {
				t.Fatalf("%d states, %d candidates; published %d and %d", len(got.Order), len(got.Candidates), r.States,
					len(r.Candidates))
			}
			same("compute", got.TotalComputeS, r.Total)
			want.holdsCandidates(t, got.Candidates, len(c.Devices))
			best := got.Candidates[got.Best]
			same("objective", got.TotalComputeS/best.Speedup, r.Objective)
			same("best of several stages", got.Candidates[got.BestMulti].Speedup, r.BestMulti.Speedup)
			same("recursive", got.RecursiveSpeedup, r.Recursive)
			same("no overlap", got.DP.NoOverlap, r.DP["no_overlap"])
			same("p3, infinite memory", got.DP.P3InfiniteMemory, r.DP["p3_infinite_memory"])
			same("p3", got.DP.P3, r.DP["ga_p3"])
			same("normal overlap", got.DP.NormalOverlap, r.DP["ga_normal_overlap"])
			same("max batch", float64(got.DP.MaxBatch), r.DP["max_single_gpu_batch"])
			same("accumulation", float64(got.DP.AccumulationSize), r.DP["ga_iter_size"])
			for i, s := range best.Stages {
				if !slices.Equal(s.Devices, r.Stages[i].Devices) {
					t.Errorf("stage %d on %v, published %v", i, s.Devices, r.Stages[i].Devices)
				}
			}
			want.holdsLayers(t, got, p)
		})
	}
}

// alike compares a number with a published one.
func alike(t *testing.T, what string, got, published float64) {
	t.Helper()
	if !plantest.Close(got, published) {
		t.Errorf("%s: %.12g, published %.12g", what, got, published)
	}
}

// holdsCandidates compares the candidates' speedups and cuts with the published ones.
func (want *publishedRun) holdsCandidates(t *testing.T, got []artifact.Candidate, devices int) {
	t.Helper()
	for i, cand := range got {
		published := want.Result.Candidates[i]
		// The original breaks ties between straight plans by memory addresses. So the cuts of straight plans may
		// differ, and GNMT's speedups agree only roughly.
		straight := len(cand.Stages) == devices && devices > 2
		if straight && strings.Contains(want.Profile, "gnmt") {
			if math.Abs(cand.Speedup/published.Speedup-1) > 0.002 {
				t.Errorf("candidate %d: %g, published %g", i, cand.Speedup, published.Speedup)
			}
			continue
		}
		alike(t, fmt.Sprint("candidate ", i), cand.Speedup, published.Speedup)
		if straight {
			continue
		}
		var stages [][4]int
		for _, s := range cand.Stages {
			stages = append(stages, [4]int{s.First, s.End, len(s.Devices) / cand.Pipelines, len(s.Devices)})
		}
		if !slices.Equal(stages, published.Stages) {
			t.Errorf("candidate %d: %v, published %v", i, stages, published.Stages)
		}
	}
}

// holdsLayers takes the best plan that has several stages, and compares the layers of each stage with those of the
// published plan's stage.
func (want *publishedRun) holdsLayers(t *testing.T, got *artifact.Answer, p *profile.Profile) {
	t.Helper()
	multi := got.Candidates[got.BestMulti]
	before := map[int]bool{}
	for i, s := range multi.Stages {
		end := s.End - 1
		if i == len(multi.Stages)-1 {
			end = s.End
		}
		var names []string
		for _, l := range got.States.Layers(got.Order[end]) {
			if !before[l] {
				names = append(names, p.Layers[l].Name)
				before[l] = true
			}
		}
		slices.Sort(names)
		published := slices.Sorted(slices.Values(want.Result.BestMulti.Stages[i].Layers))
		if !slices.Equal(names, published) {
			t.Errorf("stage %d has layers %v, published %v", i, names, published)
		}
	}
}

// flatCluster returns n devices of 16 GB on one fast level.
func flatCluster(n int) *cluster.Cluster {
	return cluster.Local("cpu", n, 0, 16e9, 0, 1e9, 0)
}
