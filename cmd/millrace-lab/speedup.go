package main

import (
	"github.com/spf13/cobra"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/cmd/internal/prepare"
	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/lab/bench"
	"github.com/millrace-ml/millrace/lab/race"
	"github.com/millrace-ml/millrace/lab/record"
)

func benchSpeedupCommand() *cobra.Command {
	var flags prepare.JobFlags
	own := measuring{pairs: 15, visits: 3, steps: 2}
	c := &cobra.Command{
		Use: "speedup", Short: "Compare the planned pipeline with the best single workers over all micro-batches, of one " +
			"thread and of two",
		Long: `Races the planned pipeline against the fastest single worker with one thread, over all micro-batch sizes, and
against the fastest single worker with two threads.

The pipeline divides the work of the worker with one thread. The stages' shares of this work, and the fill of
the pipeline, limit how much faster it can be. Shares are measured in every pair, during the visit that is
timed, because a machine that others use slows one core and not the other for seconds at a time. The table
gives the part of this limit that is reached, as a median over pairs. It also gives the two causes of the
rest: how much longer the stages compute than the single worker, and how long they wait. The worker with two
threads has as many cores as a pipeline of two workers, and divides each operator among them. Against it there
is no such limit.`,
		Example: "  millrace-lab bench speedup --model gpt --data text.txt --batch 32 --micro-batches 16\n" +
			"  millrace-lab bench speedup --model convnet --data fashion-mnist --batch 128",
		Args: cobra.NoArgs,
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

func benchSpeedup(c *cobra.Command, j *job.Job, m measuring) error {
	ctx, out := c.Context(), c.OutOrStdout()
	if j.Plan.Stages == 0 {
		j.Plan.Stages = j.Machine.Workers
	}
	p, err := prepare.PrepareToTrain(c, j)
	if err != nil {
		return err
	}
	own, remove, err := openExperiment(c, j, m.steps)
	if err != nil {
		return err
	}
	defer remove()
	pipeline, err := own.command("pipeline", p.Plan, j.Machine.ThreadsPerWorker)
	if err != nil {
		return err
	}
	unit := unitOf(p.Model)
	s := bench.Speedup{Head: record.Begin("speedup", "A pipeline beside one worker"), Model: p.Model.Name,
		Micros: p.Plan.MicroBatches, Micro: p.Plan.MicroBatch, Plan: reason(p.Plan)}
	for threads := 1; threads <= 2; threads++ {
		singles, err := own.singles(p.Model, threads)
		if err != nil {
			return err
		}
		found, err := own.sweep(ctx, singles, m.visits, unit)
		if err != nil {
			return err
		}
		var busy [][]float64
		result, err := own.duel(ctx, pipeline, found[0].Command, m.pairs,
			func(piped, _ *race.Rival) { busy = append(busy, piped.BusyS) })
		if err != nil {
			return err
		}
		s.Singles, s.Results = append(s.Singles, found), append(s.Results, result)
		if threads == 1 {
			if err := s.Bounded(p.Plan, result, busy); err != nil {
				return err
			}
		}
	}
	s.End()
	if err := record.Write(m.output, &s); err != nil {
		return err
	}
	if m.asJSON {
		return cli.WriteJSON(out, &s)
	}
	return s.Write(out, unit)
}
