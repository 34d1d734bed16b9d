package tune

import (
	"context"
	"maps"
	"slices"

	"github.com/millrace-ml/millrace/plan"
)

// baselines simulates the plans that need no search, so that there is an answer at once.
func (s *search) baselines(ctx context.Context) error {
	if err := s.dataParallel(ctx); err != nil {
		return err
	}
	if s.Fix.Split != nil || !s.Fix.none() {
		return s.given()
	}
	f, ok := s.families[s.pipelines.Name]
	S := min(len(s.Cluster.Devices), len(s.Profile.Layers))
	if !ok || S < 2 {
		return nil
	}
	for _, size := range s.baseSizes() {
		if ctx.Err() != nil && s.top.plan != nil {
			return nil // of very many layers every size takes a while
		}
		w := want{stages: S, devices: S, size: size, order: s.orders[0], replicas: []int{1}, family: f, fits: true}
		found := s.partition(w)
		if found == nil {
			w.fits = false
			if found = s.partition(w); found == nil {
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
	return nil
}

// baseSizes are the micro-batch sizes that baselines are simulated for: all of a few, and of many
// devices those nearest to four micro-batches for each.
func (s *search) baseSizes() []int {
	if len(s.Cluster.Devices) <= 16 {
		return s.sizes
	}
	best := s.sizes[0]
	for _, size := range s.sizes {
		if s.Batch/size >= 4*len(s.Cluster.Devices) {
			best = size
		}
	}
	return []int{best}
}

// given simulates the user's own split, or the nearest thing to what is fixed.
func (s *search) given() error {
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
				s.redo(h)
				if _, _, err := s.tryLean(name, h); err != nil && !s.passOver(err) {
					return err
				}
				if s.fitsBest(name) {
					break
				}
			}
		}
	}
	return nil
}

func (s *search) fitsBest(kind string) bool {
	c, ok := s.best[kind]
	return ok && c.over(s.Cluster) == 0
}

// recomputes lists what all stages may recompute to begin with: nothing first, then all. What
// is fixed is read by Request's check.
func (s *search) recomputes() []plan.Recompute {
	if fixed, ok, _ := s.Fix.FixedRecompute(); ok {
		return []plan.Recompute{fixed}
	}
	return []plan.Recompute{plan.KeepAll, plan.KeepInput}
}

// dataParallel simulates one stage on 1, 2, ... devices.
func (s *search) dataParallel(ctx context.Context) error {
	if s.Fix.Stages > 1 || s.Fix.Split != nil || s.Fix.Schedule != "" && s.Fix.Schedule != s.undivided.Name || len(s.Fix.Warmup) > 1 {
		return nil
	}
	W := len(s.Cluster.Devices)
	for _, size := range slices.Backward(s.sizes) { // the least to simulate first
		for n := 1; n <= min(W, s.Batch/size); n++ {
			if n > 4 && n < W && n&(n-1) != 0 || n == 1 && s.Fix.Stages == 1 && W > 1 {
				continue
			}
			for _, order := range s.orders {
				for _, all := range s.recomputes() {
					h := &shape{
						cuts: []int{0, len(s.Profile.Layers)}, counts: []int{n}, order: order, depth: []int{1}, again: []plan.Recompute{all},
						size: size, family: s.undivided.Name,
					}
					c, fresh, err := s.tryLean(kindOf(h), h)
					if err != nil && !s.passOver(err) {
						return err
					}
					if err == nil && fresh && c.over(s.Cluster) == 0 {
						break
					}
				}
			}
			if ctx.Err() != nil && s.top.plan != nil {
				return nil
			}
		}
	}
	return nil
}

// poolSize is how many seeds of each kind are kept.
const poolSize = 3

// maxReplicatedStages bounds the stages of pipelines with replicas that are planted; moves
// split stages further.
const maxReplicatedStages = 8

// seeds cuts the layers for every size, number of stages, replication and order of devices,
// and keeps those that estimate likes best of each kind and family.
func (s *search) seeds(ctx context.Context) {
	if s.Fix.Split != nil || s.Fix.Stages == 1 || s.Fix.Schedule != "" && s.families[s.Fix.Schedule].Warmup == nil {
		return
	}
	names := slices.Sorted(maps.Keys(s.families))
	if i := slices.Index(names, s.pipelines.Name); i > 0 {
		names[0], names[i] = names[i], names[0] // it holds the least: the others follow it
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
				for _, w := range s.wants(order, size, again) {
					if ctx.Err() != nil {
						return
					}
					w.family = s.families[names[0]]
					fits = s.plant(w, names) || fits
				}
				if fits {
					break // recomputing everything is for what does not fit otherwise
				}
			}
		}
	}
}

// wants lists the partitions to ask for.
func (s *search) wants(order []int, size int, again plan.Recompute) []want {
	var all []want
	W := len(s.Cluster.Devices)
	w := want{size: size, order: order, replicas: []int{1}, again: again, fits: true}
	for _, S := range s.stageCounts() {
		w.stages, w.devices = S, S
		all = append(all, w)
	}
	if !s.replicas() || W < 3 && s.Fix.Stages == 0 {
		return all
	}
	w.devices, w.replicas = W, nil
	if W > 32 { // as many replicas for every stage
		for _, S := range s.stageCounts() {
			if W%S == 0 && S < W {
				w.stages, w.replicas = S, []int{W / S}
				all = append(all, w)
				if !s.Whole {
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
	w.stages, w.all = min(maxReplicatedStages, W-1, len(s.Profile.Layers)), s.Fix.Stages == 0
	if s.Fix.Stages > 0 {
		w.stages = s.Fix.Stages
	}
	if w.stages < 2 || w.stages >= W {
		return all
	}
	all = append(all, w)
	if !s.Whole {
		w.split = true
		all = append(all, w)
	}
	return all
}

// plant estimates partitions under every family and keeps those among the best of their
// kind; it says whether any fits as it is.
func (s *search) plant(w want, names []string) bool {
	found := s.partition(w)
	if found == nil && w.again == s.recomputes()[len(s.recomputes())-1] { // nothing fits: the nearest miss
		w.fits = false
		found = s.partition(w)
	}
	fits := false
	for _, h := range found {
		for _, name := range names {
			next := h.clone()
			next.family = name
			s.redo(next)
			v := s.score(next)
			fits = fits || v.over == 0
			s.keep(seed{next, v, kindOf(next)})
			if limited := v.over > 0 && w.fits && name != w.family.Name && h.stages() == h.used(); limited {
				// Deeper warm-ups need other cuts.
				own := w
				own.family, own.stages, own.devices = s.families[name], h.stages(), h.stages()
				for _, next := range s.partition(own) {
					s.redo(next)
					s.keep(seed{next, s.score(next), kindOf(next)})
				}
			}
		}
	}
	return fits
}

func (s *search) keep(n seed) {
	same, worst := 0, -1
	for i, p := range s.pool {
		if p.kind != n.kind {
			continue
		}
		same++
		if worst < 0 || s.pool[worst].score.better(p.score) {
			worst = i
		}
	}
	switch {
	case same < poolSize:
		s.pool = append(s.pool, n)
	case n.score.better(s.pool[worst].score):
		s.pool[worst] = n
	}
}

// stageCounts are the numbers of stages to try: all up to 16, then powers of two and the most.
func (s *search) stageCounts() []int {
	if s.Fix.Stages > 0 {
		return []int{s.Fix.Stages}
	}
	var counts []int
	for S, most := 2, min(len(s.Cluster.Devices), len(s.Profile.Layers)); S <= most; S++ {
		if S <= 16 || S&(S-1) == 0 || S == most {
			counts = append(counts, S)
		}
	}
	return counts
}
