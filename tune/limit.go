package tune

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/tune/predict"
)

// mostLimits is how many limits FittingLimit tries until one fits, and nearerLimits how many below that.
const mostLimits, nearerLimits = 40, 6

// FittingLimit is a memory limit for every device, in bytes, under which a planner gives a plan that fits in
// simulation. fits is that plan. The limit is from, at least, and no more than some device has. Planners of the
// papers count what their papers count, weights and activations say, and what else a worker holds, such as workspace
// and messages in flight, the simulator alone knows. So what a planner calls the smallest limit may not be enough
// for its plan: the limit is raised to what that plan holds until it is. A planner that names none is asked about
// limits each a quarter above the last. With less a planner may plan otherwise, and fit: some limits between the
// last that did not do and the one that does are tried too. A plan that takes long to simulate is a WorkError.
func FittingLimit(ctx context.Context, p plan.Planner, r plan.Request, from int64) (bytes int64, fits *plan.Plan,
	err error) {
	// under plans under a limit; next is a limit to go on with where the plan, if there is one, does
	// not keep it.
	under := func(limit int64) (pl *plan.Plan, next int64, err error) {
		r := r
		r.Cluster = limitedTo(r.Cluster, limit)
		pl, err = p.Plan(ctx, r)
		var memory *plan.MemoryError
		switch {
		case errors.As(err, &memory) && memory.SmallestBytes <= limit:
			return nil, 0, fmt.Errorf("tune: planner %s keeps to a limit of its settings, which other devices do not change: "+
				"%w", p.Name, err)
		case errors.As(err, &memory):
			return nil, max(limit+limit/16+1, memory.SmallestBytes), nil
		case errors.Is(err, plan.ErrMemory):
			return nil, limit + limit/4 + 1, nil
		case err != nil:
			return nil, 0, err
		}
		if err := predict.CheckWork(pl, predict.OftenPlayed); err != nil {
			return nil, 0, err
		}
		predicted, err := predict.Plan(r.Profile, r.Cluster, pl, false)
		if err != nil {
			return nil, 0, err
		}
		if peak := slices.Max(predicted.Needs()); peak > limit {
			return nil, peak, nil
		}
		return pl, limit, nil
	}
	limit := max(1, from)
	for d := range r.Cluster.Devices {
		limit = max(limit, r.Cluster.MemoryBytes(d))
	}
	short := limit - 1
	for range mostLimits {
		pl, next, err := under(limit)
		if err != nil {
			return 0, nil, err
		}
		if pl == nil {
			short, limit = limit, next
			continue
		}
		for range nearerLimits {
			middle := short + (limit-short)/2
			if middle <= short {
				break
			}
			nearer, _, err := under(middle)
			if err != nil {
				break // there is one that fits
			}
			if nearer == nil {
				short = middle
			} else {
				limit, pl = middle, nearer
			}
		}
		return limit, pl, nil
	}
	return 0, nil, fmt.Errorf("tune: planner %s has no plan that keeps %s a device", p.Name, terminal.Bytes(limit))
}

// limitedTo is the cluster with so much memory on every device.
func limitedTo(c *cluster.Cluster, bytes int64) *cluster.Cluster {
	return c.WithMemory(func(int64) int64 { return bytes })
}

// MemoryError is a search in which nothing fits.
type MemoryError struct {
	LimitBytes    int64 // of the device that is the most over
	Device        int
	OverBytes     int64
	SmallestBytes int64  // the least limit for every device that a plan tried would meet
	Plan          string // that one
	Leanest       *plan.Plan
	Skipped       string // why some plan was not simulated, which may do with less; "": all were
}

func (e *MemoryError) Error() string {
	text := fmt.Sprintf("no plan fits: the nearest is %s over the %s of worker %d; with %s (%d bytes) on each "+
		"there is one, %s", terminal.Bytes(e.OverBytes), terminal.Bytes(e.LimitBytes), e.Device,
		terminal.Bytes(e.SmallestBytes), e.SmallestBytes, e.Plan)
	if e.Skipped != "" {
		text += "; not all were looked at: " + e.Skipped
	}
	return text
}
