package plan

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

func init() {
	RegisterPlanner(Planner{
		Name:     "dapple",
		Paper:    "DAPPLE (PPoPP 2021), section 4",
		Artifact: "AlibabaPAI/DAPPLE@fd75dcf, src",
		Settings: dappleSettings, Plan: planDapple,
	})
}

var dappleSettings = []Setting{
	{"dp", "auto", "auto, yes, no", "whether data parallelism is returned where it wins (§4); auto is yes for the paper, no for the artifact, whose search leaves it to its caller"},
	{"overlap", "both", "both, yes, no", "paper: data parallelism's all-reduces hide behind the last backward, or do not, or the better"},
	{"policy", "auto", "auto, pa, pb", "paper: K_i = min(S-i, D) or min(2(S-i)-1, D) (§5.3); auto is pb from acr_threshold on"},
	{"acr_threshold", "0.1", "a ratio, 0 or more", "paper: the activation-communication ratio from which policy pb serves (§5.3, Table 3)"},
	{"recompute", "auto", "auto, yes, no", "paper: forwards again in the backward; auto where a stage does not fit otherwise"},
	{"max_states", "60000", "a whole number", "paper: layers planned by device sets beyond which a beam searches"},
	{"server", "0", "a whole number of devices, 0: by the cluster's levels", "devices of one server, for placement"},
	{"recursive", "no", "yes, no", "artifact: the objective is sync_pipeline_speedup_recursive's of the chosen plan"},
	{"min_micro_batch", "0", "a whole number of samples, 0: the request's, or 1", "artifact: min_micro_batch_size"},
	{"optimizer_memory_scaling", "1", "copies of the parameters, 0 or more", "artifact: parameters with gradients and optimizer"},
	{"peak_activation_per_batch", "0", "bytes by sample, 0: all activations", "what a sample takes on a device of data parallelism; artifact: peak_activation_per_batch"},
	{"profile_batch", "0", "a whole number of samples, 0: as the profile says", "artifact: profile_batch_size"},
	{"nvlink", "25e9", "bytes/s, over 0", "artifact: inside a server"},
	{"ethernet_p2p", "1e9", "bytes/s, over 0", "artifact: between servers, point to point; 1.25e9 gives configuration C"},
	{"ethernet_nccl", "3e9", "bytes/s, over 0", "artifact: between servers, collectives; 1.25e9 gives configuration C"},
	{"gpu_memory", "16e9", "bytes, 0 or more", "artifact: for data parallelism's gradient accumulation"},
}

// planDapple is the registered planner: the paper's, or the published code's.
func planDapple(ctx context.Context, r Request) (*Plan, error) {
	s := reads("dapple", dappleSettings, true, r)
	if s.err != nil {
		return nil, s.err
	}
	switch {
	case r.Profile == nil || r.Cluster == nil || len(r.Profile.Layers) == 0 || len(r.Cluster.Devices) == 0:
		return nil, fmt.Errorf("plan: dapple: it needs a profile with a layer and a cluster with a device")
	case r.MicroBatch < 0 || r.MicroBatch > 0 && r.Batch%r.MicroBatch != 0:
		return nil, fmt.Errorf("plan: dapple: micro-batches of %d samples do not divide a batch of %d", r.MicroBatch, r.Batch)
	}
	if s.artifact {
		return planDappleArtifact(ctx, r, s)
	}
	return planDapplePaper(ctx, r, s)
}

// DappleConstantsOf reads the published code's constants from a request's settings, as the planner does.
func DappleConstantsOf(r Request) (DappleConstants, error) {
	r.Formula = "artifact"
	s := reads("dapple", dappleSettings, true, r)
	if s.err != nil {
		return DappleConstants{}, s.err
	}
	k := s.dappleConstants(r)
	s.choice("dp")
	s.choice("recursive")
	return k, s.done()
}

func (s *settingsReader) dappleConstants(r Request) DappleConstants {
	k := DappleConstants{
		MinMicroBatch:           s.count("min_micro_batch", 0, mostCount),
		OptimizerMemoryScaling:  s.number("optimizer_memory_scaling", 0),
		PeakActivationPerSample: s.number("peak_activation_per_batch", 0),
		NVLink:                  s.positive("nvlink"), EthernetP2P: s.positive("ethernet_p2p"), EthernetNCCL: s.positive("ethernet_nccl"),
		GPUMemory: s.number("gpu_memory", 0), ProfileBatch: s.count("profile_batch", 0, mostCount), Server: s.count("server", 0, mostCount),
	}
	if k.MinMicroBatch == 0 {
		k.MinMicroBatch = max(1, r.MicroBatch)
	}
	return k
}

// planDappleArtifact turns the published planner's answer into a plan.
func planDappleArtifact(ctx context.Context, r Request, s *settingsReader) (*Plan, error) {
	k := s.dappleConstants(r)
	dp, recursive := s.choice("dp"), s.choice("recursive")
	if err := s.done(); err != nil {
		return nil, err
	}
	a, err := SearchDapple(ctx, r.Profile, r.Cluster, r.Batch, k)
	if err != nil {
		return nil, err
	}
	best := a.Candidates[a.Best]
	if best.Speedup == 0 {
		return nil, fmt.Errorf("plan: dapple: a batch of %d samples makes no micro-batch of %d for any candidate", r.Batch, k.MinMicroBatch)
	}
	why := []string{fmt.Sprintf("The published search compared %d plans over %d states; the best is %s with an estimated speedup of %.3f over one device.", len(a.Candidates), len(a.Order), shape(best), best.Speedup)}
	why = append(why, fmt.Sprintf("It estimates data parallelism at %.3f without overlap and %.3f with, and never returns it: compare these yourself, or set dp=yes.", a.DP.NoOverlap, a.DP.NormalOverlap))
	if a.Limited {
		least := a.TotalComputeS / float64(len(r.Cluster.Devices))
		why = append(why, fmt.Sprintf("Stages side by side may be on more than %d sets of devices, of which the first were followed; the slowest stage or transfer of the plan is %.1f %% above all devices computing without pause, so no set left out is better by more.",
			maxWays, 100*(best.Block/least-1)))
	}
	if a.BestMulti >= 0 {
		why = append(why, fmt.Sprintf("Micro-batch by micro-batch (its recursive estimate) the best of several stages, %s, gives %.3f.", shape(a.Candidates[a.BestMulti]), a.RecursiveSpeedup))
	}
	objective := Objective{Name: "estimated latency of one global batch", Value: a.TotalComputeS / best.Speedup, Unit: "s"}
	if recursive == "yes" && a.BestMulti >= 0 && len(best.Stages) > 1 {
		objective = Objective{Name: "latency of one global batch by recursion", Value: a.TotalComputeS / a.RecursiveSpeedup, Unit: "s"}
	}
	if dp == "yes" && a.BestMulti >= 0 && a.DP.Best() >= a.Candidates[a.BestMulti].Speedup || dp == "yes" && a.DP.Best() >= best.Speedup {
		all := make([]int, len(r.Cluster.Devices))
		for d := range all {
			all[d] = d
		}
		best = DappleCandidate{Pipelines: 1, Stages: []DappleStage{{0, len(a.Order) - 1, all}}, Speedup: a.DP.Best()}
		objective = Objective{Name: "estimated latency of one global batch", Value: a.TotalComputeS / best.Speedup, Unit: "s"}
		why = append(why, "Data parallelism wins.")
	}
	why = append(why, "It assumed: half of a layer's time is its backward, times in proportion to samples, no memory limit for pipelines, the bandwidths set (not the cluster's).")
	return a.plan(r, k, best, objective, why)
}

func shape(c DappleCandidate) string {
	var n []string
	for _, s := range c.Stages {
		n = append(n, strconv.Itoa(len(s.Devices)))
	}
	return strings.Join(n, ":")
}

// plan writes a candidate down. A micro-batch has a sample for every replica at least,
// which the published estimate does not ask for.
func (a *DappleAnswer) plan(r Request, k DappleConstants, c DappleCandidate, o Objective, why []string) (*Plan, error) {
	widest := 0
	var chain []int
	for i, s := range c.Stages {
		widest = max(widest, len(s.Devices))
		if i == len(c.Stages)-1 {
			chain = append(chain, a.Order[s.End])
		} else {
			chain = append(chain, a.Order[s.End-1])
		}
	}
	order, ends := a.States.Order(chain)
	out := dapplePlan(r)
	out.Objective, out.Why = o, why
	if len(c.Stages) == 1 {
		out.Schedule, out.Replication = "dp", "round_robin"
		widest = 1
	}
	want := k.MinMicroBatch * c.Pipelines
	if len(c.Stages) == 1 {
		want = k.MinMicroBatch
	}
	out.MicroBatch = atLeast(r.Batch, max(want, widest))
	if out.MicroBatch != want {
		out.Why = append(out.Why, fmt.Sprintf("Micro-batches run with %d samples instead of the estimate's %d: each replica needs one, and they divide the batch.", out.MicroBatch, want))
	}
	out.MicroBatches = r.Batch / out.MicroBatch
	if !slices.IsSorted(order) {
		out.Order = order
	}
	first := 0
	for i, s := range c.Stages {
		last := ends[i] - 1
		if i == len(c.Stages)-1 {
			last = len(order) - 1
		}
		out.Stages = append(out.Stages, Stage{FirstLayer: first, LastLayer: last, Devices: s.Devices, Warmup: min(len(c.Stages)-i, out.MicroBatches)})
		first = last + 1
	}
	return out, nil
}

func dapplePlan(r Request) *Plan {
	return &Plan{
		Version: Version, Model: r.Profile.Model, ModelID: r.Profile.ModelID, Cluster: r.Cluster.Name,
		Replication: "split", Schedule: "1f1b", Weights: "sync", Planner: "dapple",
	}
}
