package tune

import (
	"fmt"
	"slices"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
)

// candidate is a plan with what the simulator says of it.
type candidate struct {
	plan      *plan.Plan
	predicted plan.Predicted
	rough     bool // its memory is of the simulated timing alone: it is slower than another of its kind, which fits
}

// over is by how many bytes the worst device is over its memory; 0 if none is.
func (c candidate) over(cl *cluster.Cluster) int64 {
	worst := int64(0)
	for i, d := range c.plan.Devices() {
		if limit := cl.MemoryBytes(d); limit > 0 {
			worst = max(worst, c.predicted.Needs()[i]-limit)
		}
	}
	return worst
}

// fullest is the device that is the most over its memory, and by how many bytes.
func (c candidate) fullest(cl *cluster.Cluster) (device int, over int64) {
	for i, d := range c.plan.Devices() {
		if limit := cl.MemoryBytes(d); limit > 0 && c.predicted.Needs()[i]-limit > over {
			device, over = d, c.predicted.Needs()[i]-limit
		}
	}
	return device, over
}

// tie is a difference in time that rounding makes, relatively.
const tie = 1e-9

// better prefers plans that fit, then the shorter step, then the smaller peak: schedules that
// differ only in depth often tie in time.
func (c candidate) better(than candidate, cl *cluster.Cluster) bool {
	if a, b := c.over(cl), than.over(cl); a > 0 || b > 0 {
		return a < b
	}
	a, b := c.predicted.StepS, than.predicted.StepS
	if d := a - b; d < -tie*b || d > tie*b {
		return d < 0
	}
	return slices.Max(c.predicted.Needs()) < slices.Max(than.predicted.Needs())
}

// describe names a plan in a few words.
func describe(p *profile.Profile, pl *plan.Plan) string {
	if len(pl.Stages) == 1 {
		if n := len(pl.Stages[0].Devices); n > 1 {
			return fmt.Sprintf("data parallelism on %d workers, %d x %d", n, pl.MicroBatches, pl.MicroBatch)
		}
		return fmt.Sprintf("one worker, %d x %d", pl.MicroBatches, pl.MicroBatch)
	}
	var begins []string
	for _, st := range pl.Stages[1:] {
		first := st.FirstLayer
		if pl.Order != nil {
			first = pl.Order[first]
		}
		name := p.Layers[first].Name
		if part := st.Fraction(st.FirstLayer); part < 1 {
			name = fmt.Sprintf("%.4g %% of %s", 100*part, name)
		}
		begins = append(begins, name)
	}
	again := ""
	if slices.ContainsFunc(pl.Stages, func(s plan.Stage) bool { return s.Recompute.Again() }) {
		again = ", recomputing"
	}
	return fmt.Sprintf("%s on %d stages cut before %v, %d x %d%s", pl.Schedule, len(pl.Stages), begins, pl.MicroBatches, pl.MicroBatch, again)
}
