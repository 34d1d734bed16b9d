package dapple

import (
	"context"
	"maps"
	"slices"

	"github.com/millrace-ml/millrace/lab/reproduce/bench"
	"github.com/millrace-ml/millrace/lab/reproduce/table"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/plan/dapple/artifact"
	"github.com/millrace-ml/millrace/profile"
)

// scriptSettings holds the constants of DAPPLE's published script, from its source or its examples. Our planner reads
// these values from the profile and the cluster instead.
var scriptSettings = []plan.Setting{
	{Name: "min_micro_batch", Default: "0", Values: "a whole number of samples, 0: the request's, or 1",
		Doc: "min_micro_batch_size"},
	{Name: "optimizer_memory_scaling", Default: "1", Values: "copies of the parameters, 0 or more",
		Doc: "parameters with gradients and optimizer"},
	{Name: "peak_activation_per_batch", Default: "0", Values: "bytes by sample, 0: all activations",
		Doc: "what a sample takes on a device of data parallelism"},
	{Name: "profile_batch", Default: "0", Values: "a whole number of samples, 0: as the profile says",
		Doc: "profile_batch_size"},
	{Name: "nvlink", Default: "25e9", Values: "bytes/s, over 0",
		Doc: "inside a server"},
	{Name: "ethernet_p2p", Default: "1e9", Values: "bytes/s, over 0",
		Doc: "between servers, point to point; 1.25e9 gives configuration C"},
	{Name: "ethernet_nccl", Default: "3e9", Values: "bytes/s, over 0",
		Doc: "between servers, collectives; 1.25e9 gives configuration C"},
	{Name: "gpu_memory", Default: "16e9", Values: "bytes, 0 or more",
		Doc: "for data parallelism's gradient accumulation"},
}

// constants returns the settings of the published script. `told` has the experiment's settings; the user's settings
// replace them. `dataParallel` says whether data parallelism may win.
func constants(o table.Options, r plan.Request, told ...map[string]string) (k artifact.Constants,
	dataParallel bool, err error) {
	all := slices.Concat(table.SettingsOf("dapple"), scriptSettings)
	r.Formula, r.Set = "artifact", map[string]string{"dp": "yes"}
	for _, more := range told {
		maps.Copy(r.Set, more)
	}
	for _, one := range all { // ignores settings in o.Set that belong to other planners
		if value, given := o.Set[one.Name]; given {
			r.Set[one.Name] = value
		}
	}
	s := plan.ReadSettings("dapple", all, true, r)
	k = artifact.Constants{
		MinMicroBatch:           s.Count("min_micro_batch", 0, plan.MostCount),
		OptimizerMemoryScaling:  s.Number("optimizer_memory_scaling", 0),
		PeakActivationPerSample: s.Number("peak_activation_per_batch", 0),
		NVLink:                  s.Positive("nvlink"), EthernetP2P: s.Positive("ethernet_p2p"),
		EthernetNCCL: s.Positive("ethernet_nccl"),
		GPUMemory:    s.Number("gpu_memory", 0), ProfileBatch: s.Count("profile_batch", 0, plan.MostCount),
		Server: s.Count("server", 0, plan.MostCount),
	}
	if k.MinMicroBatch == 0 {
		k.MinMicroBatch = max(1, r.MicroBatch)
	}
	dataParallel = s.Choice("dp") == "yes"
	return k, dataParallel, s.Done()
}

// dapple plans with the published planner if the formula is "artifact", and otherwise with millrace's own planner for
// DAPPLE. The published planner gets the settings `told`. On published profiles, the formula is "artifact" unless the
// user chooses another.
func dapple(ctx context.Context, o table.Options, b *bench.Bench, p *profile.Profile, batch int,
	told ...map[string]string) (*plan.Plan, error) {
	r := o.Request("dapple", p, b.C, batch)
	if b.Given != nil && r.Formula == "" {
		r.Formula = "artifact"
	}
	if r.Formula == "artifact" {
		k, dataParallel, err := constants(o, r, told...)
		if err != nil {
			return nil, err
		}
		return artifact.Plan(ctx, r, k, dataParallel)
	}
	planner, err := plan.LookupPlanner("dapple")
	if err != nil {
		return nil, err
	}
	return planner.Plan(ctx, r)
}
