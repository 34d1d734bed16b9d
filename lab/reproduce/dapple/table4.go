package dapple

import (
	"context"
	"fmt"
	"maps"

	"github.com/millrace-ml/millrace/lab/reproduce/bench"
	"github.com/millrace-ml/millrace/lab/reproduce/table"
)

// equations lists changes to the planner that follows the paper's equations. With each change, this planner plans once
// more. Each change makes it more like the published planner: it searches only pipelines of two stages, or messages are
// slower.
var equations = []struct {
	what string
	set  map[string]string
	part float64 // fraction of the wires' rate that messages reach; 0 means all of it
}{
	{"pipelines of two stages alone", map[string]string{"most_stages": "2"}, 0},
	{"messages at 0.32 of the wires' rate, as the published planner has them", nil, .32},
	{"pipelines of two stages alone, messages at 0.32 of the wires' rate", map[string]string{"most_stages": "2"}, .32},
}

func init() {
	table.Register("dapple-table4", "DAPPLE Table 4: plans on 16 devices by the published search",
		table.Uses{Profiles: true, Planners: []string{"dapple"}, Script: scriptSettings}, dappleTable4)
	table.Register("dapple-table4-equations", "DAPPLE Table 4: plans on 16 devices by the paper's equations",
		table.Uses{}, dappleTable4Equations)
	table.Register("dapple-table4-acr", "DAPPLE Table 4: activation communication ratios of the paper's plans",
		table.Uses{}, dappleTable4ACR)
}

// eachPlan calls `yield` with each row of Table 4 on each cluster, and with the published planner's settings for that
// row and cluster.
func eachPlan(ctx context.Context, o table.Options, t *table.Table,
	yield func(r dappleRow, preset string, b *bench.Bench, told map[string]string) error) error {
	var paper dappleTable
	if err := table.Read(files, "table4", &paper); err != nil {
		return err
	}
	t.Source = paper.Source
	for _, r := range paper.Rows {
		for _, preset := range []string{"dapple-a", "dapple-b", "dapple-c"} {
			if err := ctx.Err(); err != nil {
				return err
			}
			b, err := bench.New(o, r.Workload, nil, preset)
			if err != nil {
				return err
			}
			told := r.Artifact
			if preset == "dapple-c" {
				told = maps.Clone(told)
				maps.Copy(told, paper.ConfigC)
			}
			if err := yield(r, preset, b, told); err != nil {
				return err
			}
		}
	}
	return nil
}

func dappleTable4(ctx context.Context, o table.Options, t *table.Table) error {
	if o.Formula == "" {
		o.Formula = "artifact"
	}
	t.Notes = append(t.Notes, "the published search, told what its examples tell it; with --profiles, on the profiles "+
		"that its authors published")
	return eachPlan(ctx, o, t, func(r dappleRow, preset string, b *bench.Bench, told map[string]string) error {
		return table4Plan(ctx, o, t, b, r, preset, told)
	})
}

func dappleTable4Equations(ctx context.Context, o table.Options, t *table.Table) error {
	o.Formula = "paper"
	t.Notes = append(t.Notes, "equations (1) to (5) searched in full; the published search knows pipelines of two "+
		"stages, of as many stages as devices, and data parallelism")
	return eachPlan(ctx, o, t, func(r dappleRow, preset string, b *bench.Bench, told map[string]string) error {
		return table4Plan(ctx, o, t, b, r, preset, told)
	})
}

func dappleTable4ACR(ctx context.Context, o table.Options, t *table.Table) error {
	t.Notes = append(t.Notes, "the mean over the cuts of what a micro-batch's activations and gradients take between "+
		"stages, over the mean of what stages compute (section 6.2), of the plans that the paper prints",
		"part of the wires' rate: messages on them all the time, where a micro-batch is on one device of each stage, "+
			"recurrent layers compute step by step and attention's context is no part of messages. Where it differs between "+
			"rows of one cluster, no one rate of messages gives both rows' ratios")
	all := table.Combine(messages{}, otherMessages, len(otherMessages))
	table.Tries(t, all)
	return eachPlan(ctx, o, t, func(r dappleRow, preset string, b *bench.Bench, _ map[string]string) error {
		return printedACR(t, b, r, preset, all)
	})
}

// table4Plan plans a row's model on the cluster `preset` by o.Formula, and adds the plan to the table. If the costs are
// analytic (b.Given is nil), it also compares the plan's split with the paper's. If o.Formula is "paper" too, it adds
// the plan under each change in `equations`.
func table4Plan(ctx context.Context, o table.Options, t *table.Table, b *bench.Bench, r dappleRow, preset string,
	told map[string]string) error {
	p, err := b.Profile(bench.SizesFor(r.Batch, r.MicroBatch)...)
	if err != nil {
		return err
	}
	pl, err := dapple(ctx, o, b, p, r.Batch, told)
	if err := table.OfSettings(err); err != nil {
		return err
	}
	what := fmt.Sprintf("%s (%d) on %s, %s", r.Workload, r.Batch, preset, o.Formula)
	if err != nil {
		t.Word(what, r.Plans[preset], "none", err.Error())
		return nil
	}
	row := t.Word(what, r.Plans[preset], colons(pl), "")
	if o.Formula == "paper" && b.Given == nil {
		for _, e := range equations {
			asked := o
			asked.Set = maps.Clone(e.set)
			if asked.Set == nil {
				asked.Set = map[string]string{}
			}
			maps.Copy(asked.Set, o.Set)
			on := b
			if e.part > 0 {
				on = b.MessagesAt(e.part)
			}
			other, err := dapple(ctx, asked, on, p, r.Batch, told)
			if err != nil {
				return err
			}
			row.AblateWord(e.what, colons(other))
		}
	}
	if b.Given != nil {
		return nil
	}
	return split(t, b, r, preset, what, pl)
}
