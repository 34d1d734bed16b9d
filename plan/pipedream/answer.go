package pipedream

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
)

// stage is one stage of the answer: its last state and its devices.
type stage struct {
	last    int // index in the search's list
	devices []int
}

// trace lists the stages of segment (i, end) at a level. The segment runs on every group of devices that begins with
// one of the devices in `bases`. trace reads the cuts from the segment's row, and computes the row if it is nil. It
// also stores, in fullest, the segment with the most memory by the published rule.
func (s *search) trace(ctx context.Context, level, i, end int, bases []int, row *row) []stage {
	if row == nil {
		row = s.row(ctx, level, i, end)
	}
	if ctx.Err() != nil {
		return nil
	}
	width := s.width(level)
	type run struct{ first, last, workers, ahead int }
	var runs []run
	n := s.levels[level].workers
	r := n
	for j := end; ; {
		for r > 1 && s.mayIdle(i, j) && row.least[r-1][j] == row.least[r][j] {
			r--
		}
		whole := math.Inf(1)
		if r == 1 || !s.o.straight {
			whole = s.whole(level, i, j, r, s.computed(level, i, j))
		}
		if whole <= row.least[r][j] {
			runs = append(runs, run{i, j, r, n - r})
			break
		}
		_, k, q := s.cut(level, i, j, r, row, math.Nextafter(row.least[r][j], math.Inf(1)))
		runs = append(runs, run{k + 1, j, q, n - r})
		j, r = k, r-q
	}
	slices.Reverse(runs)
	var stages []stage
	worker := 0
	for _, part := range runs {
		var inside []int
		for _, base := range bases {
			for w := range part.workers {
				inside = append(inside, base+(worker+w)*width)
			}
		}
		worker += part.workers
		if bytes := s.held(part.first, part.last, part.ahead, part.workers); bytes > s.fullest.bytes {
			s.fullest = held{part.first, part.last, inside, bytes}
		}
		if level == 0 {
			stages = append(stages, stage{part.last, inside})
		} else {
			stages = append(stages, s.trace(ctx, level-1, part.first, part.last, inside, nil)...)
		}
	}
	return stages
}

// answer writes the stages as a plan. If a batch is one minibatch, an update follows each minibatch, as in PipeDream.
// If a batch is several minibatches, one update follows all of them. Without a flush, that needs at least one minibatch
// for each replica of a stage; if there are fewer, a step is a single minibatch. Without a flush, the warm-up of a
// stage is the number of workers from this stage on, divided by the stage's replicas and rounded up, as PipeDream's
// runtime counts. On the input stage this is NOAM.
func (s *search) answer(r plan.Request, states *profile.States, stages []stage, size int) (*plan.Plan, error) {
	chain := make([]int, len(stages))
	for i, st := range stages {
		chain[i] = s.ids[st.last]
	}
	order, ends := states.Order(chain)
	ends[len(ends)-1] = len(order) // layers without a reader are in the last stage
	pl := r.Blank(s.o.planner, "round_robin")
	pl.MicroBatch, pl.MicroBatches = size, r.Batch/size
	pl.Schedule, pl.Weights = "1f1b-rr", "stash"
	if s.o.flush {
		pl.Schedule, pl.Weights = "1f1b", "sync"
	}
	if !slices.IsSorted(order) {
		pl.Order = order
	}
	first := 0
	for i, st := range stages {
		if ends[i] == first { // a stage may be empty if the cuts are not nested
			continue
		}
		slices.Sort(st.devices)
		pl.Stages = append(pl.Stages, plan.Stage{FirstLayer: first, LastLayer: ends[i] - 1, Devices: st.devices})
		first = ends[i]
	}
	if len(pl.Stages) == 1 && s.o.flush {
		pl.Schedule = "dp"
	}
	if widest := widest(pl); !s.o.flush && pl.MicroBatches > 1 && pl.MicroBatches < widest {
		pl.Why = append(pl.Why, fmt.Sprintf("a step is one minibatch of %s, not the %d of the batch of %d: a "+
			"stage on %d devices works on as many at once, and so many make no update that each of them has a part in",
			terminal.Count(size, "sample"), pl.MicroBatches, r.Batch, widest))
		pl.MicroBatches = 1
	}
	behind := 0
	for i := len(pl.Stages) - 1; i >= 0; i-- {
		st := &pl.Stages[i]
		behind += len(st.Devices)
		st.Warmup = (behind + len(st.Devices) - 1) / len(st.Devices)
		if s.o.flush {
			st.Warmup = min(len(pl.Stages)-i, pl.MicroBatches)
		}
	}
	return pl, pl.Validate()
}

// widest returns the largest number of devices that a stage has.
func widest(p *plan.Plan) int {
	most := 0
	for _, st := range p.Stages {
		most = max(most, len(st.Devices))
	}
	return most
}
