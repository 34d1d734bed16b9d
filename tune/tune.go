package tune

import (
	"errors"
	"fmt"
	"slices"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/schedule"
)

// Overrides is what the user fixes; zero values leave the choice to the search.
type Overrides struct {
	Stages       int    // 1 with several workers is data parallelism
	Split        []int  // first layers of stages 1, 2, ...
	Schedule     string // a family of package schedule
	MicroBatch   int    // samples
	MicroBatches int
	Recompute    string // "none", "all", or "auto" and "": only where memory asks for it
	Warmup       []int  // K_i by stage
}

// Request is a search.
type Request struct {
	Profile *profile.Profile
	Cluster *cluster.Cluster // its devices are the workers to use at most
	Batch   int              // samples of a step
	Clip    bool             // the update needs the global gradient norm
	Fix     Overrides
}

// Rival is a plan that was considered: the best of its kind.
type Rival struct {
	Kind      string         `json:"kind"` // "1f1b", "afab", ..., "data parallelism", "one worker"
	Plan      *plan.Plan     `json:"plan"`
	Predicted plan.Predicted `json:"predicted"`
	Fits      bool           `json:"fits"`
}

// Result is the best plan and, ranked, the best of every other kind.
type Result struct {
	Best    *plan.Plan
	Rivals  []Rival // the best first, itself included
	Tried   int     // plans simulated
	LowestS float64 // plan.Bound
}

// MemoryError is a search in which nothing fits.
type MemoryError struct {
	LimitBytes    int64
	SmallestBytes int64 // the least limit for every device that a plan tried would meet
	Plan          string
}

func (e *MemoryError) Error() string {
	return fmt.Sprintf("tune: no plan fits %s for each worker; the smallest limit that one would fit is %s (%d bytes): %s",
		cluster.FormatBytes(e.LimitBytes), cluster.FormatBytes(e.SmallestBytes), e.SmallestBytes, e.Plan)
}

// Search simulates, for every micro-batch size that was profiled and divides the batch,
// one worker, data parallelism, and every family of the schedule registry on 2 to W
// stages, from the split with the least bottleneck on by moving cuts while that helps.
func Search(r Request) (*Result, error) {
	s, err := newSearch(r)
	if err != nil {
		return nil, err
	}
	for _, size := range s.sizes {
		if err := s.dataParallel(size); err != nil {
			return nil, err
		}
		for stages := 2; stages <= min(len(r.Cluster.Devices), len(r.Profile.Layers)); stages++ {
			for _, f := range schedule.Families() {
				if err := s.pipeline(f, size, stages); err != nil {
					return nil, err
				}
			}
		}
	}
	return s.result()
}

type search struct {
	Request
	sizes []int
	best  map[string]candidate // by kind
	tried int
}

func newSearch(r Request) (*search, error) {
	if r.Batch < 1 {
		return nil, fmt.Errorf("tune: batch of %d samples; it must be 1 at least", r.Batch)
	}
	if m := r.Fix.MicroBatches; m > 0 {
		if r.Batch%m != 0 {
			return nil, fmt.Errorf("tune: a batch of %d samples does not divide into %d micro-batches; give a divisor of it", r.Batch, m)
		}
		if r.Fix.MicroBatch > 0 && r.Fix.MicroBatch*m != r.Batch {
			return nil, fmt.Errorf("tune: %d micro-batches of %d samples are not a batch of %d", m, r.Fix.MicroBatch, r.Batch)
		}
		r.Fix.MicroBatch = r.Batch / m
	}
	if r.Fix.MicroBatch > 0 && r.Batch%r.Fix.MicroBatch != 0 {
		return nil, fmt.Errorf("tune: a batch of %d samples is no multiple of the micro-batch, %d", r.Batch, r.Fix.MicroBatch)
	}
	if r.Fix.Split != nil && r.Fix.Stages > 0 && len(r.Fix.Split)+1 != r.Fix.Stages {
		return nil, fmt.Errorf("tune: split %v makes %d stages, not %d", r.Fix.Split, len(r.Fix.Split)+1, r.Fix.Stages)
	}
	if n := max(r.Fix.Stages, len(r.Fix.Split)+1); n > len(r.Cluster.Devices) && n > 1 {
		return nil, fmt.Errorf("tune: %d stages for %d workers; give as many workers at least", n, len(r.Cluster.Devices))
	}
	if r.Fix.Stages > len(r.Profile.Layers) {
		return nil, fmt.Errorf("tune: %d stages; %s has %d layers, so give 1 to %d", r.Fix.Stages, r.Profile.Model, len(r.Profile.Layers), len(r.Profile.Layers))
	}
	if r.Fix.Schedule != "" {
		if _, err := schedule.Lookup(r.Fix.Schedule); err != nil {
			return nil, fmt.Errorf("tune: %w", err)
		}
	}
	if !slices.Contains([]string{"", "auto", "none", "all"}, r.Fix.Recompute) {
		return nil, fmt.Errorf("tune: recompute is %q; it is auto, none or all", r.Fix.Recompute)
	}
	s := &search{Request: r, best: map[string]candidate{}}
	device := r.Cluster.Devices[0]
	for _, size := range r.Profile.Sizes(device) {
		if r.Batch%size == 0 && (r.Fix.MicroBatch == 0 || size == r.Fix.MicroBatch) {
			s.sizes = append(s.sizes, size)
		}
	}
	if len(s.sizes) == 0 && r.Fix.MicroBatch > 0 {
		if _, _, err := r.Profile.At(device, r.Fix.MicroBatch); err != nil {
			return nil, fmt.Errorf("tune: %w", err)
		}
		s.sizes = []int{r.Fix.MicroBatch}
	}
	if len(s.sizes) == 0 {
		return nil, fmt.Errorf("tune: none of the profiled micro-batch sizes %v divides a batch of %d; change the batch or profile other sizes", r.Profile.Sizes(device), r.Batch)
	}
	return s, nil
}

// try simulates a plan and keeps it if it is the best of its kind.
func (s *search) try(kind string, pl *plan.Plan) (candidate, error) {
	predicted, err := Simulate(s.Profile, s.Cluster, pl, s.Clip)
	if err != nil {
		return candidate{}, fmt.Errorf("tune: %s: %w", describe(s.Profile, pl), err)
	}
	s.tried++
	c := candidate{pl, predicted}
	if before, ok := s.best[kind]; !ok || c.better(before, s.Cluster) {
		s.best[kind] = c
	}
	return c, nil
}

// again lists the recompute settings to try for so many stages: none first; all stages
// where it may help something to fit.
func (s *search) again(stages int) [][]bool {
	all := slices.Repeat([]bool{true}, stages)
	switch s.Fix.Recompute {
	case "none":
		return [][]bool{nil}
	case "all":
		return [][]bool{all}
	}
	return [][]bool{nil, all}
}

func (s *search) dataParallel(size int) error {
	if s.Fix.Stages > 1 || s.Fix.Split != nil || s.Fix.Schedule != "" && s.Fix.Schedule != "dp" {
		return nil
	}
	for n := 1; n <= min(len(s.Cluster.Devices), s.Batch/size); n++ {
		kind := "data parallelism"
		if n == 1 {
			kind = "one worker"
			if s.Fix.Stages == 1 && len(s.Cluster.Devices) > 1 {
				continue
			}
		}
		for _, again := range s.again(1) {
			pl, err := plan.DataParallel(s.Profile, s.Cluster, size, s.Batch/size, n)
			if err != nil {
				return err
			}
			pl.Stages[0].Recompute = again != nil
			c, err := s.try(kind, pl)
			if err != nil {
				return err
			}
			if c.over(s.Cluster) == 0 {
				break
			}
		}
	}
	return nil
}

func (s *search) pipeline(f schedule.Family, size, stages int) error {
	if f.Warmup == nil || s.Fix.Schedule != "" && s.Fix.Schedule != f.Name ||
		s.Fix.Stages > 0 && stages != s.Fix.Stages || s.Fix.Split != nil && stages != len(s.Fix.Split)+1 {
		return nil
	}
	M := s.Batch / size
	depths := f.Warmup(stages, M)
	if s.Fix.Warmup != nil {
		depths = s.Fix.Warmup
	}
	for _, again := range s.again(stages) {
		l := plan.Limits{Stages: stages, MicroBatch: size, MicroBatches: M, Depths: depths, Recompute: again}
		pl, err := s.split(l)
		var memory *plan.MemoryError
		if errors.As(err, &memory) && again == nil && s.Fix.Recompute != "none" {
			continue // perhaps with recompute
		}
		if err != nil && !errors.As(err, &memory) {
			return err
		}
		if memory != nil { // keep the nearest miss, so that a refusal can say what would do
			if pl, err = plan.Pipeline(s.Profile, s.Cluster.Unlimited(), l); err != nil {
				return err
			}
		}
		pl.Schedule = f.Name
		c, err := s.climb(f.Name, pl)
		if err != nil {
			return err
		}
		if c.over(s.Cluster) == 0 {
			break
		}
	}
	return nil
}

func (s *search) split(l plan.Limits) (*plan.Plan, error) {
	if s.Fix.Split != nil {
		return plan.Split(s.Profile, s.Cluster, l, s.Fix.Split)
	}
	return plan.Pipeline(s.Profile, s.Cluster, l)
}

// climb moves one cut by one layer as long as the simulator prefers that: what fills and
// drains a pipeline is no part of the bottleneck.
func (s *search) climb(kind string, pl *plan.Plan) (candidate, error) {
	best, err := s.try(kind, pl)
	if err != nil || s.Fix.Split != nil {
		return best, err
	}
	for improved := true; improved; {
		improved = false
		for i := 1; i < len(best.plan.Stages); i++ {
			for _, by := range []int{-1, 1} {
				next := *best.plan
				next.Stages = slices.Clone(best.plan.Stages)
				next.Stages[i-1].LastLayer += by
				next.Stages[i].FirstLayer += by
				if next.Stages[i-1].LastLayer < next.Stages[i-1].FirstLayer || next.Stages[i].LastLayer < next.Stages[i].FirstLayer {
					continue
				}
				c, err := s.try(kind, &next)
				if err != nil {
					return best, err
				}
				if c.better(best, s.Cluster) {
					best, improved = c, true
				}
			}
		}
	}
	return best, nil
}

func (s *search) result() (*Result, error) {
	var kinds []string
	for kind := range s.best {
		kinds = append(kinds, kind)
	}
	if len(kinds) == 0 {
		return nil, fmt.Errorf("tune: no plan keeps to what is fixed: %d stages, schedule %q on %d workers; \"dp\" has one stage, the others two or more",
			max(s.Fix.Stages, len(s.Fix.Split)+1), s.Fix.Schedule, len(s.Cluster.Devices))
	}
	slices.Sort(kinds)
	slices.SortStableFunc(kinds, func(a, b string) int {
		switch {
		case s.best[a].better(s.best[b], s.Cluster):
			return -1
		case s.best[b].better(s.best[a], s.Cluster):
			return 1
		}
		return 0
	})
	out := &Result{Tried: s.tried}
	for _, kind := range kinds {
		c := s.best[kind]
		out.Rivals = append(out.Rivals, Rival{Kind: kind, Plan: c.plan, Predicted: c.predicted, Fits: c.over(s.Cluster) == 0})
	}
	best := s.best[kinds[0]]
	if best.over(s.Cluster) > 0 {
		return nil, &MemoryError{
			LimitBytes: s.Cluster.MemoryBytes(0), SmallestBytes: slices.Max(best.predicted.MemoryBytes), Plan: describe(s.Profile, best.plan),
		}
	}
	out.Best = best.plan
	out.Best.Predicted = &best.predicted
	out.LowestS = plan.Bound(s.Profile, s.Cluster, len(s.Cluster.Devices), s.Batch, s.Profile.Sizes(s.Cluster.Devices[0]))
	out.Best.LowerBound = &plan.LowerBound{StepS: out.LowestS, Gap: best.predicted.StepS/out.LowestS - 1}
	if gap := &out.Best.LowerBound.Gap; *gap < 0 && *gap > -1e-9 {
		*gap = 0 // the bound is met; the sums were added in another order
	}
	out.Best.Why = s.why(kinds)
	return out, nil
}

// why says, a sentence each, what the best plan is, what it beat and by how much.
func (s *search) why(kinds []string) []string {
	best := s.best[kinds[0]]
	out := []string{fmt.Sprintf("%s: %.4g ms a step, the least of %d plans simulated",
		describe(s.Profile, best.plan), 1e3*best.predicted.StepS, s.tried)}
	for _, kind := range kinds[1:] {
		c := s.best[kind]
		if over := c.over(s.Cluster); over > 0 {
			out = append(out, fmt.Sprintf("%s does not fit: %s too much on its fullest worker", describe(s.Profile, c.plan), cluster.FormatBytes(over)))
			continue
		}
		slower := c.predicted.StepS/best.predicted.StepS - 1
		if slower < 1e-9 {
			out = append(out, fmt.Sprintf("%s: as fast, and holds %s where this holds %s", describe(s.Profile, c.plan),
				cluster.FormatBytes(slices.Max(c.predicted.MemoryBytes)), cluster.FormatBytes(slices.Max(best.predicted.MemoryBytes))))
			continue
		}
		out = append(out, fmt.Sprintf("%s: %.4g ms, %.1f %% slower (bubble %.1f %% against %.1f %%)", describe(s.Profile, c.plan),
			1e3*c.predicted.StepS, 100*slower, 100*c.predicted.Bubble, 100*best.predicted.Bubble))
	}
	return out
}
