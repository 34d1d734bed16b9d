package tune

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/plan/bound"
	"github.com/millrace-ml/millrace/tune/predict"
)

func (s *search) result() (*Result, error) {
	kinds := s.ranked()
	if len(kinds) == 0 {
		if s.shapeless != "" {
			return nil, fmt.Errorf("tune: no plan keeps to what is fixed: %s", s.shapeless)
		}
		if why := s.failed[s.Fix.Schedule]; why != "" {
			return nil, fmt.Errorf("tune: no plan keeps to what is fixed: schedule %q: %s", s.Fix.Schedule, why)
		}
		return nil, fmt.Errorf("tune: no plan keeps to what is fixed: %d stages, schedule %q on %d workers; %q has one "+
			"stage, the others two or more",
			max(s.Fix.Stages, len(s.Fix.Split)+1), s.Fix.Schedule, len(s.Cluster.Devices), s.undivided.Name)
	}
	out := &Result{Tried: s.tried, Estimated: s.estimator.made, Exhaustive: s.exhausted}
	for _, kind := range kinds {
		c := s.best[kind]
		c.plan.Predicted = &c.predicted
		out.Rivals = append(out.Rivals, Rival{Kind: kind, Plan: c.plan, Predicted: c.predicted, Fits: c.over(s.Cluster) == 0})
	}
	if overlapped, ok := s.overlapped(); ok {
		out.Rivals = append(out.Rivals, overlapped)
	}
	best := s.top
	if best.over(s.Cluster) > 0 {
		return nil, s.memoryError(best)
	}
	out.Best = best.plan
	out.Best.Predicted = &best.predicted
	if out.Best.Planner == "auto" {
		out.Best.Objective.Value = best.predicted.StepS
	}
	out.LowestS = bound.Step(s.Profile, s.Cluster, s.boundKind(best.plan))
	if out.LowestS > 0 {
		gap := best.predicted.StepS/out.LowestS - 1
		if gap < 0 && gap > -1e-9 {
			gap = 0 // the bound is met; the sums were added in another order
		}
		out.Best.LowerBound = &plan.LowerBound{StepS: out.LowestS, Gap: gap}
	}
	out.Best.Why = s.why(kinds)
	return out, nil
}

func (s *search) memoryError(best candidate) *MemoryError {
	lean := s.leanest
	if lean.plan == nil {
		lean = best
	}
	e := &MemoryError{SmallestBytes: slices.Max(lean.predicted.Needs()), Plan: describe(s.Profile, lean.plan),
		Leanest: lean.plan, Skipped: s.skipped}
	e.Device, e.OverBytes = predict.Over(s.Cluster, lean.plan, &lean.predicted)
	e.LimitBytes = s.Cluster.MemoryBytes(e.Device)
	return e
}

// why says, a sentence each, what the best plan is, what it beat and by how much.
func (s *search) why(kinds []string) []string {
	best := s.top
	among := fmt.Sprintf("the least of %d plans simulated and %d estimated", s.tried, s.estimator.made)
	if s.tried == 1 && s.estimator.made == 0 {
		among = "the only plan there is to try"
	}
	out := []string{fmt.Sprintf("%s: %.4g ms a step, %s", describe(s.Profile, best.plan), 1e3*best.predicted.StepS, among)}
	if s.exhausted {
		out = append(out, "every cut, device, replication, depth and order that the search knows was simulated, or cannot "+
			"be faster")
	}
	for _, kind := range kinds {
		c := s.best[kind]
		if c.plan == best.plan {
			continue
		}
		name := describe(s.Profile, c.plan)
		if !strings.HasPrefix(name, kind) {
			name = kind + " (" + name + ")"
		}
		if over := c.over(s.Cluster); over > 0 {
			out = append(out, fmt.Sprintf("%s does not fit: %s too much on its fullest worker", name, cluster.FormatBytes(over)))
			continue
		}
		slower := c.predicted.StepS/best.predicted.StepS - 1
		if slower < 1e-9 {
			held, holds := cluster.FormatBytes(slices.Max(c.predicted.MemoryBytes)),
				cluster.FormatBytes(slices.Max(best.predicted.MemoryBytes))
			if held == holds {
				out = append(out, fmt.Sprintf("%s: as fast, and holds as much, %s", name, holds))
			} else {
				out = append(out, fmt.Sprintf("%s: as fast, and holds %s where this holds %s", name, held, holds))
			}
			continue
		}
		out = append(out, fmt.Sprintf("%s: %.4g ms, %.1f %% slower (bubble %.1f %% against %.1f %%)", name,
			1e3*c.predicted.StepS, 100*slower, 100*c.predicted.Bubble, 100*best.predicted.Bubble))
	}
	for _, name := range slices.Sorted(maps.Keys(s.failed)) {
		out = append(out, fmt.Sprintf("%s gave no plan: %s", name, s.failed[name]))
	}
	return out
}

// overlapped is data parallelism whose all-reduce runs beside the backward, layer by layer, by
// its closed form, to compare with: the families that are searched sum stages. Sums go one after
// another, the last layer's first, each once its layer's last backward is done.
func (s *search) overlapped() (Rival, bool) {
	W := len(s.Cluster.Devices)
	if W < 2 || s.Runnable || !s.Fix.none() {
		return Rival{}, false
	}
	order, L := s.orders[0], len(s.Profile.Layers)
	sum := s.sumsOf(order).line(order, 0, W)
	out := Rival{Kind: "data parallelism, overlapped", Fits: true,
		Note: "by formula, layer by layer; it was not simulated"}
	for _, size := range s.sizes {
		each := (s.Batch/size + W - 1) / W
		slowest, update, fits := 0.0, 0.0, true
		for d := range W {
			t := s.tables.of(s.Cluster.Devices[d], size)
			forward, backward := t.time(0, L, plan.KeepAll)
			now := float64(each)*forward + float64(each-1)*backward
			summed := 0.0
			for l := L - 1; l >= 0; l-- {
				now += t.backward[l+1] - t.backward[l]
				if bytes := t.Gradients[l+1] - t.Gradients[l]; bytes > 0 {
					summed = max(summed, now) + sum[0] + sum[1]*float64(bytes)
				}
			}
			slowest, update = max(slowest, now, summed), t.update[L]
			if limit := s.Cluster.MemoryBytes(d); limit > 0 && t.Held(0, L, 1, plan.KeepAll) > limit {
				fits = false
			}
		}
		if step := slowest + update; out.Predicted.StepS == 0 || step < out.Predicted.StepS {
			out.Predicted.StepS, out.Predicted.SamplesPerSecond, out.Fits = step, float64(s.Batch)/step, fits
		}
	}
	return out, true
}
