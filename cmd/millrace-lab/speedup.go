package main

import (
	"fmt"
	"math"

	"github.com/spf13/cobra"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/cmd/internal/prepare"
	"github.com/millrace-ml/millrace/internal/stats"
	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/lab/race"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/family"
)

// settleSteps are left out at the start of every measured training: memory grows in them.
const settleSteps = 3

func benchSpeedupCommand() *cobra.Command {
	var flags prepare.JobFlags
	own := measuring{pairs: 15, visits: 3, steps: 2}
	c := &cobra.Command{
		Use: "speedup", Short: "Compare the planned pipeline with the best single workers over all micro-batches, of one thread and of two",
		Long: `Races the planned pipeline against the fastest single worker of one thread, over all micro-batch
sizes, and against the fastest of two threads.

The first is what a pipeline divides: its stages' shares and its fill bound how much faster it can
be. Shares are measured in every pair, in the very visit that is timed, because a machine shared
with others slows one core and not the other for seconds at a time; how much of the bound is reached
is the median over pairs, and so are its two parts: how much the stages compute beyond what the
single worker needs, and how much they wait. The second has as many cores as a
pipeline of two workers and divides each operator among them instead of the layers; no bound but
the machine's own is between the two.`,
		Example: "  millrace-lab bench speedup --model gpt --data text.txt --batch 32 --micro-batches 16\n  millrace-lab bench speedup --model convnet --data fashion-mnist --batch 128",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			j, err := flags.Job()
			if err != nil {
				return err
			}
			if err := own.check(c, 1, "to be timed"); err != nil {
				return err
			}
			return benchSpeedup(c, j, own)
		},
	}
	flags.Add(c, job.ModelOptions, job.PlanOptions, []job.Option{prepare.DataOption()})
	own.add(c, "visit-steps")
	return c
}

// speedup is what bench speedup found.
type speedup struct {
	Plan     string            `json:"plan"`
	Singles  [][]race.Measured `json:"singles"` // of one thread, of two
	Results  []race.Result     `json:"results"` // against the best of each
	Pairs    []speedupPair     `json:"pairs"`   // against one thread
	Bound    float64           `json:"bound"`   // the median of theirs, and so on
	OfBound  float64           `json:"of_bound"`
	Interval stats.Interval    `json:"of_bound_interval"`
	Work     float64           `json:"work"`
	Waiting  float64           `json:"waiting"`
}

// speedupPair is what one pair of visits says of the bound.
type speedupPair struct {
	BusyS   []float64 `json:"busy_s"`   // what each worker computed in a step
	Bound   float64   `json:"bound"`    // over one thread, that these shares and the fill allow
	OfBound float64   `json:"of_bound"` // reached of it
	Work    float64   `json:"work"`     // what all workers computed, over the single worker's step
	Waiting float64   `json:"waiting"`  // the pipeline's step, over the least that these shares and the fill allow
}

func benchSpeedup(c *cobra.Command, j *job.Job, m measuring) error {
	ctx, out, log := c.Context(), c.OutOrStdout(), c.ErrOrStderr()
	if j.Stages == 0 {
		j.Stages = j.Workers
	}
	p, err := prepare.PrepareToTrain(c, j)
	if err != nil {
		return err
	}
	dir, remove, err := scratch()
	if err != nil {
		return err
	}
	defer remove()
	own := sessions{job: j, dir: dir, steps: m.steps}
	pipeline, err := own.command("pipeline", p.Plan, j.ThreadsPerWorker)
	if err != nil {
		return err
	}
	unit := unitOf(p.Model)
	s := speedup{Plan: reason(p.Plan)}
	for threads := 1; threads <= 2; threads++ {
		singles, err := own.singles(p.Model, threads)
		if err != nil {
			return err
		}
		found, err := race.Sweep(ctx, singles, m.visits, race.Open, tellMeasured(log, unit))
		if err != nil {
			return err
		}
		var busy [][]float64
		result, err := duel(ctx, pipeline, found[0].Command, m.pairs, log, func(piped, _ *race.Rival) { busy = append(busy, piped.BusyS) })
		if err != nil {
			return err
		}
		s.Singles, s.Results = append(s.Singles, found), append(s.Results, result)
		if threads == 1 {
			if err := s.bounded(p.Plan, result, busy); err != nil {
				return err
			}
		}
	}
	if m.asJSON {
		return cli.WriteJSON(out, s)
	}
	fmt.Fprintf(out, "%s\n\n", s.Plan)
	if err := race.WriteResults(out, unit, s.Results); err != nil {
		return err
	}
	fmt.Fprintf(out, "\nBy what its workers computed, and its fill, the pipeline can be no more than %.3f times as fast as one worker of one thread. Reached: %.1f %% (%.1f to %.1f).\nTogether its workers computed %.3f times as long as the single worker took; a step was %.3f times the least that their shares and the fill allow. All are medians over the pairs.\n\n",
		s.Bound, 100*s.OfBound, 100*s.Interval.Lo, 100*s.Interval.Hi, s.Work, s.Waiting)
	for i, singles := range s.Singles {
		fmt.Fprintf(out, "One worker, %s:\n\n", []string{"one thread", "two threads"}[i])
		if err := race.WriteSweep(out, unit, singles); err != nil {
			return err
		}
		fmt.Fprintln(out)
	}
	return nil
}

// bounded fills what the pairs against one thread say of the bound; busy is what the pipeline's workers
// computed in a step of each.
func (s *speedup) bounded(pl *plan.Plan, one race.Result, busy [][]float64) (err error) {
	var bounds, reached, work, waiting []float64
	for i, shares := range busy {
		all := 0.0
		for _, b := range shares {
			all += b
		}
		pair := speedupPair{BusyS: shares, Bound: boundOf(pl, shares), Work: all * one.B.Rates[i] / float64(pl.StepSamples())}
		pair.OfBound = one.Ratios[i] / pair.Bound
		pair.Waiting = 1 / (pair.OfBound * pair.Work)
		s.Pairs = append(s.Pairs, pair)
		bounds, reached, work, waiting = append(bounds, pair.Bound), append(reached, pair.OfBound), append(work, pair.Work), append(waiting, pair.Waiting)
	}
	s.Bound, s.OfBound, s.Work, s.Waiting = stats.Median(bounds), stats.Median(reached), stats.Median(work), stats.Median(waiting)
	s.Interval, err = stats.MedianInterval(reached, one.Confidence)
	return err
}

// boundOf is race.StageBound of a straight pipeline that flushes and keeps each backward whole. Of any other only
// the fullest worker bounds the step, as if fills took no time: where a worker holds several stages or stages
// have replicas, workers need not wait for each other's, weight gradients fill the end of a step, and
// without a flush nothing is filled but once.
func boundOf(pl *plan.Plan, busy []float64) float64 {
	f, err := family.Lookup(pl.Schedule)
	fills := err == nil && f.General == baseOrder && schedule.Policy(pl.Weights).Flushes() && len(pl.Stages) == len(busy)
	for _, s := range pl.Stages {
		fills = fills && len(s.Devices) == 1
	}
	if !fills {
		return race.StageBound(busy, math.MaxInt)
	}
	return race.StageBound(busy, pl.MicroBatches)
}
