package tune

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/sim"
	"github.com/millrace-ml/millrace/tune/roles"
)

func (s *search) result() (*Result, error) {
	kinds := s.ranked()
	if len(kinds) == 0 {
		return nil, impossible(s)
	}
	out := &Result{Tried: s.tried, Estimated: s.estimator.made, Exhaustive: s.exhausted, search: s}
	for _, kind := range kinds {
		c := s.best[kind]
		c.plan.Predicted = &c.predicted
		out.Rivals = append(out.Rivals, Rival{Kind: kind, Plan: c.plan, Predicted: c.predicted, Fits: c.over(s.Cluster) == 0,
			Why: s.reasons.loses(c, s.top)})
	}
	also := unite(out.Rivals, s.top.plan)
	if overlapped, ok := s.reasons.overlapped(); ok {
		out.Rivals = append(out.Rivals, overlapped)
	}
	best := s.top
	if best.over(s.Cluster) > 0 {
		if s.leanest.plan != nil {
			best = s.leanest
		}
		return nil, s.memoryError(best)
	}
	out.Best = best.plan
	out.Best.Predicted = &best.predicted
	if out.Best.Planner == "auto" {
		out.Best.Objective.Value = best.predicted.StepS
	}
	if best.plan.Shard == plan.ShardNothing { // otherwise updates, and sums in 16 bits, may be faster than in the bound
		if proofs := s.proven.of(context.Background(), s.space, s.boundKind(best.plan)); len(proofs) > 0 {
			out.Proof, out.LowestS = proofs[0], proofs[0].StepS
		}
	}
	if out.LowestS > 0 {
		gap := best.predicted.StepS/out.LowestS - 1
		if gap < 0 && gap > -1e-9 {
			gap = 0 // the step equals the bound, which was added up in another order
		}
		out.Best.LowerBound = &plan.LowerBound{StepS: out.LowestS, Gap: gap}
	}
	out.Best.Why, out.Best.Rivals = s.why(out.LowestS > 0), rivalsOf(out.Best, out.Rivals)
	if pressed(s, out) {
		out.Best.Why = append(out.Best.Why, "it needs nearly all the memory and takes far longer than the bound: with so "+
			"little memory the search may miss better plans, and a longer time looks at more")
	}
	if len(also) > 0 {
		out.Best.Why = append(out.Best.Why, "this is also the best plan of "+plainly(len(also), "kind ", "kinds ")+
			strings.Join(also, ", "))
	}
	return out, nil
}

// farAbove is how many times the bound a step takes that lack of memory may have made slow.
const farAbove = 3

// pressed says whether lack of memory may have hidden better plans from a search than one that needs almost all of it.
func pressed(s *search, found *Result) bool {
	best := found.Best
	if found.LowestS <= 0 || s.exhausted || s.cutAt > 0 || best.Predicted.StepS < farAbove*found.LowestS {
		return false
	}
	for i, needs := range best.Predicted.Needs() {
		if limit := s.Cluster.MemoryBytes(best.Devices()[i]); limit > 0 && needs > limit-limit/16 {
			return true
		}
	}
	return false
}

// why says how the best plan was found and among how many plans. It also names the planners and families that have no
// result. `bounded` says that a lower bound is printed beside the plan. The bound covers plans without the fixed
// choices too.
func (s *search) why(bounded bool) []string {
	tried, made := s.tried-s.unlike.Tried, s.estimator.made-s.unlike.Estimated
	counted := terminal.Count(tried, "plan") + " simulated"
	if made > 0 {
		counted += " and " + terminal.Whole(made) + " estimated"
	}
	if s.unlike.Tried > 0 { // the progress line has counted these plans too
		counted += " with what is fixed (" + terminal.Whole(s.tried) + " simulated in all)"
	}
	out := []string{"of " + counted + " this takes the least"}
	switch {
	case made > 0 || len(s.layouts) > 1:
	case tried > 1:
		out[0] += "; the others differ only in what they recompute and how deep they warm up, since no other stages or " +
			"micro-batches keep to what is fixed"
	default:
		out = []string{"it is the only plan there is to try"}
		if bounded && !s.Fix.none() {
			out[0] += " with what is fixed; the bound covers other splits, orders and schedules too"
		}
	}
	// A search without a fixed schedule has tried orders with split backwards.
	if kind := s.boundKind(s.top.plan); bounded && s.Fix.Schedule != "" && !kind.Halves && !kind.Loose {
		out = append(out, "the bound is of plans with whole backwards; schedules that split them may be faster")
	}
	if s.cutAt > 0 {
		out = append(out, fmt.Sprintf("the search ended after %s, with more to look at: a longer time may find a better "+
			"plan, and more kinds of rivals", terminal.Duration(s.cutAt.Seconds())))
	}
	if s.exhausted {
		out = append(out, "every cut, device, replication, depth and order that the search knows was simulated, or cannot "+
			"be faster")
	}
	for _, name := range slices.Sorted(maps.Keys(s.failed)) {
		if _, err := family.Named(name); err == nil { // this name is a family that is impossible with the fixed settings
			continue
		}
		planner, _, _ := strings.Cut(name, " ")
		why := strings.TrimPrefix(strings.TrimPrefix(s.failed[name], "plan: "), planner+": ")
		out = append(out, fmt.Sprintf("%s gave no plan: %s", name, why))
	}
	return out
}

// reasons explains from simulations why plans are slower than the best.
type reasons struct{ *space }

// overlapped returns data parallelism whose all-reduce overlaps the backward, layer by layer. Its time comes from a
// closed form. It is only for comparison, because the simulator sums buckets of layers instead. The sums run one after
// another, beginning with the last layer's. A sum begins when its layer's last backward is done. ok is false on one
// device, or if plans are restricted.
func (s reasons) overlapped() (Rival, bool) {
	W := len(s.Cluster.Devices)
	if W < 2 || s.Runnable || !s.Fix.none() {
		return Rival{}, false
	}
	order, L := s.orders[0], len(s.Profile.Layers)
	sum := s.sumsOf(order).line(order, 0, W)
	const formula = "by formula, layer by layer; it was not simulated"
	out := Rival{Kind: "data parallelism, overlapped", Fits: true, Note: formula, Why: formula}
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
			if limit := s.Cluster.MemoryBytes(d); limit > 0 && t.Held(0, L, 1, plan.KeepAll, s.replicated(W)) > limit {
				fits = false
			}
		}
		if step := slowest + update; out.Predicted.StepS == 0 || step < out.Predicted.StepS {
			out.Predicted.StepS, out.Predicted.SamplesPerSecond, out.Fits = step, float64(s.Batch)/step, fits
		}
	}
	return out, true
}

// parts divides a step's time into parts that add up to it. Because of rounding, the busiest worker may seem to compute
// for longer than a step. The part `wait` is then 0.
type parts struct {
	work   float64 // computing time of all workers, if it were shared evenly over the cluster
	idle   float64 // time added because some workers are idle
	uneven float64 // added because the busiest worker computes more than the mean of the workers that compute
	wait   float64 // the busiest worker's wait for other workers, transfers and sums
}

func (c candidate) parts(workers int) parts {
	sum, most := 0.0, 0.0
	for _, b := range c.predicted.BusyS {
		sum, most = sum+b, max(most, b)
	}
	mean := sum / float64(len(c.predicted.BusyS))
	return parts{work: sum / float64(workers), idle: mean - sum/float64(workers), uneven: most - mean,
		wait: max(0, c.predicted.StepS-most)}
}

// loses says in a few words why a plan is worse than the best. For a slower plan it names the part of the step whose
// difference is the largest.
func (s reasons) loses(c, best candidate) string {
	if c.plan == best.plan {
		return ""
	}
	if over := c.over(s.Cluster); over > 0 {
		return fmt.Sprintf("does not fit: %s too much on its fullest worker", terminal.Bytes(over))
	}
	if c.predicted.StepS < best.predicted.StepS*(1+sameShown) {
		held, holds := terminal.Bytes(slices.Max(c.predicted.MemoryBytes)),
			terminal.Bytes(slices.Max(best.predicted.MemoryBytes))
		if held == holds {
			return "as fast, and holds as much"
		}
		if more := 100 * (c.predicted.StepS/best.predicted.StepS - 1); more >= 0.005 && slices.Max(c.predicted.MemoryBytes) <
			slices.Max(best.predicted.MemoryBytes) {
			return fmt.Sprintf("%.1g %% slower, though its fullest worker holds %s, not %s", more, held, holds)
		}
		return fmt.Sprintf("as fast; its fullest worker holds %s, not %s", held, holds)
	}
	workers := len(s.Cluster.Devices)
	own, other := c.parts(workers), best.parts(workers)
	work, idle := own.work-other.work, own.idle-other.idle
	uneven, wait := own.uneven-other.uneven, own.wait-other.wait
	n := len(c.predicted.BusyS)
	if n >= len(best.predicted.BusyS) { // no fewer workers: more idle time is then due to more computing
		work, idle = work+idle, 0
	}
	switch max(work, idle, uneven, wait) {
	case idle:
		return fmt.Sprintf("only %d of %s", n, terminal.Count(workers, "worker")) + plainly(n, " works", " work")
	case work:
		return fmt.Sprintf("computes %.1f %% more%s", 100*(own.work/other.work-1), s.costlier(c, best))
	case uneven:
		k := slices.Index(c.predicted.BusyS, slices.Max(c.predicted.BusyS))
		return fmt.Sprintf("uneven: %s on worker %d, %s on average", ms(c.predicted.BusyS[k]),
			c.plan.Devices()[k], ms(c.predicted.BusyS[k]-own.uneven))
	}
	text := "busiest worker waits " + ms(own.wait)
	if computes, most := slices.Max(c.predicted.BusyS), slices.Max(best.predicted.BusyS); most-computes > wait/2 {
		text = fmt.Sprintf("busiest worker computes %s, not %s, but waits %s", ms(computes), ms(most), ms(own.wait))
	}
	if was := ms(other.wait); was != ms(0) && was != ms(own.wait) {
		text += ", not " + was
	}
	if sum := s.longestSum(c.plan); sum > own.wait/2 {
		text += fmt.Sprintf("; an all-reduce takes %s", ms(sum))
	}
	return text
}

// sameShown is the largest relative difference of two steps that are called equally fast. As a percentage with one
// decimal, such a difference is shown as 0.0 %.
const sameShown = 0.0005

// ms formats a time in milliseconds.
func ms(s float64) string {
	if s < 1e-12 { // 0 except for rounding
		return "0 ms"
	}
	return terminal.Number(1e3*s, 3) + " ms"
}

func plainly(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

// costlier says why a plan computes more than another one, if the reason is clear: other devices, its updates,
// recompute, a size of micro-batch that takes longer per sample, or split backwards.
func (s reasons) costlier(c, best candidate) string {
	pl, than := c.plan, best.plan
	if on, not := s.deviceTypes(pl), s.deviceTypes(than); on != not {
		return fmt.Sprintf(": on %s, not %s", on, not)
	}
	own, other := s.updatesS(pl), s.updatesS(than)
	if more := sumOf(c.predicted.BusyS) - sumOf(best.predicted.BusyS); own-other > more/2 {
		return fmt.Sprintf(": updates take %s of all workers' time, not %s", ms(own), ms(other))
	}
	again := func(p *plan.Plan) bool {
		return slices.ContainsFunc(p.Stages, func(st plan.Stage) bool { return st.Recompute.Again() })
	}
	rows := func(p *plan.Plan) (n int, sole bool) {
		sizes := p.Sizes()
		return sizes[0], len(sizes) == 1
	}
	sampleS := func(n int) float64 { // seconds per sample of the whole model in micro-batches of n, on the first device
		t := s.tables.of(s.Cluster.Devices[0], n)
		forward, backward := t.time(0, len(s.Profile.Layers), plan.KeepAll)
		return (forward + backward) / float64(n)
	}
	halves := func(p *plan.Plan) bool {
		f, err := family.Lookup(p.Schedule)
		return err == nil && f.Halves
	}
	n, sole := rows(pl)
	m, soleToo := rows(than)
	switch {
	case again(pl) && !again(than):
		return ": it recomputes"
	case sole && soleToo && n != m && sampleS(n) > sampleS(m):
		return fmt.Sprintf(": %s at once, not %d, on each worker", terminal.Count(n, "sample"), m)
	case halves(pl) && !halves(than):
		return ": backwards in two halves take longer"
	}
	return ""
}

// deviceTypes names the types of the devices that a plan uses: "rtx3090 and rtx4090".
func (s reasons) deviceTypes(pl *plan.Plan) string {
	var all []string
	for _, d := range pl.Devices() {
		all = append(all, s.Cluster.Devices[d])
	}
	slices.Sort(all)
	return strings.Join(slices.Compact(all), " and ")
}

// updatesS returns the seconds of all workers' updates in a step, or 0 if they are unknown.
func (s reasons) updatesS(pl *plan.Plan) float64 {
	costs, err := sim.CostsOf(s.Profile, s.Cluster, pl)
	if err != nil || schedule.Policy(pl.Weights).Served() {
		return 0
	}
	total, step := 0.0, stepOf(pl)
	for i, st := range pl.Stages {
		for r := range st.Devices {
			of := costs.Stages[i]
			total += step.updates(i) * of[min(r, len(of)-1)].UpdateS
		}
	}
	return total
}

func sumOf(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum
}

// longestSum returns the seconds of a stage's all-reduces in a step, for the stage where they take longest.
func (s reasons) longestSum(pl *plan.Plan) float64 {
	costs, err := sim.CostsOf(s.Profile, s.Cluster, pl)
	if err != nil || schedule.Policy(pl.Weights).Served() {
		return 0
	}
	longest, step := 0.0, stepOf(pl)
	for i := range pl.Stages {
		longest = max(longest, step.updates(i)*costs.Stages[i][0].AllReduceS)
	}
	return longest
}

// nameOf returns a plan's layout, and its warm-up if that differs from its schedule's own.
func nameOf(pl *plan.Plan) string {
	switch have, _ := Warmups(pl); {
	case len(have) > 4:
		return fmt.Sprintf("%s, warm-up %d to %d", pl.Layout(), have[0], have[len(have)-1])
	case have != nil:
		return pl.Layout() + ", warm-up " + listed(have)
	}
	return pl.Layout()
}

// Warmups returns the warm-up of a plan's stages, and the warm-up that their schedule would choose. It returns nil if
// both are equal. It also returns nil if the plan has one stage or leaves its depths to the schedule, or if the
// schedule's depths cannot be chosen.
func Warmups(pl *plan.Plan) (have, own []int) {
	f, err := family.Lookup(pl.Schedule)
	if err != nil || f.Warmup == nil && f.Own == nil || roles.SeveralStages(f) || len(pl.Stages) < 2 {
		return nil, nil
	}
	var counts []int
	for _, st := range pl.Stages {
		counts, have = append(counts, len(st.Devices)), append(have, st.Warmup)
	}
	if f.Warmup != nil {
		own = depths(counts, pl.Replication == string(schedule.Split), f.Warmup, pl.MicroBatches)
	} else {
		for _, k := range f.Own(len(pl.Stages), pl.MicroBatches) {
			own = append(own, min(k, pl.MicroBatches)) // a larger depth has no effect
		}
	}
	if slices.Equal(own, have) || slices.Contains(have, 0) {
		return nil, nil
	}
	return have, own
}

func listed(n []int) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(n), " ", ", "), "[]")
}
