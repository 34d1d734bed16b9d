package avgpipe

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/millrace-ml/millrace/internal/progress"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/sim"
)

// A profile of several settings runs about as many batches as a profile of one setting (ProfileBatches), or fewer.
// anchoredBatches is how many of these batches are at the profiled setting, in two visits. anchorIterations is the
// number of iterations that run at a setting at an end of the grid; in the first, caches are cold. If such a setting
// has several pipelines and at least manyMicros micro-batches, it runs only one iteration, in which half of the
// micro-batches are warm.
const (
	anchoredBatches  = 6
	anchorIterations = fewest
	manyMicros       = 16
)

// room returns an error if no setting keeps to the limit. It is called before anything is run.
func (t *tuning) room() error {
	var all []Scored
	for _, c := range t.out.Grid {
		p, err := t.Workload.simulate(c.At, 0)
		if err != nil {
			return err
		}
		if p.fits(t.Workload.LimitBytes) {
			return nil
		}
		all = append(all, p.Scored)
	}
	return smallest(all, t.Workload.LimitBytes)
}

// profile runs one setting. If Anchored is set, it runs the requested number of settings, and scales the layers'
// profile to them.
func (t *tuning) profile(ctx context.Context) error {
	at := t.ProfileAt
	var err error
	if at == (Degrees{}) {
		if at, err = t.profileAt(); err != nil {
			return err
		}
	}
	t.out.Calibrated = t.Workload
	var observed anchor
	if t.Anchored {
		observed, err = t.anchor(ctx, at)
	} else if err = t.planned([]Degrees{at}, func(at Degrees) int { return Iterations(at, ProfileBatches) }); err == nil {
		observed, err = t.try(ctx, at, Iterations(at, ProfileBatches))
	}
	if err != nil {
		return err
	}
	o := Observing{At: observed.setting.At, Skip: 1}
	if err := t.out.Calibrated.known(observed.setting, &o); err != nil {
		return err
	}
	t.out.Profiled, err = Observe(observed.timeline, o)
	return err
}

// anchor runs the setting `at`, or settings at the ends of the grid with `at` in between, and scales the layers'
// profile. Most predictions depend on the setting `at`, so it is visited twice: after the first end, when the process
// is warm, and after the last end, because a machine is sometimes slow for a second. For the equations, anchor returns
// the run of one pipeline with the most micro-batches, if these are more than those of `at`; otherwise a run of `at`.
// See profileAt.
func (t *tuning) anchor(ctx context.Context, at Degrees) (observed anchor, err error) {
	var anchors []anchor
	ends := t.ends(at)
	settings := append(ends[:min(len(ends), max(t.Settings, 1)-1)], at)
	if len(settings) > 1 {
		settings = slices.Insert(settings, 1, at)
	}
	iterationsOf := func(one Degrees) int {
		switch {
		case len(settings) == 1:
			return max(Iterations(at, ProfileBatches), anchorIterations)
		case one == at:
			return max(Iterations(at, anchoredBatches/2), anchorIterations)
		case one.Pipelines > 1 && one.MicroBatches >= manyMicros:
			return 1
		}
		return anchorIterations
	}
	if err := t.planned(settings, iterationsOf); err != nil {
		return observed, err
	}
	for i, one := range settings {
		iterations := iterationsOf(one)
		tried, err := t.try(ctx, one, iterations)
		if err != nil {
			return observed, err
		}
		anchors = append(anchors, tried)
		if one == at && observed.setting == nil || one.Pipelines == 1 &&
			(observed.setting == nil || one.MicroBatches > observed.setting.At.MicroBatches) {
			observed = tried
		}
		if one != at || i == len(settings)-1 {
			t.out.Anchors = append(t.out.Anchors, one)
		}
	}
	t.out.Calibrated, t.out.Factors, err = t.Workload.calibrated(anchors)
	return observed, err
}

// try runs a setting for some iterations and records them.
func (t *tuning) try(ctx context.Context, at Degrees, iterations int) (anchor, error) {
	p, err := t.Workload.Predict(ctx, at)
	if err != nil {
		return anchor{}, err
	}
	t.Progress.Begin(time.Now(), t.profiling(at, iterations, p.StepS))
	tried, err := t.Machine(ctx, p, iterations, true)
	if err != nil {
		return anchor{}, fmt.Errorf("tune: profiling %s: %w", at, err)
	}
	t.Progress.End(time.Now())
	t.profiledS += tried.TookS
	return anchor{p, tried.Timeline}, nil
}

// planned reports the work left before anything is tried: the settings of the profile, the predictions and, if Rivals
// is set, the trials of the grid. For an Anchored request it assumes that each profiled batch takes the first setting's
// predicted time. How long a prediction takes on this machine is known only after the first predictions.
func (t *tuning) planned(settings []Degrees, iterations func(Degrees) int) error {
	first, err := t.Workload.simulate(settings[0], 0)
	if err != nil {
		return err
	}
	var pieces []progress.Piece
	for _, at := range settings {
		pieces = append(pieces, t.profiling(at, iterations(at), first.StepS))
	}
	pieces = append(pieces, t.predictions(nil))
	t.Progress.Plan(time.Now(), "profile", pieces...)
	switch {
	case t.Rivals && t.Anchored:
		t.Progress.Plan(time.Now(), "traversal", progress.Piece{What: "traversal", Cost: progress.Unknown})
	case t.Rivals:
		t.Progress.Plan(time.Now(), "traversal", t.traversal()...)
	}
	return nil
}

// profiling returns the piece of work that runs a setting of the profile.
func (t *tuning) profiling(at Degrees, iterations int, batchS float64) progress.Piece {
	if !t.Anchored {
		return played("trying", "profile", at, predictionS)
	}
	p := Trying(at, TraversalBatches, batchS)
	p.Cost = trialS + float64(iterations*at.Pipelines)*batchS
	return p
}

// ends returns settings at both ends of the grid, without the profiled one. With the fewest micro-batches, it returns
// one setting: it has two pipelines or, if two do not fit, one. Two pipelines show the cost of sharing devices, and
// keep the devices as busy as in training. With the most micro-batches, it returns up to two settings: with one
// pipeline and with two, as far as they fit. These micro-batches are the smallest, and a second pipeline slows small
// micro-batches most.
func (t *tuning) ends(profiled Degrees) []Degrees {
	grid := t.out.Grid
	fewest, most := grid[0].At.MicroBatches, grid[len(grid)-1].At.MicroBatches
	fits := func(at Degrees) bool {
		if at.Pipelines > t.Pipelines {
			return false
		}
		p, err := t.Workload.simulate(at, 0)
		return err == nil && p.fits(t.Workload.LimitBytes)
	}
	var ends []Degrees
	if fewest != profiled.MicroBatches {
		for _, n := range []int{2, 1} {
			if at := (Degrees{fewest, n}); fits(at) {
				ends = append(ends, at)
				break
			}
		}
	}
	if most == fewest {
		return ends
	}
	for _, n := range []int{1, 2} {
		if at := (Degrees{most, n}); at != profiled && fits(at) {
			ends = append(ends, at)
		}
	}
	return ends
}

// profileAt returns the setting to profile, which has one pipeline. If several settings are profiled, the setting has
// the middle micro-batch size (the smaller of two middle sizes), or the next smaller size that fits. If one setting is
// profiled, it has the second largest number of micro-batches: "a rather large M and a small N so that GPUs are not
// fully utilized" (section 5.2.1). Equation 2 holds for micro-batches larger than the profiled ones, and overestimates
// the time of smaller ones. But the smallest micro-batches are the slowest to profile. profileAt takes the largest
// number of micro-batches instead in two cases: the devices are full with the second largest, or the setting with the
// second largest exceeds the limit.
func (t *tuning) profileAt() (Degrees, error) {
	var micros []int // ascending
	for _, c := range t.out.Grid {
		if n := len(micros); n == 0 || micros[n-1] != c.At.MicroBatches {
			micros = append(micros, c.At.MicroBatches)
		}
	}
	most := Degrees{micros[len(micros)-1], 1}
	if len(micros) < 2 {
		return most, nil
	}
	if t.Anchored && t.Settings > 1 {
		at := Degrees{micros[len(micros)/2], 1}
		for _, m := range micros[len(micros)/2:] {
			if p, err := t.Workload.simulate(Degrees{m, 1}, 0); err == nil && p.fits(t.Workload.LimitBytes) {
				return p.At, nil
			}
		}
		return at, nil
	}
	at := Degrees{micros[len(micros)-2], 1}
	if p, err := t.Workload.simulate(at, 0); err != nil || !p.fits(t.Workload.LimitBytes) {
		return most, nil
	}
	var o Observing
	if err := t.Workload.known(&Pipelined{Scored: Scored{At: at}, Plan: t.Workload.plan(at, 0)}, &o); err != nil {
		return at, err
	}
	const full = 0.99
	for i := range t.Workload.Base.Stages {
		for _, s := range slices.Concat(o.Stretches(i, "F"), o.Stretches(i, "B")) {
			if s.Phi(s.NowS) < full {
				return at, nil
			}
		}
	}
	return most, nil
}

// known fills in a setting's values from the layers' profile. For each stage these are the times of its layers,
// measured and at the device's peak, the bytes of its parameters, and the temporary memory of its update.
func (w *Workload) known(p *Pipelined, o *Observing) error {
	own := w.profileOf(p.At.Pipelines)
	costs, err := sim.CostsOf(own, w.Cluster, p.Plan)
	if err != nil {
		return fmt.Errorf("tune: %s: %w", p.At, err)
	}
	parts := make([][2][]profile.Stretch, len(p.Plan.Stages))
	for i, st := range p.Plan.Stages {
		forward, backward, err := own.Stretches(w.Cluster.Devices[st.Devices[0]], st.FirstLayer, st.LastLayer,
			p.Plan.MicroBatch)
		if err != nil {
			return fmt.Errorf("tune: %w", err)
		}
		parts[i] = [2][]profile.Stretch{forward, descending(forward, backward, st.Recompute)}
		o.ReferenceBytes = append(o.ReferenceBytes, costs.Stages[i][0].ReferenceBytes)
		o.UpdateBytes = append(o.UpdateBytes, costs.Stages[i][0].UpdatePeak)
	}
	o.Stretches = func(stage int, kind string) []profile.Stretch {
		switch {
		case stage >= len(parts) || kind == "U": // an update does not depend on how its batch was divided
			return nil
		case kind == "F":
			return parts[stage][0]
		}
		return parts[stage][1]
	}
	return nil
}

// descending lists the computations of a backward: the layers in descending order. The forwards of a recomputed segment
// come before the backwards of that segment.
func descending(forward, backward []profile.Stretch, again plan.Recompute) (all []profile.Stretch) {
	n := len(backward)
	segment := again.Segment(n)
	for end := n; end > 0; {
		from := 0
		if segment > 0 {
			from = (end - 1) / segment * segment
			all = append(all, forward[from:end]...)
		}
		for l := end - 1; l >= from; l-- {
			all = append(all, backward[l])
		}
		end = from
	}
	return all
}
