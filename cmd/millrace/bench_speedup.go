package main

import (
	"fmt"
	"math"

	"github.com/spf13/cobra"

	"github.com/millrace-ml/millrace/bench"
	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/report"
)

// settleSteps are left out at the start of every measured training: memory grows in them.
const settleSteps = 3

func benchSpeedupCommand() *cobra.Command {
	var flags jobFlags
	own := measuring{pairs: 15, visits: 3, steps: 2}
	c := &cobra.Command{
		Use: "speedup", Short: "Compare the planned pipeline with the best single workers over all micro-batches, of one thread and of two",
		Long: `Races the planned pipeline against the fastest single worker of one thread, over all micro-batch
sizes, and against the fastest of two threads.

The first is what a pipeline divides: its stages' measured shares and its fill bound how much faster
it can be, and the table says how much of that it reaches. The second has as many cores as a
pipeline of two workers and divides each operator among them instead of the layers; no bound but
the machine's own is between the two.`,
		Example: "  millrace bench speedup --model gpt --data text.txt --batch 32 --micro-batches 16\n  millrace bench speedup --model convnet --data fashion-mnist --batch 128",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			j, err := flags.job()
			if err != nil {
				return err
			}
			if err := own.check(c, 1, "to be timed"); err != nil {
				return err
			}
			return benchSpeedup(c, j, own)
		},
	}
	flags.add(c, job.ModelOptions, job.PlanOptions, []job.Option{dataOption()})
	own.add(c, "visit-steps")
	return c
}

// dataOption is --data alone, for verbs that take nothing else of a training.
func dataOption() job.Option {
	return job.Option{Name: "data", Doc: "what to train on (default: random samples)", Set: func(j *job.Job, v string) error { j.Data = v; return nil }}
}

// speedup is what bench speedup found.
type speedup struct {
	Plan     string             `json:"plan"`
	Singles  [][]bench.Measured `json:"singles"` // of one thread, of two
	Results  []bench.Result     `json:"results"` // against the best of each
	BusyS    []float64          `json:"busy_s"`  // by worker, in the median step
	Bound    float64            `json:"bound"`   // over one thread, that these shares and the fill allow
	OfBound  float64            `json:"of_bound"`
	Interval bench.Interval     `json:"of_bound_interval"`
}

func benchSpeedup(c *cobra.Command, j *job.Job, m measuring) error {
	ctx, out, log := c.Context(), c.OutOrStdout(), c.ErrOrStderr()
	if j.Stages == 0 {
		j.Stages = j.Workers
	}
	p, err := prepare(c, j)
	if err != nil {
		return err
	}
	dir, remove, err := scratch()
	if err != nil {
		return err
	}
	defer remove()
	own := sessions{job: j, dir: dir, steps: m.steps}
	pipeline, err := own.command("pipeline", p.plan, j.ThreadsPerWorker)
	if err != nil {
		return err
	}
	unit := unitOf(p.model)
	s := speedup{Plan: reason(p.plan)}
	for threads := 1; threads <= 2; threads++ {
		singles, err := own.singles(p.model, threads)
		if err != nil {
			return err
		}
		found, err := bench.Sweep(ctx, singles, m.visits, bench.Open, tellMeasured(log, unit))
		if err != nil {
			return err
		}
		result, err := duel(ctx, pipeline, found[0].Command, m.pairs, log)
		if err != nil {
			return err
		}
		s.Singles, s.Results = append(s.Singles, found), append(s.Results, result)
	}
	measured, err := measuredTraining(ctx, p, 20)
	if err != nil {
		return err
	}
	s.BusyS = report.NumbersOf(&measured.Timeline, settleSteps, p.plan.Batch()).BusyS
	s.Bound = boundOf(p, s.BusyS)
	one := s.Results[0]
	s.OfBound = one.MedianRatio / s.Bound
	s.Interval = bench.Interval{Lo: one.Lo / s.Bound, Hi: one.Hi / s.Bound, Confidence: one.Confidence}
	if m.asJSON {
		return writeJSON(out, s)
	}
	fmt.Fprintf(out, "%s\n\n", s.Plan)
	if err := bench.WriteResults(out, unit, s.Results); err != nil {
		return err
	}
	fmt.Fprintf(out, "\nWorkers computed %s of a step: no pipeline of these shares can be more than %.3f times as fast as one worker of one thread. Reached: %.1f %% (%.1f to %.1f).\n\n",
		milliseconds(s.BusyS), s.Bound, 100*s.OfBound, 100*s.Interval.Lo, 100*s.Interval.Hi)
	for i, singles := range s.Singles {
		fmt.Fprintf(out, "One worker, %s:\n\n", []string{"one thread", "two threads"}[i])
		if err := bench.WriteSweep(out, unit, singles); err != nil {
			return err
		}
		fmt.Fprintln(out)
	}
	return nil
}

// boundOf is bench.StageBound of a straight pipeline. Where a worker holds several stages, or stages
// have replicas, workers need not wait for each other's: only the fullest worker bounds the step, as if
// fills took no time.
func boundOf(p *planned, busy []float64) float64 {
	straight := len(p.plan.Stages) == len(busy)
	for _, s := range p.plan.Stages {
		straight = straight && len(s.Devices) == 1
	}
	if !straight {
		return bench.StageBound(busy, math.MaxInt)
	}
	return bench.StageBound(busy, p.plan.MicroBatches)
}
