package tune

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/tune/predict"
)

// mostLimits is how many limits FittingLimit tries until one fits. nearerLimits is how many it then tries below the
// limit that fits.
const mostLimits, nearerLimits = 40, 6

// FittingLimit returns a memory limit for every device, in bytes, with which a planner's plan fits in simulation.
// `fits` is that plan. The search begins at the larger of `from` and the memory of the largest device. Planners count
// memory as their papers do, such as weights and activations. Only the simulator counts everything, including workspace
// and messages in flight. So the smallest limit that a planner names may be too small for its plan. The limit is then
// raised to the peak memory of the plan, until the plan fits. If a planner names no limit, each next limit is a quarter
// higher. With a lower limit a planner may choose another plan that fits, so some limits between the last failure and
// the success are tried too. A plan that takes long to simulate gives a WorkError.
func FittingLimit(ctx context.Context, p plan.Planner, r plan.Request, from int64) (bytes int64, fits *plan.Plan,
	err error) {
	// under lets the planner plan within a limit. If the plan needs more, or there is no plan, `pl` is nil and `next` is
	// the next limit to try.
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
				break // keep the limit that fits
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

// limitedTo returns the cluster with this many bytes of memory on every device.
func limitedTo(c *cluster.Cluster, bytes int64) *cluster.Cluster {
	return c.WithMemory(func(int64) int64 { return bytes })
}

// MemoryError says that nothing in a search fits.
type MemoryError struct {
	LimitBytes    int64 // the limit of the device that exceeds its limit most
	Device        int
	OverBytes     int64
	SmallestBytes int64  // the least limit, the same on all devices, with which some tried plan fits
	Plan          string // the plan that needs SmallestBytes
	Leanest       *plan.Plan
	Skipped       string // why plans that might need less were not simulated; "" if all were
}

func (e *MemoryError) Error() string {
	text := fmt.Sprintf("no plan fits: the nearest is %s over the %s of worker %d; with %s (%dB) on each "+
		"there is one, %s", terminal.Bytes(e.OverBytes), terminal.Bytes(e.LimitBytes), e.Device,
		terminal.Bytes(e.SmallestBytes), e.SmallestBytes, e.Plan)
	if e.Skipped != "" {
		text += "; not all were looked at: " + e.Skipped
	}
	return text
}

// mostLeaner is how many lower limits are tried after a search in which nothing fits.
const mostLeaner = 12

// leanest looks for a smaller limit than an error names, and returns the error with the smallest one that it finds. A
// search in which nothing fits orders plans by time, so it may miss lean plans of slow kinds. A search with a slightly
// smaller limit than the error's finds such a plan. The next limit is then the memory of that plan, or a 32nd less if
// the plan needs all. The error names limits with which a search has found a plan, and not the memory of a plan that no
// search with this limit may find.
func leanest(ctx context.Context, s *search, err *MemoryError) *MemoryError {
	limit := err.SmallestBytes - err.SmallestBytes/32
	for range mostLeaner {
		r := s.Request
		r.inner, r.Time, r.Simulated, r.Cluster = true, 0, s.together(), limitedTo(r.Cluster, limit)
		found, failed := Search(ctx, r)
		if failed != nil {
			break
		}
		err = s.memoryError(candidate{plan: found.Best, predicted: *found.Best.Predicted})
		needs := err.SmallestBytes
		if err.SmallestBytes = limit; alike(s.Cluster) {
			err.OverBytes = limit - err.LimitBytes
		}
		if needs < limit {
			limit = needs
		} else {
			limit -= limit / 32
		}
	}
	return err
}

// alike says whether all devices of a cluster have the same memory.
func alike(c *cluster.Cluster) bool {
	for d := range c.Devices {
		if c.MemoryBytes(d) != c.MemoryBytes(0) {
			return false
		}
	}
	return true
}

// memoryError returns the error for a search whose leanest plan is `lean`.
func (s *search) memoryError(lean candidate) *MemoryError {
	e := &MemoryError{SmallestBytes: slices.Max(lean.predicted.Needs()), Plan: describe(s.Profile, lean.plan),
		Leanest: lean.plan, Skipped: s.skipped}
	e.Device, e.OverBytes = predict.Over(s.Cluster, lean.plan, &lean.predicted)
	e.LimitBytes = s.Cluster.MemoryBytes(e.Device)
	return e
}

// impossible returns the error for a search that found no plan, whatever it holds.
func impossible(s *search) error {
	const none = "tune: no plan keeps to what is fixed: "
	why, workers := s.failed[s.Fix.Schedule], len(s.Cluster.Devices)
	switch {
	case s.shapeless != "":
		return errors.New(none + s.shapeless)
	case why != "":
		return fmt.Errorf("%sschedule %q: %s", none, s.Fix.Schedule, strings.TrimPrefix(why, "tune: "))
	case workers == 1:
		return fmt.Errorf("%sschedule %q has no plan on one worker, which can have only one stage; %q has", none,
			s.Fix.Schedule, s.undivided.Name)
	}
	return fmt.Errorf("%s%d stages, schedule %q on %d workers; %q has one stage, pipelines two or more", none,
		max(s.Fix.Stages, len(s.Fix.Split)+1), s.Fix.Schedule, workers, s.undivided.Name)
}
