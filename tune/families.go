package tune

import (
	"context"
	"slices"

	"github.com/millrace-ml/millrace/schedule"
)

// others simulates the families that have no depths to search: those that update without a
// flush where that is asked for, those for boards on boards, those whose workers hold
// several stages. They take the stages that are best so far, or where a worker holds several,
// stages cut for that; what a family does not admit is passed over.
func (s *search) others(ctx context.Context) {
	if s.Fix.Split != nil && s.Fix.Schedule == "" || s.Fix.Stages == 1 || s.brief {
		return
	}
	bases := s.bases()
	if len(s.families) == 0 {
		bases = s.cutAnew()
	}
	for _, f := range schedule.Families() {
		if _, searched := s.families[f.Name]; searched || f.Name == "dp" || f.Name == "single" {
			continue
		}
		if s.Fix.Schedule != "" && s.Fix.Schedule != f.Name || s.Fix.Schedule == "" && f.Streaming && !s.streams() {
			continue
		}
		shapes := bases
		if s.Fix.Split != nil {
			shapes = s.splitAsGiven(f)
		} else if f.Chunks > 1 || f.Chunks < 0 {
			shapes = s.chunked(f)
		}
		s.tryFamily(ctx, f, shapes)
	}
}

// tryFamily simulates shapes under one family and each weight policy that was asked for.
func (s *search) tryFamily(ctx context.Context, f schedule.Family, shapes []*shape) {
	worked, why := false, ""
	for _, policy := range s.policies(f) {
		for _, h := range shapes {
			if ctx.Err() != nil {
				return
			}
			if s.Fix.Stages > 0 && h.stages() != s.Fix.Stages && (f.Chunks == 0 || f.Chunks == 1) {
				continue
			}
			pl := s.plan(h)
			pl.Schedule, pl.Weights = f.Name, string(policy)
			for i := range pl.Stages {
				pl.Stages[i].Warmup = 0 // the family's own
			}
			kind := f.Name
			if policy != schedule.Sync {
				kind += " " + string(policy)
			}
			if _, err := s.try(kind, pl); err != nil {
				why = err.Error()
				continue
			}
			worked = true
		}
	}
	if !worked && why != "" {
		s.failed[f.Name] = why
	}
}

// bases are the best shapes so far, straight and replicated, and the sizes next to theirs.
func (s *search) bases() []*shape {
	var straight, replicated []*shape
	for _, kind := range s.ranked() {
		h := s.shapeOf(s.best[kind].plan)
		if h == nil || h.stages() < 2 {
			continue
		}
		if h.replicated() {
			replicated = append(replicated, h)
		} else {
			straight = append(straight, h)
		}
	}
	return slices.Concat(straight[:min(4, len(straight))], replicated[:min(4, len(replicated))])
}

// chunked are shapes whose workers hold two stages or four: in rounds, and as a V.
func (s *search) chunked(f schedule.Family) []*shape {
	base := plainFamily()
	var out []*shape
	W := len(s.Cluster.Devices)
	for _, v := range []int{2, 4} {
		if f.Chunks > 0 && v != f.Chunks || W*v > len(s.Profile.Layers) || W < 2 {
			continue
		}
		for _, mirrored := range []bool{false, true} {
			var order []int
			for chunk := range v {
				round := slices.Clone(s.orders[0])
				if mirrored && chunk%2 == 1 {
					slices.Reverse(round)
				}
				order = append(order, round...)
			}
			for _, size := range s.baseSizes() {
				out = append(out, s.partition(want{stages: W * v, devices: W * v, size: size, order: order, replicas: []int{1}, family: base})...)
			}
		}
	}
	return out
}
