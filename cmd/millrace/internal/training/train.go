package training

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/cmd/internal/prepare"
	"github.com/millrace-ml/millrace/cmd/millrace/internal/planning"
	"github.com/millrace-ml/millrace/data"
	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/run"
	"github.com/millrace-ml/millrace/run/place"
	"github.com/millrace-ml/millrace/trace"
	"github.com/millrace-ml/millrace/tune/predict"
)

func TrainCommand() *cobra.Command {
	var flags prepare.JobFlags
	var asJSON, dry bool
	c := &cobra.Command{
		Use: "train [JOB.yaml]", Short: "Profile, plan, check, simulate, train and report", Long: trainHelp,
		Example: `  millrace train --model gpt --data FILE.txt --workers 2 --batch 32 --steps 200 --out runs/gpt
  millrace train --model convnet --data fashion-mnist --batch 128 --steps 500 --eval-every 100
  millrace train job.yaml --resume runs/gpt/checkpoints`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := alone(os.Environ()); err != nil {
				return cli.BadInput(err)
			}
			if len(args) == 1 {
				flags.File = args[0]
			}
			var from *resumption
			var folder *os.File
			defer func() { folder.Close() }()
			flags.Given = append(flags.Given, func(j *job.Job) (err error) {
				if nameOut(j); !dry { // before its checkpoints are looked at, which a run there adds to
					folder, err = holdFolder(j.Out)
				}
				if err == nil {
					from, err = takeUp(j)
				}
				return err
			})
			j, err := flags.Job()
			if err != nil {
				return remedied(err)
			}
			return train(c, j, from, folder, asJSON, dry)
		},
	}
	flags.Add(c, job.ModelOptions, job.PlanOptions, job.ElasticOptions, job.TrainOptions)
	c.Flags().BoolVar(&asJSON, "json", false, "print the result for machines")
	c.Flags().BoolVar(&dry, "dry-run", false, "stop before the first step")
	return c
}

// train does a job. folder is that of the job, where it was there and is held.
func train(c *cobra.Command, j *job.Job, from *resumption, folder *os.File, asJSON, dry bool) error {
	if j.Cluster != "" {
		return cli.BadInput(fmt.Errorf("cluster %s: training runs on this machine; plan for others with: millrace "+
			"plan --cluster", j.Cluster))
	}
	m, err := prepare.LoadModel(j)
	if err != nil {
		return err
	}
	if err := from.fits(m); err != nil {
		return cli.BadInput(err)
	}
	set, err := prepare.OpenData(j, m)
	if err != nil {
		return err
	}
	engine, err := prepare.OpenEngine()
	if err != nil {
		return err
	}
	if !dry {
		if err := checkOut(j, from); err != nil {
			return err
		}
	}
	metrics, err := listenForMetrics(j)
	if err != nil {
		return err
	}
	if metrics != nil {
		defer metrics.Close()
	}
	if !asJSON {
		fmt.Fprint(c.OutOrStdout(), from.explain(j))
	}
	p, err := prepare.Prepare(c, j, true)
	if err != nil {
		return err
	}
	if text := from.planned(j, p.Plan); !asJSON {
		fmt.Fprint(c.OutOrStdout(), text)
	}
	config := run.Config{
		Model: m, Plan: p.Plan, Engine: engine, Data: run.Data{Train: data.Prefetch(set.Train, 4), Test: set.Test},
		Optimizer: j.Optimizer, RateScale: j.RateScale, Clip: j.Clip, Seed: j.Seed, Steps: j.Steps,
		PerSlice: j.BatchNorm == job.PerSlice, AnyOrder: j.AnyOrder, Carriers: prepare.CarriersOf(j, p.Cluster),
		ThreadsPerWorker: j.ThreadsPerWorker, Cores: predict.Cores(p.Cluster, p.Plan),
		Place:     &place.Policy{Bind: place.Binding(j.Bind)},
		EvalEvery: j.EvalEvery, EvalRows: j.EvalRows, Resume: from.at(), AverageResumed: j.ResumeAveraged,
		Checkpoint: run.Checkpointing{Dir: checkpoints(j), Every: j.SaveEvery, Keep: j.Keep},
	}
	config.Rate, config.RateFactor = from.rate(j, p.Plan.Together())
	if j.Advance == job.AutoAdvance {
		config.Next = p.Advancing(c.ErrOrStderr()).Next
		if _, err := p.Advancing(io.Discard).Next(trace.Timeline{}, 1); err != nil { // before anything is written
			return cli.BadInput(fmt.Errorf("--advance %s: %w", j.Advance, err))
		}
	}
	if err := config.Check(); err != nil {
		return cli.BadInput(err)
	}
	if !asJSON {
		planning.Explain(c.OutOrStdout(), p)
	}
	simulated, err := prepare.CheckAndSimulate(p)
	if err != nil {
		return err
	}
	if dry {
		return nil
	}
	if err := cli.FinishesItsStep(c); err != nil {
		return err
	}
	if folder == nil {
		if folder, err = TakeFolder(j.Out); err != nil {
			return faultOf(err, "")
		}
		defer folder.Close() // behind the report
	}
	cli.ReportsTo(j.Out)
	w, err := newRun(p, simulated, from, metrics)
	if err != nil {
		return err
	}
	config.Hooks, config.Begin = w.hooks(), w.begin
	result, err := run.Train(c.Context(), config)
	if !w.begun {
		return faultOf(w.unreplaced(errors.Join(err, w.close())), from.at())
	}
	in, writing := w.finish(result)
	if !isFull(err) { // of a full disk every file says so
		err = errors.Join(err, writing)
	}
	if err != nil {
		return faultOf(w.unreplaced(err), cmp.Or(result.Checkpoint, from.at()))
	}
	if asJSON {
		err = cli.WriteJSON(c.OutOrStdout(), w.outcome(in.Measured, result))
	} else {
		err = w.print(c.OutOrStdout(), in, result)
	}
	if result.Stopped {
		return context.Cause(c.Context())
	}
	return err
}
