package tune

import (
	"context"
	"maps"
	"slices"

	"github.com/millrace-ml/millrace/plan"
)

// seed is a shape that is worth simulating.
type seed struct {
	shape *shape
	score score
	kind  string
}

// pool holds the seeds from which the search continues. They are the best few shapes of each kind and each order of
// devices.
type pool []seed

// seedsOfAKind is the number of seeds kept for each kind of shape and each order of devices.
const seedsOfAKind = 3

// add keeps a seed if it is among the best of its kind.
func (all *pool) add(n seed) {
	same, worst := 0, -1
	for i, p := range *all {
		if p.kind != n.kind || !slices.Equal(p.shape.order, n.shape.order) {
			continue
		}
		same++
		if worst < 0 || (*all)[worst].score.better(p.score) {
			worst = i
		}
	}
	switch {
	case same < seedsOfAKind:
		*all = append(*all, n)
	case n.score.better((*all)[worst].score):
		(*all)[worst] = n
	}
}

// sort puts the best seeds first.
func (all pool) sort() {
	slices.SortStableFunc(all, func(a, b seed) int {
		switch {
		case a.score.better(b.score):
			return -1
		case b.score.better(a.score):
			return 1
		}
		return 0
	})
}

// baselines are plans that need no search. They are simulated first, so that there is an answer at once.
type baselines struct {
	*space
	*candidates
	cut       cutter
	estimator *estimator
}

func (s baselines) simulate(ctx context.Context) error {
	if err := s.dataParallel(ctx); err != nil {
		return err
	}
	if s.Fix.Split != nil {
		return s.simulateGiven()
	}
	if !s.Fix.sizesAtMost() {
		return nil
	}
	f, ok := s.families[s.pipelines.Name]
	S := min(len(s.Cluster.Devices), len(s.Profile.Layers))
	if !ok || S < 2 {
		return nil
	}
	for _, size := range s.baseSizes() {
		if ctx.Err() != nil && s.top.plan != nil {
			return nil // with very many layers every size takes long
		}
		w := want{stages: S, devices: S, size: size, order: s.orders[0], replicas: []int{1}, family: f, fits: true}
		found := s.cut.partition(w)
		if found == nil {
			w.fits = false
			if found = s.cut.partition(w); found == nil {
				continue
			}
		}
		h := found[0]
		equal := h.clone()
		for i := range equal.cuts {
			equal.cuts[i] = i * len(s.Profile.Layers) / S
		}
		alone := h.clone()
		for i := range alone.depth {
			alone.depth[i] = 1
		}
		for _, b := range []struct {
			kind  string
			shape *shape
		}{{straightPipeline, h}, {equalSplit, equal}, {modelParallel, alone}} {
			if _, _, err := s.tryShape(b.kind, b.shape); err != nil && !s.passOver(err) {
				return err
			}
		}
	}
	return s.hybridParallel(ctx)
}

// hybridTried is the number of hybrid plans simulated for each micro-batch size.
const hybridTried = 2

// hybridParallel simulates data and model parallelism together without pipelining (PipeDream §5.3, after OWT and
// FlexFlow). Stages have one or more workers, which divide each micro-batch, and only one micro-batch runs at a time.
// If the model normalises over its micro-batches, nothing is simulated.
func (s baselines) hybridParallel(ctx context.Context) error {
	if s.Whole || len(s.Cluster.Devices) < 3 {
		return nil
	}
	for _, size := range slices.Backward(s.sizes) {
		if ctx.Err() != nil && s.top.plan != nil {
			return nil
		}
		var found []*shape
		for _, w := range s.cut.wants(s.orders[0], size, s.recomputes()[0]) {
			if w.split && !w.alone {
				w.alone, w.family = true, s.pipelines
				found = append(found, s.cut.partition(w)...)
			}
		}
		for _, h := range found {
			h.depth = slices.Repeat([]int{1}, h.stages())
		}
		slices.SortStableFunc(found, func(a, b *shape) int {
			if s.estimator.score(a).better(s.estimator.score(b)) {
				return -1
			}
			return 1
		})
		for _, h := range found[:min(hybridTried, len(found))] {
			if _, _, err := s.tryShape(hybridParallel, h); err != nil && !s.passOver(err) {
				return err
			}
		}
		if len(found) > 0 && len(s.Cluster.Devices) > 16 {
			return nil // the largest micro-batch has the fewest transfers
		}
	}
	return nil
}

// simulateGiven simulates the user's own split, if there is one.
func (s baselines) simulateGiven() error {
	if s.Fix.Split == nil {
		return nil
	}
	cuts := slices.Concat([]int{0}, s.Fix.Split, []int{len(s.Profile.Layers)})
	S := len(cuts) - 1
	if S == 1 {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(s.families)) {
		for _, size := range s.sizes {
			for _, all := range s.recomputes() {
				h := &shape{
					cuts: cuts, counts: slices.Repeat([]int{1}, S), order: s.orders[0], again: slices.Repeat([]plan.Recompute{all}, S),
					size: size, family: name,
				}
				s.settleDepths(h)
				if _, _, err := s.tryLeast(name, h); err != nil && !s.passOver(err) {
					return err
				}
				if s.fits(name) {
					break
				}
			}
		}
	}
	return nil
}

// dataParallel simulates one stage on 1 to 4 devices, and on further powers of two. It also takes all devices, or as
// many as there are micro-batches. If one stage is fixed, it tries all numbers up to 64, except a single one of
// several devices if there is work for two. Replicas take turns with micro-batches, or divide each of them (divided).
func (s baselines) dataParallel(ctx context.Context) error {
	if s.Fix.Stages > 1 || s.Fix.Split != nil || s.Fix.Schedule != "" && s.Fix.Schedule != s.undivided.Name ||
		len(s.Fix.Warmup) > 1 {
		return nil
	}
	W := len(s.Cluster.Devices)
	for _, split := range []bool{false, true} {
		for _, size := range slices.Backward(s.sizes) { // the cheapest to simulate first
			most := min(W, s.Batch/size)
			if split {
				most = min(W, size)
			}
			for n := 1; n <= most; n++ {
				every := s.Fix.Stages == 1 && n <= 64
				if n > 4 && n < most && n&(n-1) != 0 && !every || split && !s.divided(size, n) ||
					n == 1 && s.Fix.Stages == 1 && (min(W, s.Batch/s.sizes[0]) > 1 || s.divided(s.sizes[0], 2)) {
					continue
				}
				if err := s.wholeModels(n, size, split); err != nil {
					return err
				}
				if ctx.Err() != nil && s.top.plan != nil {
					return nil
				}
			}
		}
	}
	return nil
}

// divided says whether n replicas of the whole model should divide each micro-batch of a size. They should if they
// cannot all have the same number of micro-batches of this size, nor micro-batches of the size of a slice. They should
// also if no data parallelism fits so far, because slices need less memory.
func (s baselines) divided(size, n int) bool {
	if s.Whole || n < 2 || n > min(size, len(s.Cluster.Devices)) {
		return false
	}
	for _, t := range s.Cluster.Devices {
		if s.tables.of(t, (size+n-1)/n) == nil {
			return false
		}
	}
	even := s.Batch/size%n == 0 || size%n == 0 && slices.Contains(s.sizes, size/n)
	return !even || !s.fits(dataParallelism)
}

// wholeModels simulates one stage on n devices, in each order of devices. It tries more recompute until the plan fits.
func (s baselines) wholeModels(n, size int, split bool) error {
	for _, order := range s.orders {
		for _, all := range s.recomputes() {
			h := &shape{
				cuts: []int{0, len(s.Profile.Layers)}, counts: []int{n}, order: order, depth: []int{1},
				again: []plan.Recompute{all}, size: size, split: split, family: s.undivided.Name,
			}
			c, fresh, err := s.tryLeast(kindOf(h), h)
			if err != nil && !s.passOver(err) {
				return err
			}
			if err == nil && fresh && c.over(s.Cluster) == 0 {
				break
			}
		}
	}
	return nil
}

// seeds cuts the layers for every size, number of stages, replication and order of devices. For each kind of shape
// (kindOf) and each order of devices, it keeps the shapes with the best estimates.
func (s *search) seeds(ctx context.Context) {
	if s.Fix.Stages == 1 || s.own() || s.Fix.Schedule != "" && s.families[s.Fix.Schedule].Warmup == nil {
		return
	}
	names := slices.Sorted(maps.Keys(s.families))
	if i := slices.Index(names, s.pipelines.Name); i > 0 {
		names[0], names[i] = names[i], names[0] // this family holds the least memory: other families start from its cuts
	}
	if len(names) == 0 {
		return
	}
	sizes := slices.Clone(s.sizes)
	slices.Reverse(sizes)
	if s.start != nil {
		sizes = []int{s.start.size}
	}
	for _, size := range sizes {
		for _, order := range s.orders {
			for _, again := range s.recomputes() {
				fits := false
				for _, w := range s.cut.wants(order, size, again) {
					if ctx.Err() != nil {
						return
					}
					w.family = s.families[names[0]]
					fits = s.addSeed(w, names) || fits
				}
				if fits {
					break // recomputing everything is tried only if nothing fits without recompute
				}
			}
		}
	}
}

// addSeed estimates partitions under every family and keeps the best of each kind. It says whether any of them fits.
func (s *search) addSeed(w want, names []string) bool {
	found := s.cut.partition(w)
	if found == nil && w.again == s.recomputes()[len(s.recomputes())-1] { // nothing fits: take the nearest miss
		w.fits = false
		found = s.cut.partition(w)
	}
	fits := false
	for _, h := range found {
		for _, name := range names {
			next := h.clone()
			next.family = name
			s.settleDepths(next)
			v := s.estimator.score(next)
			fits = fits || v.over == 0
			s.pool.add(seed{next, v, kindOf(next)})
			if name == s.pipelines.Name && next.stages() > 1 {
				s.seedsByStages.add(seed{next, v, stagesOf(next)})
			}
			if limited := v.over > 0 && w.fits && name != w.family.Name && h.stages() == h.used(); limited {
				// Deeper warm-ups need other cuts.
				own := w
				own.family, own.stages, own.devices = s.families[name], h.stages(), h.stages()
				for _, next := range s.cut.partition(own) {
					s.settleDepths(next)
					s.pool.add(seed{next, s.estimator.score(next), kindOf(next)})
				}
			}
		}
	}
	return fits
}
