package avgpipe

import (
	"cmp"
	"math"
	"slices"

	"github.com/millrace-ml/millrace/internal/stats"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/sim"
	"github.com/millrace-ml/millrace/trace"
)

// StageFactors holds a stage's factors: the times of its instructions in training, divided by their times in the
// layers' profile.
type StageFactors struct {
	// At holds the factors of forwards and backwards with one pipeline, one element for each profiled micro-batch size,
	// in ascending order. Beside holds the same with several pipelines. The two differ for small micro-batches: another
	// pipeline's instructions evict the parameters and gradients from the cache.
	At     []SizeFactors `json:"at"`
	Beside []SizeFactors `json:"beside"`
	// Update is the factor of plain updates. Elastic is the factor of the updates of parallel pipelines. Reference is
	// the factor of the updates of their reference.
	Update    float64 `json:"update"`
	Elastic   float64 `json:"elastic"`
	Reference float64 `json:"reference"`
	// Spread says how much forwards and backwards vary. It is not a factor; see profile.Cost.
	Spread float64 `json:"spread"`
}

// SizeFactors is a stage's factors at one size of micro-batch.
type SizeFactors struct {
	MicroBatch int     `json:"micro_batch"`
	Forward    float64 `json:"forward"`
	Backward   float64 `json:"backward"`
}

// anchor is a setting that was run, with its Timeline.
type anchor struct {
	setting  *Pipelined
	timeline *trace.Timeline
}

// calibrated returns the workload with its layer times corrected by the Timelines of some settings. It also returns
// each stage's factors: the ratios of its new times to its old ones.
//
// A profile of one or two runs over every layer shows how the layers' costs compare with each other. How long a stage
// takes is measured in some batches of real training, in which every layer runs between its neighbours. The times of a
// stage's layers are multiplied by the mean time of the stage's measured instructions, and divided by their mean time
// in a simulation of the same setting. So whatever the simulator adds to a layer's time is in both means.
//
// Means are used because a step is a sum of instructions, including delayed ones. Each iteration has a mean. The median
// of these means is taken, because a machine is sometimes slow for an iteration. (Of an even number of iterations, it
// is the smaller of the two middle means.) The variation comes from the last anchor, which has the most iterations. The
// first half of each anchor is left out, because memory that is newly allocated is slow at first. There are separate
// factors for one pipeline and for several pipelines. If a size was measured in only one of these two cases, the
// factors of that case are used in both.
func (w *Workload) calibrated(anchors []anchor) (*Workload, []StageFactors, error) {
	factors := make([]StageFactors, len(w.Base.Stages))
	for s := range factors {
		factors[s] = StageFactors{Update: 1, Elastic: 1, Reference: 1}
	}
	steady := *w // without the variation in the profile
	steady.Profile, steady.Beside = w.scaled(factors, 1), nil
	for i, a := range anchors {
		simulated, _, err := steady.run(a.setting, len(a.timeline.Steps), true)
		if err != nil {
			return nil, nil, err
		}
		want, have := durations(a.timeline, a.setting.At), durations(simulated, a.setting.At)
		for s := range factors {
			f := &factors[s]
			of := func(kind string) (float64, bool) {
				x, y := typical(want[instructions{s, kind}]), typical(have[instructions{s, kind}])
				if x > 0 && y > 0 {
					return x / y, true
				}
				return 1, false
			}
			forward, _ := of("F")
			backward, _ := of("B")
			own := &f.At
			if a.setting.At.Pipelines > 1 {
				own = &f.Beside
			}
			*own = seen(*own, SizeFactors{a.setting.Plan.MicroBatch, forward, backward})
			for kind, at := range map[string]*float64{"U": &f.Update, elasticUpdate: &f.Elastic, referenceUpdate: &f.Reference} {
				if x, ok := of(kind); ok {
					*at = x
				}
			}
			if i == len(anchors)-1 {
				f.Spread = spread(want, s)
			}
		}
	}
	for s := range factors {
		f := &factors[s]
		f.At, f.Beside = completed(f.At, f.Beside), completed(f.Beside, f.At)
	}
	out := *w
	out.Profile, out.Beside, out.means = w.scaled(factors, 1), w.scaled(factors, 2), true
	return &out, factors, nil
}

// seen adds the factors of one visit to a size. If the size was visited before, it keeps the mean of both visits.
func seen(all []SizeFactors, visit SizeFactors) []SizeFactors {
	for i := range all {
		if f := &all[i]; f.MicroBatch == visit.MicroBatch {
			f.Forward, f.Backward = (f.Forward+visit.Forward)/2, (f.Backward+visit.Backward)/2
			return all
		}
	}
	return append(all, visit)
}

// completed returns `own` and, for sizes that `own` lacks, the factors in `others`. The result is sorted by size.
func completed(own, others []SizeFactors) []SizeFactors {
	all := slices.Clone(own)
	for _, o := range others {
		if !slices.ContainsFunc(own, func(a SizeFactors) bool { return a.MicroBatch == o.MicroBatch }) {
			all = append(all, o)
		}
	}
	slices.SortStableFunc(all, func(a, b SizeFactors) int { return cmp.Compare(a.MicroBatch, b.MicroBatch) })
	return all
}

// at returns a stage's factors at a size, for one or several pipelines. It interpolates linearly in the logarithm of
// the size. Beyond the profiled sizes it returns the factors of the nearest one.
func (f *StageFactors) at(size, pipelines int) SizeFactors {
	known := f.At
	if pipelines > 1 {
		known = f.Beside
	}
	above, found := slices.BinarySearchFunc(known, size,
		func(a SizeFactors, size int) int { return cmp.Compare(a.MicroBatch, size) })
	switch {
	case len(known) == 0:
		return SizeFactors{size, 1, 1}
	case found || above == 0:
		return known[above]
	case above == len(known):
		return known[above-1]
	}
	a, b := known[above-1], known[above]
	t := math.Log(float64(size)/float64(a.MicroBatch)) / math.Log(float64(b.MicroBatch)/float64(a.MicroBatch))
	return SizeFactors{size, a.Forward + t*(b.Forward-a.Forward), a.Backward + t*(b.Backward-a.Backward)}
}

// Instruction kinds for the updates of parallel pipelines and of their reference.
const (
	elasticUpdate   = "UE"
	referenceUpdate = "UR"
)

// instructions identifies one stage's instructions of one kind.
type instructions struct {
	stage int
	kind  string
}

// durations returns the times of each stage's instructions, by iteration, and leaves out the first half of the
// iterations. If there is only one iteration, it leaves out the first half of its micro-batches, and the updates.
func durations(t *trace.Timeline, at Degrees) map[instructions][][]float64 {
	from, fromMicro := t.Steps[len(t.Steps)/2].Step, 0
	if len(t.Steps) == 1 {
		fromMicro = at.MicroBatches / 2
	}
	out := map[instructions][][]float64{}
	for i := range t.Events {
		e := &t.Events[i]
		if e.Step < from || e.Kind != "F" && e.Kind != "B" && e.Kind != "U" {
			continue
		}
		f, ok := trace.ParseFields(e.Instruction)
		if !ok || fromMicro > 0 && (e.Kind == "U" || f.Micro < fromMicro) {
			continue
		}
		of := instructions{f.Stage, e.Kind}
		switch {
		case e.Kind != "U" || at.Pipelines < 2:
		case f.Pipeline == at.Pipelines:
			of.kind = referenceUpdate
		default:
			of.kind = elasticUpdate
		}
		for len(out[of]) <= e.Step-from {
			out[of] = append(out[of], nil)
		}
		out[of][e.Step-from] = append(out[of][e.Step-from], e.EndS-e.StartS)
	}
	return out
}

// typical returns the median of the iterations' mean times, or 0 if there are none. Of an even number of iterations, it
// returns the smaller of the two middle means.
func typical(iterations [][]float64) float64 {
	var means []float64
	for _, d := range iterations {
		if len(d) > 0 {
			means = append(means, stats.Mean(d))
		}
	}
	if len(means) == 0 {
		return 0
	}
	slices.Sort(means)
	return means[stats.Middle(len(means))]
}

// spread returns how much a stage's forwards and backwards vary, as in profile.Cost.Spread. It is the sum of their
// interquartile ranges, divided by the sum of their medians.
func spread(of map[instructions][][]float64, stage int) float64 {
	apart, all := 0.0, 0.0
	for _, kind := range []string{"F", "B"} {
		d := slices.Concat(of[instructions{stage, kind}]...)
		if len(d) > 3 {
			lower, upper := stats.Quartiles(d)
			apart, all = apart+upper-lower, all+stats.Median(d)
		}
	}
	if all == 0 {
		return 0
	}
	return apart / all
}

// scaled returns the workload's profile with each layer's times multiplied by its stage's factors, for one or several
// pipelines. A layer that is divided between two stages gets the first stage's factors.
func (w *Workload) scaled(factors []StageFactors, pipelines int) *profile.Profile {
	out := *w.Profile
	out.Layers = slices.Clone(out.Layers)
	position := func(l int) int { return l }
	if order := w.Base.Order; len(order) > 0 {
		position = func(l int) int { return slices.Index(order, l) }
	}
	for l := range out.Layers {
		at := position(l)
		s := 0
		for s < len(factors)-1 && w.Base.Stages[s].LastLayer < at {
			s++
		}
		layer, f := &out.Layers[l], &factors[s]
		layer.ScaleUpdates(f.Update, f.Elastic, f.Reference)
		// Factors are ratios of means, but a profile's times are medians. A simulation adds the variation of forwards
		// and backwards to these medians.
		median := 1 / sim.MeanVariation(f.Spread)
		layer.Costs = slices.Clone(layer.Costs)
		for i := range layer.Costs {
			c := &layer.Costs[i]
			own := f.at(c.MicroBatch, pipelines)
			*c = c.Slowed(median*own.Forward, median*own.Backward)
			c.Spread = f.Spread
		}
	}
	return &out
}
