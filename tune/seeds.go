package tune

import (
	"context"
	"maps"
	"slices"

	"github.com/millrace-ml/millrace/schedule"
)

// baselines simulates the plans that need no search, so that there is an answer at once.
func (s *search) baselines(ctx context.Context) error {
	if err := s.dataParallel(ctx); err != nil {
		return err
	}
	if s.Fix.Split != nil || !s.Fix.none() {
		return s.given()
	}
	f, ok := s.families["1f1b"]
	S := min(len(s.Cluster.Devices), len(s.Profile.Layers))
	if !ok || S < 2 {
		return nil
	}
	for _, size := range s.baseSizes() {
		w := want{stages: S, devices: S, size: size, order: s.orders[0], replicas: []int{1}, family: f, fits: true}
		h := s.partition(w)
		if h == nil {
			w.fits = false
			if h = s.partition(w); h == nil {
				continue
			}
		}
		equal := h.clone()
		for i := range equal.cuts {
			equal.cuts[i] = i * len(s.Profile.Layers) / S
		}
		alone := h.clone()
		for i := range alone.depth {
			alone.depth[i] = 1
		}
		if _, ok := s.families["mp"]; ok {
			alone.family = "mp"
		}
		for _, b := range []struct {
			kind  string
			shape *shape
		}{{straightPipeline, h}, {equalSplit, equal}, {modelParallel, alone}} {
			if _, _, err := s.tryShape(b.kind, b.shape); err != nil {
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
					cuts: cuts, counts: slices.Repeat([]int{1}, S), order: s.orders[0], again: slices.Repeat([]bool{all}, S),
					size: size, family: name,
				}
				s.redo(h)
				if _, _, err := s.tryLean(name, h); err != nil {
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

// recomputes lists whether stages recompute: none first, then all.
func (s *search) recomputes() []bool {
	switch s.Fix.Recompute {
	case "none":
		return []bool{false}
	case "all":
		return []bool{true}
	}
	return []bool{false, true}
}

// dataParallel simulates one stage on 1, 2, ... devices.
func (s *search) dataParallel(ctx context.Context) error {
	if s.Fix.Stages > 1 || s.Fix.Split != nil || s.Fix.Schedule != "" && s.Fix.Schedule != "dp" || len(s.Fix.Warmup) > 1 {
		return nil
	}
	W := len(s.Cluster.Devices)
	for _, size := range s.sizes {
		for n := 1; n <= min(W, s.Batch/size); n++ {
			if n > 4 && n < W && n&(n-1) != 0 || n == 1 && s.Fix.Stages == 1 && W > 1 {
				continue
			}
			for _, order := range s.orders {
				for _, all := range s.recomputes() {
					h := &shape{
						cuts: []int{0, len(s.Profile.Layers)}, counts: []int{n}, order: order, depth: []int{1}, again: []bool{all},
						size: size, family: "dp",
					}
					c, fresh, err := s.tryLean(kindOf(h), h)
					if err != nil {
						return err
					}
					if fresh && c.over(s.Cluster) == 0 {
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

// seeds cuts the layers for every size, number of stages, replication, family and order of
// devices, and keeps those that estimate likes best of each kind.
func (s *search) seeds(ctx context.Context) {
	if s.Fix.Split != nil || s.Fix.Stages == 1 || s.Fix.Schedule != "" && s.families[s.Fix.Schedule].Warmup == nil {
		return
	}
	names := slices.Sorted(maps.Keys(s.families))
	if i := slices.Index(names, "mp"); i >= 0 && len(names) > 1 {
		names = slices.Delete(names, i, i+1) // never better than 1f1b; a baseline
	}
	if i := slices.Index(names, "1f1b"); i > 0 {
		names[0], names[i] = names[i], names[0]
	}
	sizes := slices.Clone(s.sizes)
	slices.Reverse(sizes)
	for _, S := range s.stageCounts() {
		for _, size := range sizes {
			for _, name := range names {
				for _, w := range s.wants(s.families[name], S, size) {
					if ctx.Err() != nil {
						return
					}
					s.plant(w)
				}
			}
		}
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

// wants lists the partitions to ask for.
func (s *search) wants(f schedule.Family, S, size int) []want {
	var all []want
	W := len(s.Cluster.Devices)
	for _, order := range s.orders {
		for _, again := range s.recomputes() {
			w := want{stages: S, devices: S, size: size, order: order, replicas: []int{1}, family: f, again: again, fits: true}
			all = append(all, w)
			if !s.replicas() || S == W {
				continue
			}
			w.devices = W
			w.replicas = nil
			switch {
			case len(s.places(size))*W <= 1<<11:
				for r := 1; r <= W-S+1; r++ {
					w.replicas = append(w.replicas, r)
				}
			case W%S == 0:
				w.replicas = []int{W / S}
			default:
				continue
			}
			all = append(all, w)
			w.split = true
			all = append(all, w)
		}
	}
	return all
}

// plant estimates a partition and keeps it if it is among the best of its kind. Of a kind that
// fits as it is, recomputing everything is not tried.
func (s *search) plant(w want) {
	h := s.partition(w)
	if h == nil && w.again == (s.Fix.Recompute != "none") { // nothing fits: the nearest miss
		w.fits = false
		h = s.partition(w)
	}
	if h == nil {
		return
	}
	if s.Fix.Warmup != nil {
		s.redo(h)
	}
	s.keep(seed{h, s.score(h), kindOf(h)})
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
