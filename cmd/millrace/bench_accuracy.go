package main

import (
	"context"
	"fmt"
	"math"
	"os"

	"github.com/spf13/cobra"

	"github.com/millrace-ml/millrace/data"
	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/run"
	"github.com/millrace-ml/millrace/run/place"
	"github.com/millrace-ml/millrace/trace"
	"github.com/millrace-ml/millrace/tune/predict"
)

func benchAccuracyCommand() *cobra.Command {
	var flags jobFlags
	var asJSON bool
	c := &cobra.Command{
		Use: "accuracy", Short: "Train the planned pipeline and one worker on the same data, and compare every loss bit by bit",
		Example: "  millrace bench accuracy --model gpt --data text.txt --batch 32 --steps 100\n  millrace bench accuracy --job examples/demo.yaml",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			j, err := flags.job()
			if err != nil {
				return err
			}
			return benchAccuracy(c, j, asJSON)
		},
	}
	flags.add(c, job.ModelOptions, job.PlanOptions, job.TrainOptions)
	c.Flags().BoolVar(&asJSON, "json", false, "for machines")
	return c
}

// learned is one of the two trainings.
type learned struct {
	Seconds    float64           `json:"seconds"`
	Losses     []trace.Loss      `json:"losses"`
	Evaluation *trace.Evaluation `json:"evaluation,omitempty"`
}

// accuracy is what bench accuracy found.
type accuracy struct {
	Pipeline       learned `json:"pipeline"`
	One            learned `json:"one_worker"`
	FirstDifferent int     `json:"first_different_step"` // -1: all bits are equal
}

func benchAccuracy(c *cobra.Command, j *job.Job, asJSON bool) error {
	if j.Stages == 0 {
		j.Stages = j.Workers
	}
	p, err := prepareToTrain(c, j)
	if err != nil {
		return err
	}
	var a accuracy
	if a.Pipeline, err = learn(c, p, p.plan); err != nil {
		return err
	}
	if a.One, err = learn(c, p, alone(p.model, p.plan.MicroBatch, p.plan.Batch())); err != nil {
		return err
	}
	a.FirstDifferent = firstDifferent(a.Pipeline.Losses, a.One.Losses)
	if asJSON {
		return writeJSON(c.OutOrStdout(), a)
	}
	out := c.OutOrStdout()
	for _, side := range []struct {
		name string
		learned
	}{{"pipeline", a.Pipeline}, {"one worker", a.One}} {
		first, last := side.Losses[0].Value, side.Losses[len(side.Losses)-1].Value
		fmt.Fprintf(out, "%-11s %.1f s, loss %.4f to %.4f", side.name, side.Seconds, first, last)
		if e := side.Evaluation; e != nil {
			fmt.Fprintf(out, ", test loss %.4f, accuracy %.2f %%", e.Loss, 100*e.Accuracy())
		}
		fmt.Fprintln(out)
	}
	if a.FirstDifferent >= 0 {
		return fmt.Errorf("the losses differ from step %d on", a.FirstDifferent)
	}
	fmt.Fprintf(out, "all %d losses are the same to the last bit\n", len(a.One.Losses))
	return nil
}

// learn trains a whole job under a plan.
func learn(c *cobra.Command, p *planned, pl *plan.Plan) (learned, error) {
	j := p.job
	set, err := openData(j, p.model)
	if err != nil {
		return learned{}, err
	}
	engine, err := openEngine()
	if err != nil {
		return learned{}, err
	}
	progress := newProgress(os.Stderr, j.Steps)
	r, err := run.Train(c.Context(), run.Config{
		Model: p.model, Plan: pl, Engine: engine, Data: run.Data{Train: data.Prefetch(set.Train, 4), Test: set.Test},
		Optimizer: j.Optimizer, Rate: j.Rate, Clip: j.Clip, Seed: j.Seed, Steps: j.Steps,
		Place: &place.Policy{}, ThreadsPerWorker: j.ThreadsPerWorker, Cores: predict.Cores(p.cluster, pl),
		EvalEvery: j.EvalEvery, EvalRows: j.EvalRows, Hooks: run.Hooks{OnStep: progress.step},
	})
	progress.end()
	if err != nil {
		return learned{}, err
	}
	if r.Stopped {
		return learned{}, context.Cause(c.Context())
	}
	t := &r.Timeline
	l := learned{Losses: t.Losses, Seconds: t.Steps[len(t.Steps)-1].EndS - t.Steps[0].StartS}
	if n := len(t.Evaluations); n > 0 {
		l.Evaluation = &t.Evaluations[n-1]
	}
	return l, nil
}

// firstDifferent is the first step whose losses are not the same bits, -1 where all are.
func firstDifferent(a, b []trace.Loss) int {
	for i := range min(len(a), len(b)) {
		if math.Float64bits(a[i].Value) != math.Float64bits(b[i].Value) || a[i].Step != b[i].Step {
			return a[i].Step
		}
	}
	if len(a) != len(b) {
		return min(len(a), len(b))
	}
	return -1
}
