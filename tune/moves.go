package tune

import (
	"cmp"
	"slices"

	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/schedule/family"
)

// mover generates shapes and plans of a space that differ by one move.
type mover struct{ *space }

// neighbours yields the shapes that are one move away. A move changes a cut, moves devices between stages, merges or
// splits stages, exchanges devices or the places of stages, or changes recompute, depths or the micro-batch.
func (mv mover) neighbours(h *shape, yield func(*shape) bool) {
	open := true
	try := func(change func(next *shape) bool) {
		if !open {
			return
		}
		next := h.clone()
		if change(next) {
			open = yield(next)
		}
	}
	S := h.stages()
	if mv.Fix.Split == nil {
		for _, by := range []int{1, -1, 3, -3, 9, -9} {
			for i := 1; i < S; i++ {
				try(func(n *shape) bool {
					n.cuts[i] += by
					return n.cuts[i] > n.cuts[i-1] && n.cuts[i] < n.cuts[i+1]
				})
			}
		}
	}
	mv.deviceMoves(h, try)
	mv.depthMoves(h, try)
	if _, fixed, _ := mv.Fix.FixedRecompute(); !fixed {
		for i := range S {
			for _, again := range alternatives(h.cuts[i+1] - h.cuts[i]) {
				if again != h.again[i] {
					try(func(n *shape) bool { n.again[i] = again; return true })
				}
			}
		}
	}
	deepest := mv.families[h.family].Deepest
	for i, size := range mv.sizes {
		if size != h.size {
			continue
		}
		for _, k := range []int{i - 1, i + 1} {
			if k >= 0 && k < len(mv.sizes) {
				try(func(n *shape) bool {
					n.size = mv.sizes[k]
					m := mv.Batch / n.size
					for i := range n.depth {
						if n.depth[i] = min(n.depth[i], m); deepest {
							n.depth[i] = m
						}
					}
					return true
				})
			}
		}
	}
}

func (mv mover) deviceMoves(h *shape, try func(func(*shape) bool)) {
	S, spare := h.stages(), len(h.order)-h.used()
	if mv.replicas() {
		for i := range S {
			for j := range S {
				if i != j {
					try(func(n *shape) bool {
						n.counts[i]--
						n.counts[j]++
						return n.counts[i] > 0 && mv.settleDepths(n)
					})
				}
			}
			try(func(n *shape) bool { n.counts[i]++; return spare > 0 && mv.settleDepths(n) })
			try(func(n *shape) bool { n.counts[i]--; return n.counts[i] > 0 && mv.settleDepths(n) })
			try(func(n *shape) bool { n.counts[i] = 1; return h.counts[i] > 2 && mv.settleDepths(n) })
		}
	}
	if mv.Fix.Stages == 0 && mv.Fix.Split == nil && mv.Fix.Warmup == nil {
		for i := 0; i+1 < S; i++ {
			try(func(n *shape) bool { // merge stages i and i+1
				n.cuts = slices.Delete(n.cuts, i+1, i+2)
				n.counts[i] += n.counts[i+1]
				n.counts = slices.Delete(n.counts, i+1, i+2)
				n.again = slices.Delete(n.again, i+1, i+2)
				if !mv.replicas() {
					n.counts[i] = 1
				}
				if S == 2 {
					n.family, n.split = mv.undivided.Name, false
				}
				return (S > 2 || mv.Fix.Schedule == "") && mv.settleDepths(n)
			})
		}
		for i := range S {
			try(func(n *shape) bool { // split stage i in the middle
				from, to := n.cuts[i], n.cuts[i+1]
				if to-from < 2 || n.counts[i] < 2 && spare == 0 {
					return false
				}
				half := max(1, n.counts[i]/2)
				if n.counts[i] > 1 {
					n.counts[i] -= half
				}
				n.cuts = slices.Insert(n.cuts, i+1, (from+to)/2)
				n.counts = slices.Insert(n.counts, i+1, half)
				n.again = slices.Insert(n.again, i+1, n.again[i])
				if n.family == mv.undivided.Name {
					n.family = mv.pipelines.Name
				}
				return (mv.replicas() || n.used() == n.stages()) && mv.settleDepths(n)
			})
		}
	}
	mv.placeMoves(h, try)
}

// placeMoves exchanges devices, and the places of stages, if that makes a difference.
func (mv mover) placeMoves(h *shape, try func(func(*shape) bool)) {
	if mv.mixed {
		// Exchange two different devices, at least one of which is used.
		for a := range h.used() {
			for b := a + 1; b < len(h.order); b++ {
				if !mv.same(h.order[a], h.order[b]) {
					try(func(n *shape) bool { n.order[a], n.order[b] = n.order[b], n.order[a]; return true })
				}
			}
		}
		return
	}
	if inside := mv.Cluster.Levels[0].Size; inside == 1 || inside == len(h.order) {
		return // it makes no difference which devices a stage is on
	}
	for i := range h.stages() {
		for j := i + 1; j < h.stages(); j++ {
			try(func(n *shape) bool { n.changePlaces(i, j); return true })
		}
	}
	for _, pair := range mv.apart(h) {
		try(func(n *shape) bool {
			a, b := pair[0], pair[1]
			n.order[a], n.order[b] = n.order[b], n.order[a]
			return true
		})
	}
}

// apart returns pairs of positions in a shape's order, for which an exchange of the devices changes the links between
// stages. The two positions of a pair belong to two stages, or to a stage and the unused devices. If a stage has
// several devices in an innermost group, only the first of them is in pairs.
func (mv mover) apart(h *shape) (pairs [][2]int) {
	inside := mv.Cluster.Levels[0].Size
	type seat struct{ stage, group int }
	var places []int // first position of each seat in the order
	seats := map[seat]bool{}
	stageOf, stage, left := make([]int, len(h.order)), 0, h.counts[0]
	for at := range h.order {
		for left == 0 {
			if stage++; stage < h.stages() {
				left = h.counts[stage]
			} else {
				left = len(h.order)
			}
		}
		left--
		stageOf[at] = stage
		if one := (seat{stage, h.order[at] / inside}); !seats[one] {
			seats[one] = true
			places = append(places, at)
		}
	}
	for i, a := range places {
		for _, b := range places[i+1:] {
			if stageOf[a] != stageOf[b] && h.order[a]/inside != h.order[b]/inside {
				pairs = append(pairs, [2]int{a, b})
			}
		}
	}
	return pairs
}

// depthMoves changes how many micro-batches stages have in flight. A shape of AFAB or P_B then becomes one of 1F1B with
// the changed depths, unless the schedule is fixed.
func (mv mover) depthMoves(h *shape, try func(func(*shape) bool)) {
	general := cmp.Or(mv.families[h.family].General, h.family)
	if mv.Fix.Warmup != nil || mv.Fix.Schedule != "" && mv.Fix.Schedule != general || h.stages() == 1 {
		return
	}
	m := mv.Batch / h.size
	for _, by := range []int{1, -1} {
		for i := range h.depth {
			try(func(n *shape) bool {
				n.family = general
				n.depth[i] += by
				return n.depth[i] >= 1 && n.depth[i] <= m && (i == 0 || n.depth[i] <= n.depth[i-1]) &&
					(i+1 == len(n.depth) || n.depth[i] >= n.depth[i+1])
			})
		}
		try(func(n *shape) bool {
			n.family = general
			for i := range n.depth {
				n.depth[i] = min(max(1, n.depth[i]+by), m)
			}
			return true
		})
	}
}

// nearby yields the plans one move away from pl: another cut, depth, recompute or micro-batch. If the plan's family
// leaves the stages' devices open, moves also change how many devices the stages have, merge stages, and split them.
func (mv mover) nearby(pl *plan.Plan, yield func(*plan.Plan) bool) {
	open := true
	try := func(change func(next *plan.Plan) bool) {
		if !open {
			return
		}
		next := *pl
		next.Stages = slices.Clone(pl.Stages)
		if change(&next) {
			open = yield(&next)
		}
	}
	if mv.Fix.Split == nil {
		for _, by := range []int{1, -1, 3, -3} {
			for i := 1; i < len(pl.Stages); i++ {
				try(func(next *plan.Plan) bool {
					before, behind := &next.Stages[i-1], &next.Stages[i]
					before.LastLayer += by
					behind.FirstLayer += by
					return before.FirstLayer <= before.LastLayer && behind.FirstLayer <= behind.LastLayer
				})
			}
		}
	}
	mv.depthsNearby(pl, try)
	if _, fixed, _ := mv.Fix.FixedRecompute(); !fixed {
		for i, st := range pl.Stages {
			for _, again := range alternatives(st.LastLayer - st.FirstLayer + 1) {
				if again != st.Recompute {
					try(func(next *plan.Plan) bool { next.Stages[i].Recompute = again; return true })
				}
			}
		}
	}
	mv.sizesNearby(pl, try)
	mv.devicesNearby(pl, try) // the most moves: last, so that a budget lasts for the others
}

// sizesNearby takes the next smaller or larger micro-batch, if a step of the plan computes the requested batch.
func (mv mover) sizesNearby(pl *plan.Plan, try func(func(*plan.Plan) bool)) {
	if pl.Batch() != mv.Batch {
		return
	}
	at := slices.Index(mv.sizes, pl.MicroBatch)
	for _, k := range []int{at - 1, at + 1} {
		if at >= 0 && k >= 0 && k < len(mv.sizes) {
			try(func(next *plan.Plan) bool {
				next.MicroBatch, next.MicroBatches = mv.sizes[k], mv.Batch/mv.sizes[k]
				for i := range next.Stages {
					next.Stages[i].Warmup = min(next.Stages[i].Warmup, next.MicroBatches)
				}
				return true
			})
		}
	}
}

// devicesNearby moves a device from one stage to another, takes an unused one, and merges or splits stages. It does
// nothing if the plan's family places its stages itself, or if depths are fixed, one for each stage.
func (mv mover) devicesNearby(pl *plan.Plan, try func(func(*plan.Plan) bool)) {
	f, err := family.Lookup(pl.Schedule)
	if err != nil || f.Place != nil || !mv.replicas() {
		return
	}
	unused := mv.unused(pl)
	for j := range pl.Stages {
		for i, st := range pl.Stages {
			try(func(next *plan.Plan) bool {
				last := len(st.Devices) - 1
				if i == j || last == 0 {
					return false
				}
				next.Stages[i].Devices = st.Devices[:last:last]
				next.Stages[j].Devices = with(pl.Stages[j].Devices, st.Devices[last])
				return true
			})
		}
		try(func(next *plan.Plan) bool {
			if len(unused) > 0 {
				next.Stages[j].Devices = with(pl.Stages[j].Devices, unused[0])
			}
			return len(unused) > 0
		})
	}
	if mv.Fix.Stages > 0 || mv.Fix.Split != nil {
		return
	}
	for i, st := range pl.Stages {
		try(func(next *plan.Plan) bool {
			if i == 0 || len(pl.Stages) == 2 {
				return false
			}
			before := &next.Stages[i-1]
			before.LastLayer, before.Devices = st.LastLayer, with(before.Devices, st.Devices...)
			next.Stages = slices.Delete(next.Stages, i, i+1)
			return true
		})
		try(func(next *plan.Plan) bool {
			half := len(st.Devices) / 2
			if half == 0 || st.FirstLayer == st.LastLayer {
				return false
			}
			behind := st
			next.Stages[i].LastLayer = (st.FirstLayer + st.LastLayer) / 2
			behind.FirstLayer = next.Stages[i].LastLayer + 1
			next.Stages[i].Devices, behind.Devices = st.Devices[:half:half], st.Devices[half:]
			next.Stages = slices.Insert(next.Stages, i+1, behind)
			return true
		})
	}
}

// unused returns the devices that a plan does not use.
func (mv mover) unused(pl *plan.Plan) (devices []int) {
	used := pl.Devices()
	for d := range mv.Cluster.Devices {
		if !slices.Contains(used, d) {
			devices = append(devices, d)
		}
	}
	return devices
}

// with returns a sorted copy of a list of devices, with more of them.
func with(devices []int, more ...int) []int {
	return slices.Sorted(slices.Values(slices.Concat(devices, more)))
}

// depthsNearby changes how many micro-batches the stages have in flight: by one more or one fewer on a single stage, or
// on all stages. It does nothing if the depths are fixed, or if the plan's family takes no depths but its own.
func (mv mover) depthsNearby(pl *plan.Plan, try func(func(*plan.Plan) bool)) {
	f, err := family.Lookup(pl.Schedule)
	if err != nil || f.Own == nil || !f.IsGeneral() || mv.Fix.Warmup != nil {
		return
	}
	own, m := f.Own(len(pl.Stages), pl.MicroBatches), pl.MicroBatches
	now := make([]int, len(pl.Stages))
	for i, st := range pl.Stages {
		now[i] = min(cmp.Or(st.Warmup, own[i]), m)
	}
	change := func(by, from, to int) {
		try(func(next *plan.Plan) bool {
			for i := range next.Stages {
				if next.Stages[i].Warmup = now[i]; i >= from && i < to {
					next.Stages[i].Warmup += by
				}
			}
			return !slices.ContainsFunc(next.Stages, func(st plan.Stage) bool { return st.Warmup < 1 || st.Warmup > m }) &&
				slices.IsSortedFunc(next.Stages, func(a, b plan.Stage) int { return b.Warmup - a.Warmup })
		})
	}
	for _, by := range []int{1, -1} {
		change(by, 0, len(now))
		for i := range now {
			change(by, i, i+1)
		}
	}
}
