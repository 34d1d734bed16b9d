package tune

import (
	"fmt"
	"slices"

	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/tune/roles"
)

// settleWeights checks the weight policy that is asked for and, where it has no flush and no
// schedule is named, takes the family that keeps it.
func (r *Request) settleWeights() error {
	if e := r.Fix.Elastic; e != nil {
		if err := e.Check(); err != nil {
			return fmt.Errorf("tune: %w", err)
		}
		if r.Fix.Weights == "" {
			_, r.Fix.Weights = roles.Averaging()
		}
		if _, own := roles.Averaging(); r.Fix.Weights != own {
			return fmt.Errorf("tune: %d pipelines side by side have the weight policy %q, not %q", e.Pipelines, own, r.Fix.Weights)
		}
	}
	w := r.Fix.Weights
	if w == "" {
		return nil
	}
	if !slices.Contains(schedule.Policies(), w) {
		return fmt.Errorf("tune: weight policy %q; there are %q", w, schedule.Policies())
	}
	if r.Fix.Schedule != "" {
		if f, _ := family.Lookup(r.Fix.Schedule); !f.AdmitsPolicy(w) {
			return fmt.Errorf("tune: schedule %q does not keep the weight policy %q", f.Name, w)
		}
		return nil
	}
	if w.Synchronous() {
		return nil
	}
	for _, f := range family.Families() {
		if f.AdmitsPolicy(w) {
			r.Fix.Schedule = f.Name
			return nil
		}
	}
	return fmt.Errorf("tune: no schedule keeps the weight policy %q", w)
}

// policies are those to try a family under: the one that is fixed, or all that train as
// intended. Naive updates are a negative control, not a choice; pipelines side by side train on
// several batches a step, and are compared by tune/avgpipe.
func (s *search) policies(f family.Family) []schedule.Policy {
	all := roles.PoliciesOf(f)
	if s.Fix.Weights != "" {
		if !slices.Contains(all, s.Fix.Weights) {
			return nil
		}
		return []schedule.Policy{s.Fix.Weights}
	}
	var out []schedule.Policy
	for _, w := range all {
		if w.Synchronous() || !w.Mismatches() && (s.Async && !w.Averages() || s.Fix.Schedule == f.Name) {
			out = append(out, w)
		}
	}
	return out
}

// cutAnew are shapes for a family that is fixed and that the search has no plans near to:
// stages in balance on every number of devices, straight and replicated.
func (s *search) cutAnew() []*shape {
	var out []*shape
	W := len(s.Cluster.Devices)
	for stages := min(W, len(s.Profile.Layers)); stages > 1; stages-- {
		if s.Fix.Stages > 0 && stages != s.Fix.Stages {
			continue
		}
		for _, size := range s.baseSizes() {
			for _, order := range s.orders {
				for _, again := range s.recomputes() {
					w := want{stages: stages, devices: stages, size: size, order: order, replicas: []int{1}, again: again, family: s.pipelines, fits: true}
					out = append(out, s.nearest(w)...)
					if stages < W && s.replicas() {
						w.devices, w.replicas = W, nil
						for r := 1; r <= W-stages+1; r++ {
							w.replicas = append(w.replicas, r)
						}
						out = append(out, s.nearest(w)...)
					}
				}
			}
		}
	}
	return out
}

// nearest is the partition that fits, or where none does the one that is the least over.
func (s *search) nearest(w want) []*shape {
	found := s.partition(w)
	if found == nil {
		w.fits = false
		found = s.partition(w)
	}
	return found
}

// splitAsGiven are the user's own cuts, for a family that is fixed.
func (s *search) splitAsGiven(f family.Family) []*shape {
	cuts := slices.Concat([]int{0}, s.Fix.Split, []int{len(s.Profile.Layers)})
	S := len(cuts) - 1
	order := s.orders[0]
	if len(order) < S {
		order = slices.Repeat(order, (S+len(order)-1)/len(order)) // lay says where they lie
	}
	var out []*shape
	for _, size := range s.sizes {
		for _, all := range s.recomputes() {
			counts := slices.Repeat([]int{1}, S)
			out = append(out, &shape{
				cuts: cuts, counts: counts, order: order, again: slices.Repeat([]plan.Recompute{all}, S), size: size, family: f.Name,
				depth: depths(counts, false, s.pipelines.Warmup, s.Batch/size),
			})
		}
	}
	return out
}
