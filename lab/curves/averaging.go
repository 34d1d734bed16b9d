package curves

import (
	"context"
	"fmt"
	"slices"

	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/tune/avgpipe"
)

// averaging is a way to distribute batches to AvgPipe's pipelines, with the degrees to try. If `split` is true, each of
// N pipelines gets 1/N of a batch; otherwise each gets a whole batch. `single` means that there is a single pipeline.
// It runs forwards in advance, as AvgPipe does, but has nothing else of AvgPipe.
type averaging struct {
	workload *avgpipe.Workload // its Batch is the batch of one pipeline
	grid     []avgpipe.Degrees
	split    bool
	single   bool
}

// averagings returns the ways to distribute batches that the elastic methods use, each once. The way with a single
// pipeline comes last.
func averagings(w *avgpipe.Workload, methods []Method) ([]averaging, error) {
	sizes := w.Profile.Sizes(w.Cluster.Devices[0])
	var ways []averaging
	add := func(pipelines int, split bool) error {
		own := *w
		if split {
			own.Batch /= pipelines
		}
		grid, err := avgpipe.Grid(own.Batch, sizes, pipelines)
		if err != nil {
			return err
		}
		grid = slices.DeleteFunc(grid, func(at avgpipe.Degrees) bool { return at.Pipelines != pipelines })
		ways = append(ways, averaging{workload: &own, grid: grid, split: split, single: pipelines == 1})
		return nil
	}
	seen := map[[2]int]bool{}
	for _, m := range methods {
		own := [2]int{m.Pipelines(), 0}
		if m.Split {
			own[1] = 1
		}
		if m.Policy != schedule.Elastic || seen[own] {
			continue
		}
		seen[own] = true
		if err := add(m.Pipelines(), m.Split); err != nil {
			return nil, err
		}
	}
	return ways, add(1, false)
}

// batchS returns how many seconds a setting takes for a batch of the comparison.
func (a *averaging) batchS(p *avgpipe.Pipelined) float64 {
	if a.split {
		return p.StepS * float64(p.At.Pipelines)
	}
	return p.StepS
}

// hold finds AvgPipe's fastest setting within the memory of each rival. If a setting with several pipelines fits, hold
// does not consider a single pipeline.
func (t *Times) hold(ctx context.Context, ways []averaging, rivals []avgpipe.Baseline) error {
	best := make([]float64, len(rivals))
	for _, way := range ways {
		rows, err := way.workload.AtEqualMemory(ctx, way.grid, rivals)
		if err != nil {
			return err
		}
		for i, row := range rows {
			h := &t.Held[i]
			switch {
			case row.AvgPipe == nil && !way.single && (h.SmallestBytes == 0 || row.SmallestBytes < h.SmallestBytes):
				h.SmallestBytes = row.SmallestBytes
			case row.AvgPipe == nil, best[i] > 0 && (way.single || way.batchS(row.AvgPipe) >= best[i]):
			default:
				best[i], h.AvgPipe = way.batchS(row.AvgPipe), t.avgPipe(&way, row.AvgPipe)
			}
		}
	}
	for i := range t.Held {
		if at := t.Held[i].AvgPipe; at >= 0 && t.Contested[at].Pipelines > 1 {
			t.Held[i].SmallestBytes = 0 // a way with several pipelines fits
		}
	}
	t.forget()
	return nil
}

// forget drops AvgPipe's contenders that are not the best for any rival.
func (t *Times) forget() {
	kept := make([]int, len(t.Contested))
	var contested []*contender
	for i, c := range t.Contested {
		kept[i] = len(contested)
		if c.Policy != schedule.Elastic || slices.ContainsFunc(t.Held, func(h heldTo) bool { return h.AvgPipe == i }) {
			contested = append(contested, c)
		}
	}
	for i := range t.Held {
		if h := &t.Held[i]; h.AvgPipe >= 0 {
			h.AvgPipe = kept[h.AvgPipe]
		}
	}
	t.Contested = contested
}

// free adds, for each way with several pipelines, AvgPipe's fastest setting without any memory limit. Such a setting
// may need more memory than every rival. It shows how well AvgPipe can fill 1F1B's bubbles.
func (t *Times) free(ctx context.Context, ways []averaging) error {
	for _, way := range ways {
		if way.single {
			continue
		}
		unlimited := *way.workload
		unlimited.LimitBytes = 0
		best, err := unlimited.Best(ctx, way.grid)
		if err != nil {
			return err
		}
		t.avgPipe(&way, best)
	}
	return nil
}

// avgPipe returns the position of a setting of AvgPipe among the contenders. If the setting is missing, it is appended.
func (t *Times) avgPipe(way *averaging, p *avgpipe.Pipelined) int {
	depths := func(pl *plan.Plan) (k []int) {
		for _, st := range pl.Stages {
			k = append(k, st.Warmup)
		}
		return k
	}
	at := slices.IndexFunc(t.Contested, func(c *contender) bool {
		return c.Policy == schedule.Elastic && c.Pipelines == p.At.Pipelines && c.Split == way.split &&
			c.MicroBatches == p.At.MicroBatches && slices.Equal(depths(c.Plan), depths(p.Plan))
	})
	if at >= 0 {
		return at
	}
	c := &contender{
		Name: fmt.Sprintf("AvgPipe M=%d N=%d", p.At.MicroBatches, p.At.Pipelines), Policy: schedule.Elastic,
		Pipelines: p.At.Pipelines, Split: way.split, MicroBatches: p.At.MicroBatches,
		Advance: p.Advance(), PredictedS: way.batchS(p), Predicted: p.MemoryBytes, Plan: p.Plan,
	}
	if way.split {
		c.Name += " " + SplitBatches
	}
	switch last := p.Plan.Stages[len(p.Plan.Stages)-1]; {
	case len(p.Plan.Stages) > 1 && last.Warmup > 1 && last.Warmup == p.At.MicroBatches:
		c.Name += " AFAB"
	case c.Advance > 0:
		c.Name += fmt.Sprintf(" +%d", c.Advance)
	}
	t.Contested = append(t.Contested, c)
	return len(t.Contested) - 1
}
