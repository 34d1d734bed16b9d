package tune

import (
	"cmp"
	"context"
	"slices"

	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/tune/roles"
)

// others simulates the families that have no depths to search: those that update without a
// flush where that is asked for, those for boards on boards, those whose workers hold
// several stages. They take the stages that are best so far, or where a worker holds several,
// stages cut for that; what a family does not admit is passed over.
func (s *search) others(ctx context.Context) {
	if s.Fix.Split != nil && s.Fix.Schedule == "" || s.Fix.Stages == 1 && s.Fix.Schedule == "" || s.brief {
		return
	}
	bases := s.bases()
	if len(s.families) == 0 {
		bases = s.cutAnew()
	}
	for _, f := range family.Families() {
		if _, searched := s.families[f.Name]; searched || roles.WholeModel(f) {
			continue
		}
		if s.Fix.Schedule != "" && s.Fix.Schedule != f.Name || s.Fix.Schedule == "" && (f.Streaming && !s.streams() || f.Beside && s.crowded()) {
			continue
		}
		shapes := bases
		if s.Fix.Split != nil {
			shapes = s.splitAsGiven(f)
		} else if f.Place != nil {
			shapes = s.placed(f)
		}
		s.tryFamily(ctx, f, shapes)
	}
}

// fewestPipelines is how many pipelines a plan has that was asked for elastic averaging and not
// for a number.
const fewestPipelines = 2

// crowded says whether sums beside a backward are at the cost of it, which the simulator does not see.
func (s *search) crowded() bool { return s.Cluster.Crowded(len(s.Cluster.Devices)) }

// tryFamily simulates shapes under one family and each weight policy that was asked for.
func (s *search) tryFamily(ctx context.Context, f family.Family, shapes []*shape) {
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
			if policy.Averages() {
				pl.Elastic = cmp.Or(s.Fix.Elastic, plan.NewElastic(fewestPipelines))
			}
			for i := range pl.Stages {
				pl.Stages[i].Warmup = 0 // the family's own
			}
			lay(pl, f, len(s.Cluster.Devices))
			kind := f.Name
			if !policy.Synchronous() {
				kind += " " + string(policy)
			}
			err := s.late(pl)
			if err == nil {
				_, err = s.try(kind, pl)
			}
			if err != nil {
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

// lay puts a plan's stages where its family wants them on so many devices, if it has as many
// stages as that takes.
func lay(pl *plan.Plan, f family.Family, devices int) {
	if f.Place == nil {
		return
	}
	for v := 1; v <= max(1, len(pl.Stages)/devices); v++ {
		if on := f.Placement(devices, v); len(on) == len(pl.Stages) {
			for i := range pl.Stages {
				pl.Stages[i].Devices = on[i]
			}
			return
		}
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

// placed are shapes for a family that says itself where its stages lie: several on a worker,
// in rounds or as a V, or each on several workers.
func (s *search) placed(f family.Family) []*shape {
	var out []*shape
	W := len(s.Cluster.Devices)
	for _, v := range []int{1, 2, 4} {
		if (f.Chunks == 0 || f.Chunks == 1) != (v == 1) || f.Chunks > 1 && v != f.Chunks || W < 2 {
			continue
		}
		on := f.Placement(W, v)
		S, replicas := len(on), len(on[0])
		if S == 1 {
			out = append(out, s.wholeModels(on[0])...)
		}
		if S < 2 || S > len(s.Profile.Layers) {
			continue
		}
		order := slices.Concat(on...)
		for _, size := range s.baseSizes() {
			for _, again := range s.recomputes() {
				out = append(out, s.nearest(want{stages: S, devices: S * replicas, size: size, order: order, replicas: []int{replicas}, again: again, family: s.pipelines})...)
			}
		}
	}
	return out
}

// wholeModels are the whole model on each of some devices, with as many micro-batches as devices at least.
func (s *search) wholeModels(on []int) []*shape {
	var out []*shape
	for _, size := range s.sizes {
		if s.Batch/size < len(on) {
			continue
		}
		for _, again := range s.recomputes() {
			out = append(out, &shape{
				cuts: []int{0, len(s.Profile.Layers)}, counts: []int{len(on)}, order: on, depth: []int{1}, again: []plan.Recompute{again}, size: size, family: s.undivided.Name,
			})
		}
	}
	return out
}
