package tuning

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace-ml/millrace/cmd/internal/prepare"
	"github.com/millrace-ml/millrace/internal/progress"
	"github.com/millrace-ml/millrace/internal/stats"
	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/tune"
	"github.com/millrace-ml/millrace/tune/avgpipe"
	"github.com/millrace-ml/millrace/tune/roles"
)

// anySchedule is the best plan with one kind of schedule, and its measured batch time if it was tried.
type anySchedule struct {
	tune.Rival
	MeasuredS float64 `json:"measured_s,omitempty"`
}

func schedules(rivals []tune.Rival) []anySchedule {
	var all []anySchedule
	for _, r := range rivals {
		all = append(all, anySchedule{Rival: r})
	}
	return all
}

// triedSchedules is the number of schedules of --all that are tried. scheduleRounds is the number of rounds.
const (
	triedSchedules = 8
	scheduleRounds = 5
)

// inTurn tries the schedules with the best predictions in rounds, each once per round, and computes medians.
func inTurn(c *cobra.Command, all []anySchedule, machine avgpipe.Machine, work *progress.Work) (err error) {
	all = all[:min(triedSchedules, len(all))]
	took := make([][]float64, len(all))
	defer func() { // also counts what was tried before a stop
		for i := range all {
			if len(took[i]) > 0 {
				all[i].MeasuredS = stats.Median(took[i])
			}
		}
	}()
	var pieces []progress.Piece
	for range scheduleRounds {
		for _, r := range all {
			if r.Plan != nil {
				pieces = append(pieces, trialOf(r))
			}
		}
	}
	work.Plan(time.Now(), "schedules", pieces...)
	defer func() { work.End(time.Now()) }()
	for range scheduleRounds {
		for i, r := range all {
			if c.Context().Err() != nil {
				return context.Cause(c.Context())
			}
			if r.Plan == nil {
				continue
			}
			at := degreesOf(r)
			work.Begin(time.Now(), trialOf(r))
			trial, err := machine(c.Context(), &avgpipe.Pipelined{Scored: avgpipe.Scored{At: at}, Plan: r.Plan},
				avgpipe.Iterations(at, avgpipe.TraversalBatches), false)
			if err != nil {
				return fmt.Errorf("trying %s: %w", r.Kind, err)
			}
			took[i] = append(took[i], trial.StepS)
		}
	}
	return nil
}

func degreesOf(r anySchedule) avgpipe.Degrees {
	return avgpipe.Degrees{MicroBatches: r.Plan.MicroBatches, Pipelines: r.Plan.Together()}
}

// trialOf describes the trial of a schedule for the progress display.
func trialOf(r anySchedule) progress.Piece {
	p := avgpipe.Trying(degreesOf(r), avgpipe.TraversalBatches, r.Predicted.StepS)
	p.What, p.Kind = "trying "+r.Kind, r.Kind
	return p
}

// behind compares the plan with the best prediction to the plan with the best measurement. It returns how much longer a
// batch takes with the former, as a fraction. It returns false if the plan with the best prediction was not tried.
func behind(all []anySchedule) (float64, bool) {
	best, chosen := 0.0, fastest(all)
	for _, s := range all {
		if s.MeasuredS > 0 && (best == 0 || s.MeasuredS < best) {
			best = s.MeasuredS
		}
	}
	if best == 0 || chosen < 0 || all[chosen].MeasuredS == 0 {
		return 0, false
	}
	return all[chosen].MeasuredS/best - 1, true
}

// bases is how many plans of the search are tried with AvgPipe's degrees. These are the best plans that the search
// found.
const bases = 8

// leastGain is the gain, as a fraction of a simulated batch, for which other stages than AvgPipe's own are used.
const leastGain = 1e-3

// everything searches over all schedules and adds AvgPipe's choice. For this choice it tries AvgPipe's own partition,
// the stages of the best pipelines that the search found, and a search for each number of pipelines.
func (f *tuneFlags) everything(c *cobra.Command, p *prepare.Prepared, w *avgpipe.Workload,
	found *avgpipe.Result) ([]anySchedule, error) {
	fix, err := prepare.Overrides(p.Job, prepare.NamesOf(p.Model))
	if err != nil {
		return nil, err
	}
	limited := *p.Cluster
	if p.Job.Machine.MemoryBytes() > 0 {
		limited.DeviceTypes = maps.Clone(p.Cluster.DeviceTypes)
		for name, d := range limited.DeviceTypes {
			d.MemoryBytes = w.LimitBytes
			limited.DeviceTypes[name] = d
		}
	}
	request := tune.Request{Profile: p.Profile, Cluster: &limited, Batch: p.Job.Plan.Batch,
		Clip: p.Job.Train.Clip > 0, Fix: fix, Runnable: p.Job.Machine.Cluster == ""}
	general, err := tune.Search(c.Context(), request)
	if err != nil {
		return nil, prepare.Refused(p.Job, err)
	}
	all := slices.DeleteFunc(general.Rivals, func(r tune.Rival) bool { return !r.Fits || r.Same != "" })
	if found == nil { // AvgPipe has no degrees that fit, but other schedules may fit
		return schedules(all), nil
	}
	var grid []avgpipe.Degrees
	for _, cell := range found.Grid {
		grid = append(grid, cell.At)
	}
	best, margin := found.Best, leastGain // other stages than AvgPipe's own are used only if they gain more than this
	if !f.simulate {
		margin = avgpipe.Nearly
	}
	others, err := averaged(c.Context(), request, grid)
	if err != nil {
		return nil, err
	}
	for _, r := range all[:min(bases, len(all))] {
		if r.Plan == nil {
			continue
		}
		over, ok := w.Over(r.Plan)
		if !ok {
			continue
		}
		other, err := over.Best(c.Context(), grid)
		var tooMuch *avgpipe.LimitError
		if err != nil && !errors.As(err, &tooMuch) {
			return nil, err
		}
		if err == nil {
			others = append(others, other)
		}
	}
	for _, other := range others {
		if other.StepS < best.StepS*(1-margin) {
			best = other
		}
	}
	return schedules(withOwn(all, best, p.Job.Plan.Batch)), nil
}

// averaged searches for the best plan with each number of pipelines in a grid. It leaves out numbers for which no plan
// fits or is possible.
func averaged(ctx context.Context, r tune.Request, grid []avgpipe.Degrees) ([]*avgpipe.Pipelined, error) {
	var out []*avgpipe.Pipelined
	tried := map[int]bool{1: true}
	for _, at := range grid {
		if tried[at.Pipelines] {
			continue
		}
		tried[at.Pipelines] = true
		order, weights := roles.Averaging()
		r.Fix.Schedule, r.Fix.Weights, r.Fix.Elastic = order.Name, weights, plan.NewElastic(at.Pipelines)
		found, err := tune.Search(ctx, r)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err != nil {
			continue
		}
		pl, n := found.Best, float64(at.Pipelines)
		next := &avgpipe.Pipelined{Plan: pl, Bubble: pl.Predicted.Bubble, Scored: avgpipe.Scored{
			At:    avgpipe.Degrees{MicroBatches: pl.MicroBatches, Pipelines: at.Pipelines},
			StepS: pl.Predicted.StepS / n, MemoryBytes: pl.Predicted.MemoryBytes}}
		for _, busyS := range pl.Predicted.BusyS {
			next.IdleS = append(next.IdleS, (pl.Predicted.StepS-busyS)/n)
		}
		out = append(out, next)
	}
	return out, nil
}

// withOwn adds AvgPipe's choice to the schedules, the fastest first. The choice takes the place of a schedule with the
// same plan.
func withOwn(all []tune.Rival, best *avgpipe.Pipelined, batch int) []tune.Rival {
	own := tune.Rival{
		Kind: "AvgPipe, " + terminal.Count(best.At.Pipelines, "pipeline"), Plan: best.Plan, Fits: true,
		Predicted: plan.Predicted{StepS: best.StepS, SamplesPerSecond: float64(batch) / best.StepS, Bubble: best.Bubble,
			MemoryBytes: best.MemoryBytes},
	}
	for _, idleS := range best.IdleS {
		own.Predicted.BusyS = append(own.Predicted.BusyS, best.StepS-idleS)
	}
	k := slices.IndexFunc(all, func(r tune.Rival) bool { return r.Plan != nil && r.Plan.Same(best.Plan) })
	if k >= 0 {
		own.Why = "the same plan as " + all[k].Kind
		all = slices.Delete(all, k, k+1)
	}
	all = append(all, own)
	slices.SortStableFunc(all, func(a, b tune.Rival) int { return cmp.Compare(a.Predicted.StepS, b.Predicted.StepS) })
	return all
}
