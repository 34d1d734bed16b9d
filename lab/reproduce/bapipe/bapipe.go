// Package bapipe registers the experiments of BaPipe's tables and figures.
//
// Input: an experiment's Options. Output: its Table. Errors: the planners' errors.
package bapipe

import (
	"context"

	"github.com/millrace-ml/millrace/lab/reproduce/bench"
	"github.com/millrace-ml/millrace/lab/reproduce/table"
	"github.com/millrace-ml/millrace/plan"
)

func init() {
	table.Register("bapipe-table1", "BaPipe Table I: 1F1B-AS and FBP-AS on uniform stages, transfers overlapped",
		table.Uses{}, bapipeTable1)
	table.Register("bapipe-table2", "BaPipe Table II: 1F1B-SNO and 1F1B-SO on uniform stages, time for each transfer",
		table.Uses{}, bapipeTable2)
	table.Register("bapipe-table3", "BaPipe Table III: speedup over data parallelism on V100s over PCIe",
		table.Uses{Profiles: true, Planners: []string{"bapipe", "pipedream"},
			Fixed: []string{"dp", "chains"}}, bapipeTable3)
	table.Register("bapipe-table4", "BaPipe Table IV: the most layers of GNMT-L", table.Uses{}, bapipeTable4)
	table.Register("bapipe-table5", "BaPipe Table V: the boards of the presets", table.Uses{}, bapipeTable5)
	table.Register("bapipe-table6", "BaPipe Table VI: ResNet-50 on FPGA boards, speedup over data parallelism",
		table.Uses{Planners: []string{"bapipe"}, Fixed: []string{"dp", "chains", "schedule"}}, bapipeTable6)
}

// explored returns BaPipe's plan in one chain, and the simulated time of a sample. `microBatch` is the size of
// micro-batches; if it is 0, the planner chooses the size. `dp` is the planner's setting that says whether data
// parallelism may win.
func explored(ctx context.Context, b *bench.Bench, o table.Options, batch, microBatch int, dp string) (
	*plan.Plan, float64, error,
) {
	planner, err := plan.LookupPlanner("bapipe")
	if err != nil {
		return nil, 0, err
	}
	sizes := []int{microBatch}
	if microBatch == 0 {
		sizes = sizes[:0]
		for n := 1; n <= batch/len(b.C.Devices); n *= 2 {
			sizes = append(sizes, n)
		}
	}
	p, err := b.Profile(sizes...)
	if err != nil {
		return nil, 0, err
	}
	r := o.Request("bapipe", p, b.C, batch)
	r.MicroBatch = microBatch
	r.Set["dp"], r.Set["chains"] = dp, "1"
	pl, err := planner.Plan(ctx, r)
	if err != nil {
		return nil, 0, err
	}
	sum, err := b.Run(pl)
	return pl, sum.StepS / float64(batch), err
}

// pipelined returns how long a sample takes in a straight pipeline over n devices.
func pipelined(b *bench.Bench, order string, n, batch, microBatches int) (float64, error) {
	size := batch / microBatches
	pl, err := b.Straight(n, size, microBatches)
	if err != nil {
		return 0, err
	}
	if err := bench.As(pl, order); err != nil {
		return 0, err
	}
	sum, err := b.Run(pl)
	return sum.StepS / float64(size*microBatches), err
}
