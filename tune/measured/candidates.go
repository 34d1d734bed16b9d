package measured

import (
	"fmt"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/tune/calibrate"
	"github.com/millrace-ml/millrace/tune/roles"
	"github.com/millrace-ml/millrace/tune/shape"
)

// mostCandidates limits the runs that are considered. Each is predicted once for every number of a fit.
const mostCandidates = 48

// candidates returns runs that differ from a measured run in one respect, fit the devices' memory, and were not
// measured.
func candidates(runs []run, c *cluster.Cluster) (out []calibrate.Candidate) {
	seen := map[string]bool{}
	for _, r := range runs {
		seen[r.called()] = true
	}
	add := func(r run, change func(s *shape.Shape)) {
		micros := r.shape.MicroBatches()
		change(&r.shape)
		s := &r.shape
		if s.Stages == 1 || s.Chunks > 1 && r.of.Layers < s.Stages*s.Chunks {
			s.Schedule, s.Chunks = roles.Pipelines().Name, 1
		}
		s.SequenceParallel = s.SequenceParallel && s.Tensor > 1
		s.Batch = s.Replicas * s.MicroBatch * max(1, micros)
		name := r.called()
		if len(out) == mostCandidates || seen[name] {
			return
		}
		seen[name] = true
		p, err := shape.Predict(r.model, c, *s)
		if err != nil || !p.Fits {
			return // the devices or the model do not allow this run
		}
		out = append(out, calibrate.Candidate{Name: name, Times: []calibrate.Predictor{r.predict}})
	}
	inside := c.Levels[0].Size
	for k := range 7 {
		n := 1 << k
		for _, r := range runs {
			add(r, func(s *shape.Shape) { s.MicroBatch = n })
			if n <= inside {
				add(r, func(s *shape.Shape) { s.Tensor = n })
			}
			add(r, func(s *shape.Shape) { s.Stages = n })
			add(r, func(s *shape.Shape) { s.Replicas = n })
		}
	}
	for _, r := range runs {
		for _, again := range []string{"none", "selective", "full"} {
			add(r, func(s *shape.Shape) { s.Recompute = again })
		}
	}
	return out
}

// called describes what a run trains and how.
func (r run) called() string { return fmt.Sprintf("a step of %v as %v", r.of, r.shape) }
