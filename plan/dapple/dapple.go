// Package dapple is DAPPLE's planner (PPoPP 2021, section 4).
//
// Input: a request. Output by formula paper: the pipeline with the least latency L of equations (1) to (5), or data
// parallelism if that is at least as fast. Output by formula artifact: the answer of package artifact, the published
// code's search. Errors: settings of the other formula, micro-batches that do not divide the batch, and a
// plan.MemoryError if nothing fits.
package dapple

import (
	"context"
	"fmt"

	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/plan/dapple/artifact"
)

func init() {
	plan.RegisterPlanner(plan.Planner{
		Name:     "dapple",
		Paper:    "DAPPLE (PPoPP 2021), section 4",
		Artifact: "AlibabaPAI/DAPPLE@fd75dcf, src",
		Settings: settings, Plan: find,
	})
}

var settings = []plan.Setting{
	{Name: "dp", Default: "auto", Values: "auto, yes, no",
		Doc: "whether data parallelism is returned where it wins (§4); auto is yes for the paper, no for the " +
			"artifact, whose search leaves it to its caller"},
	{Name: "overlap", Default: "both", Values: "both, yes, no",
		Doc: "paper: data parallelism's all-reduces hide behind the last backward, or do not, or the better"},
	{Name: "policy", Default: "auto", Values: "auto, pa, pb",
		Doc: "paper: K_i = min(S-i, D) or min(2(S-i)-1, D) (§5.3); auto is pb from acr_threshold on"},
	{Name: "acr_threshold", Default: "0.1", Values: "a ratio, 0 or more",
		Doc: "paper: the activation-communication ratio from which policy pb serves (§5.3, Table 3)"},
	{Name: "recompute", Default: "auto", Values: "auto, yes, no",
		Doc: "paper: forwards again in the backward; auto where a stage does not fit otherwise"},
	{Name: "max_states", Default: "60000", Values: "a whole number",
		Doc: "paper: layers planned by device sets beyond which a beam searches"},
	{Name: "most_stages", Default: "0", Values: "a whole number from 2 on, 0: any",
		Doc: "paper: stages of a pipeline at most; the published search knows two, or as many as devices"},
	{Name: "server", Default: "0", Values: "a whole number of devices, 0: by the cluster's levels",
		Doc: "devices of one server, for placement"},
}

// find is the registered planner; it runs the paper's search or the published code's.
func find(ctx context.Context, r plan.Request) (*plan.Plan, error) {
	s := plan.ReadSettings("dapple", settings, true, r)
	if err := s.Err(); err != nil {
		return nil, err
	}
	switch {
	case r.Profile == nil || r.Cluster == nil || len(r.Profile.Layers) == 0 || len(r.Cluster.Devices) == 0:
		return nil, fmt.Errorf("plan: dapple: it needs a profile with a layer and a cluster with a device")
	case r.MicroBatch < 0 || r.MicroBatch > 0 && r.Batch%r.MicroBatch != 0:
		return nil, fmt.Errorf("plan: dapple: micro-batches of %d samples do not divide a batch of %d", r.MicroBatch,
			r.Batch)
	}
	if s.Artifact() {
		dp, server := s.Choice("dp"), s.Count("server", 0, plan.MostCount)
		if err := s.Done(); err != nil {
			return nil, err
		}
		return artifact.Plan(ctx, r, artifact.ConstantsOf(r, server), dp == "yes")
	}
	return choose(ctx, r, s)
}
