package tune

import (
	"context"
	"slices"

	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/tune/roles"
)

// maxReplicatedStages is the largest number of stages of a partition whose stages may have replicas. It applies on up
// to 32 devices, if the request does not fix the number of stages. Moves may split stages further.
const maxReplicatedStages = 8

// wants lists the partitions to look for.
func (c cutter) wants(order []int, size int, again plan.Recompute) []want {
	var all []want
	W := len(c.Cluster.Devices)
	w := want{size: size, order: order, replicas: []int{1}, again: again, fits: true}
	for _, S := range c.stageCounts() {
		w.stages, w.devices = S, S
		all = append(all, w)
	}
	if !c.replicas() || W < 3 && c.Fix.Stages == 0 {
		return all
	}
	w.devices, w.replicas = W, nil
	if W > 32 { // only plans with the same number of replicas for every stage
		for _, S := range c.stageCounts() {
			if W%S == 0 && S < W && W/S <= schedule.MaxReplica {
				w.stages, w.replicas = S, []int{W / S}
				all = append(all, w)
				if !c.Whole {
					w.split = true
					all = append(all, w)
					w.split = false
				}
			}
		}
		return all
	}
	for r := 1; r <= W; r++ {
		w.replicas = append(w.replicas, r)
	}
	w.stages, w.all = min(maxReplicatedStages, W-1, len(c.Profile.Layers)), c.Fix.Stages == 0
	if c.Fix.Stages > 0 {
		w.stages = c.Fix.Stages
	}
	if w.stages < 2 || w.stages >= W {
		return all
	}
	all = append(all, w)
	if !c.Whole {
		w.split = true
		all = append(all, w)
		if w.alone = c.Batch == size; w.alone { // a single micro-batch is in one stage at a time
			all = append(all, w)
		}
	}
	return all
}

// nearest returns one partition for each number of stages that w asks for. It is a partition that fits or, if none
// fits, the fastest one.
func (c cutter) nearest(w want) []*shape {
	found, wanted := c.partition(w), 1
	if w.all {
		wanted = w.stages - 1
	}
	if len(found) == wanted {
		return found
	}
	w.fits = false
	for _, h := range c.partition(w) {
		if !slices.ContainsFunc(found, func(o *shape) bool { return o.stages() == h.stages() }) {
			found = append(found, h)
		}
	}
	return found
}

// cutAnew returns shapes for a fixed family for which the search has no similar plans. For each number of stages there
// is a straight shape. If stages may have replicas, there are also shapes that use all devices, one whose replicas take
// turns and one whose replicas divide micro-batches. On more than 32 devices these have the same number of replicas for
// every stage. The stages of each shape are balanced. Shapes with the most stages come first. cutAnew stops when ctx
// ends.
func (c cutter) cutAnew(ctx context.Context) []*shape {
	var out []*shape
	for _, size := range c.baseSizes() {
		for _, order := range c.orders {
			for _, again := range c.recomputes() {
				for _, w := range c.wants(order, size, again) {
					if ctx.Err() != nil {
						continue
					}
					if w.all {
						w.stages = min(w.devices-1, len(c.Profile.Layers))
					}
					w.family = c.pipelines
					out = append(out, c.nearest(w)...)
				}
			}
		}
	}
	slices.SortStableFunc(out, func(a, b *shape) int { return b.stages() - a.stages() })
	return out
}

// placed returns shapes for a family that places its stages itself. Such a family has several stages on a worker, in
// rounds or as a V, or each stage on several workers.
func (c cutter) placed(f family.Family) []*shape {
	var out []*shape
	W := len(c.Cluster.Devices)
	for _, v := range c.chunks(f) {
		if roles.SeveralStages(f) == (v == 1) || W < 2 {
			continue
		}
		on := f.Placement(W, v)
		S := len(on)
		if S == 1 {
			out = append(out, c.wholeModels(f, on[0])...)
		}
		if S < 2 || S > len(c.Profile.Layers) {
			continue
		}
		order, each := slices.Concat(on...), make([]int, S)
		for i, devices := range on {
			each[i] = len(devices)
		}
		w := want{stages: S, devices: len(order), order: order, replicas: []int{slices.Min(each)}, family: c.pipelines}
		if slices.Max(each) > w.replicas[0] {
			w.each = each
		}
		for _, size := range c.baseSizes() {
			for _, again := range c.recomputes() {
				w.size, w.again = size, again
				out = append(out, c.nearest(w)...)
			}
		}
	}
	return out
}

// chunks returns the numbers of stages of a worker to try for a family that places its stages itself. For a family that
// takes any number, they include the one that gives as many stages in all as the user fixes, if there is one.
func (c cutter) chunks(f family.Family) []int {
	if f.Chunks > 1 {
		return []int{f.Chunks}
	}
	some, S, W := []int{1, 2, 4}, c.Fix.Stages, len(c.Cluster.Devices)
	if f.Chunks < 0 && S > 0 {
		for _, v := range []int{S / W, S} { // each stage on one worker, or on all of them
			if v > 0 && !slices.Contains(some, v) && len(f.Placement(W, v)) == S {
				some = append(some, v)
			}
		}
	}
	return some
}

// wholeModels returns shapes in which each of the devices `on` has the whole model. If the family runs whole batches, a
// step has one micro-batch. Otherwise it has at least as many micro-batches as devices.
func (c cutter) wholeModels(f family.Family, on []int) []*shape {
	var out []*shape
	for _, size := range c.sizes {
		if n := c.Batch / size; !f.Whole && n < len(on) || f.Whole && n != 1 {
			continue
		}
		for _, again := range c.recomputes() {
			out = append(out, &shape{
				cuts: []int{0, len(c.Profile.Layers)}, counts: []int{len(on)}, order: on, depth: []int{1},
				again: []plan.Recompute{again}, size: size, family: c.undivided.Name,
			})
		}
	}
	return out
}

// splitAsGiven returns the user's own cuts for a fixed family.
func (c cutter) splitAsGiven(f family.Family) []*shape {
	cuts := slices.Concat([]int{0}, c.Fix.Split, []int{len(c.Profile.Layers)})
	S := len(cuts) - 1
	order := c.orders[0]
	if len(order) < S {
		order = slices.Repeat(order, (S+len(order)-1)/len(order)) // the function `place` assigns them to devices
	}
	var out []*shape
	for _, size := range c.sizes {
		for _, all := range c.recomputes() {
			counts := slices.Repeat([]int{1}, S)
			out = append(out, &shape{
				cuts: cuts, counts: counts, order: order, again: slices.Repeat([]plan.Recompute{all}, S), size: size,
				family: f.Name,
				depth:  depths(counts, false, c.pipelines.Warmup, c.Batch/size),
			})
		}
	}
	return out
}
