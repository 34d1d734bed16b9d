package main

import (
	"fmt"

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
		Use: "speedup", Short: "Compare the planned pipeline with the best single worker over all micro-batches and threads",
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
	Plan     string           `json:"plan"`
	Singles  []bench.Measured `json:"singles"`
	Result   bench.Result     `json:"result"`
	BusyS    []float64        `json:"busy_s"` // by stage, in the median step
	Bound    float64          `json:"bound"`  // that these shares and the fill allow
	OfBound  float64          `json:"of_bound"`
	Interval bench.Interval   `json:"of_bound_interval"`
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
	singles, err := own.singles(p.model)
	if err != nil {
		return err
	}
	pipeline, err := own.command("pipeline", p.plan, j.ThreadsPerWorker)
	if err != nil {
		return err
	}
	unit := unitOf(p.model)
	s := speedup{Plan: reason(p.plan)}
	if s.Singles, err = bench.Sweep(ctx, singles, m.visits, bench.Open, tellMeasured(log, unit)); err != nil {
		return err
	}
	if s.Result, err = duel(ctx, pipeline, s.Singles[0].Command, m.pairs, log); err != nil {
		return err
	}
	measured, err := measuredTraining(ctx, p, 20)
	if err != nil {
		return err
	}
	s.BusyS = report.NumbersOf(&measured.Timeline, settleSteps, p.plan.Batch()).BusyS
	s.Bound = bench.StageBound(s.BusyS, p.plan.MicroBatches)
	s.OfBound = s.Result.MedianRatio / s.Bound
	s.Interval = bench.Interval{Lo: s.Result.Lo / s.Bound, Hi: s.Result.Hi / s.Bound, Confidence: s.Result.Confidence}
	if m.asJSON {
		return writeJSON(out, s)
	}
	fmt.Fprintf(out, "%s\n\n", s.Plan)
	if err := bench.WriteResults(out, unit, []bench.Result{s.Result}); err != nil {
		return err
	}
	fmt.Fprintf(out, "\nStages computed %s of a step: no pipeline of them can be more than %.3f times as fast as one worker. Reached: %.1f %% (%.1f to %.1f).\n\n",
		milliseconds(s.BusyS), s.Bound, 100*s.OfBound, 100*s.Interval.Lo, 100*s.Interval.Hi)
	return bench.WriteSweep(out, unit, s.Singles)
}
