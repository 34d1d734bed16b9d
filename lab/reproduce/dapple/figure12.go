package dapple

import (
	"context"
	"fmt"

	"github.com/millrace-ml/millrace/lab/reproduce/bench"
	"github.com/millrace-ml/millrace/lab/reproduce/table"
	"github.com/millrace-ml/millrace/plan"
)

// table6Plan returns a plan of Table 6 on our layers, with micro-batches of microBatch samples.
func table6Plan(b *bench.Bench, r dappleRow, batch, microBatch int) (*plan.Plan, error) {
	if r.Straight {
		return b.Straight(len(b.C.Devices), microBatch, batch/microBatch)
	}
	last, err := b.Behind(r.Cuts)
	if err != nil {
		return nil, err
	}
	return b.Stages(last, r.Replicas, microBatch, batch/microBatch)
}

// figure12 returns the simulated speed-up of a plan of Table 6 under a policy, with micro-batches of microBatch
// samples.
func figure12(b *bench.Bench, r dappleRow, policy string, microBatch int) (float64, error) {
	batch := r.Batch
	if r.BatchUsed > 0 {
		batch = r.BatchUsed
	}
	pl, err := table6Plan(b, r, batch, microBatch)
	if err != nil {
		return 0, err
	}
	if err := bench.As(pl, policy); err != nil {
		return 0, err
	}
	return speedup(b, pl)
}

// coarser returns the largest micro-batch size that divides the batch and gives at least one micro-batch for each
// stage. If no size above r.MicroBatch does, it returns r.MicroBatch.
func (r dappleRow) coarser() int {
	stages, batch := len(r.Replicas), r.Batch
	if r.Straight {
		stages = 16
	}
	if r.BatchUsed > 0 {
		batch = r.BatchUsed
	}
	size := r.MicroBatch
	for n := r.MicroBatch; n <= batch/stages; n++ {
		if batch%n == 0 {
			size = n
		}
	}
	return size
}

func dappleFigure12(ctx context.Context, _ table.Options, t *table.Table) error {
	var paper dappleTable
	if err := table.Read(files, "table6", &paper); err != nil {
		return err
	}
	t.Source = paper.Source + "; values from the figure's text, by the order in which they stand"
	t.Notes = append(t.Notes, "the paper's own plans under millrace's simulator with policy P_B, always on analytic "+
		"costs, whose layers the cuts name; replicas split micro-batches; the paper prints no micro-batches",
		"larger micro-batches: the largest of which a batch has as many as the plan has stages")
	for _, r := range paper.Rows {
		if err := ctx.Err(); err != nil {
			return err
		}
		b, err := bench.New(table.Options{}, r.Workload, nil, "dapple-a")
		if err != nil {
			return err
		}
		bySize, err := b.BySize()
		if err != nil {
			return err
		}
		ours, err := figure12(b, r, "pb", r.MicroBatch)
		if err != nil {
			return err
		}
		row := t.Number(fmt.Sprintf("%s, %s's plan", r.Workload, r.Planner), r.Speedup, ours, "%.1f", "")
		row.Ratio().In(r.Workload)
		for _, other := range []struct {
			what       string
			b          *bench.Bench
			policy     string
			microBatch int
		}{
			{"policy P_A", b, "1f1b", r.MicroBatch},
			{"messages at 0.32 of the wires' rate, as the published planner has them", b.MessagesAt(.32), "pb", r.MicroBatch},
			{"small matrices slower, as cluster/types.yaml has them", bySize, "pb", r.MicroBatch},
			{"larger micro-batches", b, "pb", r.coarser()},
			{"larger micro-batches, messages at 0.32 of the wires' rate", b.MessagesAt(.32), "pb", r.coarser()},
		} {
			v, err := figure12(other.b, r, other.policy, other.microBatch)
			if err != nil {
				return err
			}
			row.Ablate(other.what, v, "%.1f")
		}
	}
	return figure12OnFour(ctx, t, paper.Rows)
}

// figure12OnFour adds the figure's other half, on four servers of eight devices. The paper prints neither plans nor
// values for that half. So our planner makes the plans by the paper's equations (1) to (5), and the values are
// simulated.
func figure12OnFour(ctx context.Context, t *table.Table, rows []dappleRow) error {
	t.Notes = append(t.Notes, "on 4x8 the paper prints neither plans nor numbers; these are the planner's plans by "+
		"equations (1) to (5) for the batches of 2x8")
	planner, err := plan.LookupPlanner("dapple")
	if err != nil {
		return err
	}
	for _, r := range rows {
		if r.Planner != "dapple" {
			continue
		}
		b, err := bench.New(table.Options{}, r.Workload, nil, "dapple-a:4x8")
		if err != nil {
			return err
		}
		p, err := b.Profile(bench.SizesFor(r.Batch, r.MicroBatch)...)
		if err != nil {
			return err
		}
		pl, err := planner.Plan(ctx, table.Options{}.Request("dapple", p, b.C, r.Batch))
		if err != nil {
			return err
		}
		if len(pl.Stages) > 1 {
			if err := bench.As(pl, "pb"); err != nil {
				return err
			}
		}
		ours, err := speedup(b, pl)
		if err != nil {
			return err
		}
		t.Number(fmt.Sprintf("%s on 4x8, %s", r.Workload, colons(pl)), 0, ours, "%.1f", "")
	}
	return nil
}
