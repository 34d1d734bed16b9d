package tune

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/tune/predict"
)

// candidate is a plan with the simulator's prediction.
type candidate struct {
	plan      *plan.Plan
	predicted plan.Predicted
	// rough means that the memory in `predicted` was computed for the simulated timing only, and not for other timings.
	// That is enough if another plan of its kind fits and is faster.
	rough bool
}

// over returns how many bytes the worst device lacks; 0 if all have enough.
func (c candidate) over(cl *cluster.Cluster) int64 {
	_, bytes := predict.Over(cl, c.plan, &c.predicted)
	return bytes
}

// tie is the relative difference below which two times count as equal, because rounding may have caused it.
const tie = 1e-9

// better reports whether a candidate is better than another. A plan that fits is better than one that does not. Of two
// that do not fit, the one that lacks fewer bytes is better. Of two that fit, it is the one with the shorter step, and
// at equal steps the one with the smaller peak. Schedules that differ only in depth often tie in time.
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

// describe returns a short description of a plan.
func describe(p *profile.Profile, pl *plan.Plan) string {
	if len(pl.Stages) == 1 {
		if n := len(pl.Stages[0].Devices); n > 1 {
			return fmt.Sprintf("data parallelism on %d workers, %s", n, pl.Micros())
		}
		return "one worker, " + pl.Micros()
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
	cuts := strings.Join(begins, ", ")
	if n := len(begins); n > 4 {
		cuts = fmt.Sprintf("%s and %d more", strings.Join(begins[:3], ", "), n-3)
	}
	again := ""
	if slices.ContainsFunc(pl.Stages, func(s plan.Stage) bool { return s.Recompute.Again() }) {
		again = ", recomputing"
	}
	return fmt.Sprintf("%s on %d stages cut before %s, %s%s", pl.Schedule, len(pl.Stages), cuts, pl.Micros(), again)
}

// candidates are the plans simulated so far.
type candidates struct {
	*space
	deadline  time.Time            // when the search must end; zero means never
	seen      map[string]candidate // by kind and shape
	best      map[string]candidate // by kind
	byStages  map[staged]candidate // best of its kind with so many stages and micro-batches
	top       candidate            // best of all
	leanest   candidate            // the candidate with the least memory among tryLeast's plans
	tried     int
	layouts   map[string]bool   // the stages, workers and micro-batches of the plans tried
	failed    map[string]string // planners and families without a result, and why
	shapeless string            // why a shape was not simulated (the last such shape); "" if all were
	skipped   string            // why a plan was skipped (the last such plan); "" if none was
}

// staged is a kind of plans with some number of stages, size of micro-batches and kind of replication, "" if no stage
// is replicated.
type staged struct {
	kind, replication  string
	stages, microBatch int
}

func (at staged) compare(b staged) int {
	return cmp.Or(cmp.Compare(at.kind, b.kind), at.stages-b.stages, at.microBatch-b.microBatch,
		cmp.Compare(at.replication, b.replication))
}

func stagedAs(kind string, pl *plan.Plan) staged {
	at := staged{kind: kind, stages: len(pl.Stages), microBatch: pl.MicroBatch}
	// Counts of devices and stages do not tell: a worker may have several stages, and each stage several workers.
	if slices.ContainsFunc(pl.Stages, func(st plan.Stage) bool { return len(st.Devices) > 1 }) {
		at.replication = pl.Replication
	}
	return at
}

// keptOfAKind is the largest number of plans that bestThat returns of each kind.
const keptOfAKind = 3

// bestThat returns the best plans of each kind for which `keeps` is true, the best first.
func (all *candidates) bestThat(keeps func(*plan.Plan) bool) (out []*plan.Plan) {
	for _, kind := range all.ranked() {
		found := []candidate{all.best[kind]}
		for _, at := range slices.SortedFunc(maps.Keys(all.byStages), staged.compare) {
			if c := all.byStages[at]; at.kind == kind && c.plan != found[0].plan {
				found = append(found, c)
			}
		}
		found = slices.DeleteFunc(found, func(c candidate) bool { return !keeps(c.plan) })
		slices.SortStableFunc(found, func(a, b candidate) int {
			switch {
			case a.better(b, all.Cluster):
				return -1
			case b.better(a, all.Cluster):
				return 1
			}
			return 0
		})
		for _, c := range found[:min(keptOfAKind, len(found))] {
			out = append(out, c.plan)
		}
	}
	return out
}

// try simulates a plan, with the fixed settings for post-validation, sharding and gradient sums. It keeps the plan if
// it is the best of its kind, or the best of all.
func (all *candidates) try(kind string, pl *plan.Plan) (candidate, error) {
	pl.PostValidate = all.Fix.PostValidate && all.Clip && schedule.Policy(pl.Weights).Synchronous()
	if schedule.Policy(pl.Weights).Synchronous() {
		pl.Shard, pl.Gradients = all.Fix.Shard, all.Fix.Gradients
	}
	before, ok := all.best[kind]
	predicted, rough, err := predict.PlanIf(all.Profile, all.Cluster, pl, all.Clip, func(stepS float64) bool {
		return !ok || before.over(all.Cluster) > 0 || stepS <= before.predicted.StepS*(1+tie)
	})
	if err != nil {
		return candidate{}, fmt.Errorf("tune: %s: %w", describe(all.Profile, pl), err)
	}
	if all.counted(pl); all.Simulated != nil {
		all.Simulated(all.tried)
	}
	c := candidate{pl, predicted, rough}
	at := stagedAs(kind, pl)
	if before, ok := all.byStages[at]; !ok || c.better(before, all.Cluster) {
		all.byStages[at] = c
	}
	if rough {
		return c, nil
	}
	if !ok || c.better(before, all.Cluster) {
		all.best[kind] = c
	}
	if all.top.plan == nil || c.better(all.top, all.Cluster) {
		all.top = c
	}
	return c, nil
}

// counted counts a plan that was simulated.
func (all *candidates) counted(pl *plan.Plan) {
	all.tried++
	layout := fmt.Sprint(pl.MicroBatch, pl.MicroBatches)
	for _, s := range pl.Stages {
		layout += fmt.Sprint(" ", s.FirstLayer, s.LastLayer, s.FirstFraction, s.LastFraction, s.Devices)
	}
	all.layouts[layout] = true
}

// whole returns a candidate with its full memory: it computes what a rough candidate lacks.
func (all *candidates) whole(c candidate) (candidate, error) {
	if !c.rough {
		return c, nil
	}
	predicted, err := predict.Plan(all.Profile, all.Cluster, c.plan, all.Clip)
	if err != nil {
		return candidate{}, fmt.Errorf("tune: %s: %w", describe(all.Profile, c.plan), err)
	}
	return candidate{plan: c.plan, predicted: predicted}, nil
}

// tryShape simulates a shape unless an equal shape was simulated before, or there is no time for it.
func (all *candidates) tryShape(kind string, h *shape) (c candidate, fresh bool, err error) {
	pl := all.plan(h)
	key := kind + fmt.Sprint(h.cuts, h.counts, h.order[:h.used()], h.depth, h.again, h.size, h.split, h.family)
	if before, ok := all.seen[key]; ok {
		return before, false, nil
	}
	if err = all.late(pl); err == nil {
		c, err = all.try(kind, pl)
	}
	if err == nil {
		all.seen[key] = c
	}
	return c, err == nil, err
}

// tryLeast is tryShape for shapes that do not depend on the memory limit. It remembers the shape with the least memory.
// A MemoryError names this memory as the smallest limit, and a search under that limit must find the plan again.
func (all *candidates) tryLeast(kind string, h *shape) (candidate, bool, error) {
	c, fresh, err := all.tryShape(kind, h)
	if err == nil {
		c, err = all.whole(c)
	}
	if err == nil && (all.leanest.plan == nil ||
		slices.Max(c.predicted.Needs()) < slices.Max(all.leanest.predicted.Needs())) {
		all.leanest = c
	}
	return c, fresh, err
}

// record stores a shape's error, so that the search can continue with the next shape. It reports whether the shape gave
// a new candidate.
func (all *candidates) record(_ candidate, fresh bool, err error) bool {
	if err != nil && !all.passOver(err) {
		all.shapeless = err.Error()
	}
	return fresh && err == nil
}

// passOver reports whether an error only means that one plan takes too long to simulate. The search then continues
// without that plan. The error is kept, in case no plan is left.
func (all *candidates) passOver(err error) bool {
	var work *predict.WorkError
	var late *LateError
	switch {
	case errors.As(err, &work):
		all.skipped = strings.TrimPrefix(work.Error(), "tune: ")
	case errors.As(err, &late):
		all.skipped = strings.TrimPrefix(late.Error(), "tune: ")
	default:
		return false
	}
	all.shapeless = err.Error()
	return true
}

// fits says whether there is a candidate of a kind that fits.
func (all *candidates) fits(kind string) bool {
	c, ok := all.best[kind]
	return ok && c.over(all.Cluster) == 0
}

// fastest returns the shortest step of a kind so far, or infinity if no plan of the kind fits.
func (all *candidates) fastest(kind string) float64 {
	if !all.fits(kind) {
		return math.Inf(1)
	}
	return all.best[kind].predicted.StepS
}

// fit says whether the best of all fits.
func (all *candidates) fit() bool { return all.top.plan != nil && all.top.over(all.Cluster) == 0 }

// ranked lists the kinds, the best first.
func (all *candidates) ranked() []string {
	kinds := slices.Sorted(maps.Keys(all.best))
	slices.SortStableFunc(kinds, func(a, b string) int {
		switch {
		case all.best[a].better(all.best[b], all.Cluster):
			return -1
		case all.best[b].better(all.best[a], all.Cluster):
			return 1
		case all.best[a].plan == all.top.plan:
			return -1
		case all.best[b].plan == all.top.plan:
			return 1
		}
		return 0
	})
	return kinds
}

// unite marks the rivals whose plan is also another rival's. The one that is listed for all of them is `best` or, if
// there is a choice, the one that is named like its plan; its Why names the others. The result has the kinds whose best
// plan is `best`, except those that are in the plan's name. It is nil if that is the best plan of only one kind.
func unite(all []Rival, best *plan.Plan) (also []string) {
	for i := range all {
		if all[i].Same != "" {
			continue
		}
		listed, kinds := i, []string(nil)
		var group []int
		for k := i; k < len(all); k++ {
			if all[k].Same != "" || !all[k].Plan.Same(all[i].Plan) {
				continue
			}
			group = append(group, k)
			if all[k].Plan == best || all[listed].Plan != best && all[k].named() && !all[listed].named() {
				listed = k
			}
		}
		for _, k := range group {
			if k != listed {
				all[k].Same, all[k].Why = all[listed].Kind, "the same plan as "+all[listed].Kind
			}
			if len(group) > 1 && (k != listed || all[k].Plan == best) && !all[k].named() {
				kinds = append(kinds, all[k].Kind)
			}
		}
		if all[listed].Plan == best {
			also = kinds
		} else if kinds != nil {
			all[listed].Why += "; the same plan as " + strings.Join(kinds, ", ")
		}
	}
	return also
}

// named says whether the name of the rival's plan begins with its kind.
func (r Rival) named() bool {
	return strings.HasPrefix(r.Plan.Layout(), strings.TrimPrefix(r.Kind, "replicated "))
}

// rivalsOf returns the ranked plans other than the best, in the form in which the best plan stores them. Of rivals with
// the same plan it returns the one that is listed for all.
func rivalsOf(best *plan.Plan, ranked []Rival) []plan.Rival {
	var out []plan.Rival
	for _, r := range ranked {
		if r.Plan == best || r.Same != "" {
			continue
		}
		kept := plan.Rival{Kind: r.Kind, StepS: r.Predicted.StepS, Bubble: r.Predicted.Bubble, Fits: r.Fits, Why: r.Why}
		if r.Plan != nil {
			kept.Name, kept.Stages, kept.MemoryBytes = nameOf(r.Plan), len(r.Plan.Stages), slices.Max(r.Predicted.MemoryBytes)
			kept.MicroBatches, kept.MicroBatch = r.Plan.MicroBatches, r.Plan.MicroBatch
		}
		out = append(out, kept)
	}
	return out
}

// LateError says that a search has no time left to simulate a plan.
type LateError struct{ Takes, Left time.Duration }

func (e *LateError) Error() string {
	return fmt.Sprintf("tune: simulating the plan takes about %v, and the search has %v left", e.Takes, e.Left)
}

const (
	// simulatedPerSecond is the assumed number of instructions that a search simulates in a second.
	simulatedPerSecond = 1_000_000
	// surelySimulated is the number of instructions that are simulated without a check of the time.
	surelySimulated = 500_000
)

// late returns a LateError if the simulation of a plan would not end before the deadline. It always returns nil for
// small plans, without a deadline, and as long as the search has no answer.
func (all *candidates) late(pl *plan.Plan) error {
	n := int64(predict.StepsPlayed(all.Profile, all.Cluster, pl)) * predict.StepInstructions(pl)
	if n <= surelySimulated || all.top.plan == nil || all.deadline.IsZero() {
		return nil
	}
	takes := time.Duration(float64(n) / simulatedPerSecond * float64(time.Second))
	if left := time.Until(all.deadline); takes > left {
		return &LateError{takes, max(0, left.Round(time.Millisecond))}
	}
	return nil
}
