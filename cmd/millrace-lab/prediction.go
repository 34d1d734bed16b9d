package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/cmd/internal/prepare"
	"github.com/millrace-ml/millrace/data"
	"github.com/millrace-ml/millrace/internal/progress"
	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/lab/bench"
	"github.com/millrace-ml/millrace/lab/record"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/run"
	"github.com/millrace-ml/millrace/run/place"
	"github.com/millrace-ml/millrace/stage/optim"
	"github.com/millrace-ml/millrace/tune"
	"github.com/millrace-ml/millrace/tune/predict"
)

func benchPredictionCommand() *cobra.Command {
	var flags prepare.JobFlags
	splits, steps, rounds := 20, 0, 6
	var asJSON, parts bool
	var output string
	c := &cobra.Command{
		Use: "prediction", Short: "Compare predictions with measurements: the chosen plan and random splits",
		Long: `Predicts the chosen plan and random splits from a profile that another process measured. Then it trains a few
steps of each, and compares step times, peak memory and live micro-batches.

All plans are trained in turn, in several rounds. Before each training the plan is predicted anew. For this,
another process measures a profile, in a few passes over the plan's own micro-batch size, because a machine
that others use is slow for a second or for minutes at a time. The results of a plan are those of the round
with the median of measured step over predicted step. From 6 rounds on the table has a 95 % interval of this
ratio, and says for how many plans the interval reaches within 5 % of the prediction. With --profile, that
profile is used for every prediction.`,
		Example: "  millrace-lab bench prediction --model gpt --data text.txt --workers 2 --batch 32\n" +
			"  millrace-lab bench prediction --model convnet --workers 4 --cores 2 --batch 64 --splits 40",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			j, err := flags.Job()
			if err != nil {
				return err
			}
			if c.Flags().Changed("steps") && steps <= bench.SettleSteps {
				return cli.BadInput(fmt.Errorf("--steps %d; the first %d are left out, so give %d at least", steps,
					bench.SettleSteps, bench.SettleSteps+1))
			}
			if splits < 0 {
				return cli.BadInput(fmt.Errorf("--splits %d; give 1 or more, or 0 for the chosen plan alone", splits))
			}
			if rounds < 1 {
				return cli.BadInput(fmt.Errorf("--rounds %d; each plan is trained once at least", rounds))
			}
			return benchPrediction(c, j, trials{splits, steps, rounds, output}, asJSON, parts)
		},
	}
	flags.Add(c, job.ModelOptions, job.PlanOptions, job.ElasticOptions, []job.Option{prepare.DataOption()})
	f := c.Flags()
	f.IntVar(&splits, "splits", splits, "random splits beside the chosen plan")
	f.IntVar(&steps, "steps", steps, bench.UntilDoc)
	f.IntVar(&rounds, "rounds", rounds, "times that each plan is trained")
	f.BoolVar(&asJSON, "json", false, "print the result as JSON")
	resultsFlag(c, &output)
	f.BoolVar(&parts, "parts", false, "show what each kind of instruction takes, predicted and measured")
	return c
}

// foresightPasses is the number of passes of a profile that is measured just before a training. It is small, so that
// the machine's speed does not change during the profile.
const foresightPasses = 3

// leastCounted is the least number of steps that are measured in a training, however long a step takes.
const leastCounted = 6

// trials says how much is trained. If `steps` is 0, the number of steps depends on the predicted step time:
// bench.SettleSteps steps that are not counted, and then bench.VisitSteps steps.
type trials struct {
	splits, steps, rounds int
	output                string // file for the results
}

func benchPrediction(c *cobra.Command, j *job.Job, t trials, asJSON, parts bool) error {
	head := record.Begin("prediction", "Predictions beside what was then measured")
	p, err := prepare.PrepareToTrain(c, j)
	if err != nil {
		return err
	}
	plans := []*plan.Plan{p.Plan}
	rng := rand.New(rand.NewPCG(j.Data.Seed, 7))
	for len(plans) <= t.splits {
		pl, err := randomPlan(c.Context(), rng, p)
		if err != nil {
			return err
		}
		plans = append(plans, pl)
	}
	dir, remove, err := scratch()
	if err != nil {
		return err
	}
	defer remove()
	ahead := foresight{p: p, dir: dir}
	trained := make([][]bench.PredictionRow, len(plans))
	meter := cli.StartMeter("bench")
	defer meter.Stop()
	one := func(round, i int) progress.Piece {
		return progress.Piece{What: fmt.Sprintf("round %d of %d, plan %d of %d", round+1, t.rounds, i+1, len(plans)),
			Kind: fmt.Sprint("plan ", i), Group: "plans", Cost: 1}
	}
	var left []progress.Piece
	for round := range t.rounds {
		for i := range plans {
			left = append(left, one(round, i))
		}
	}
	meter.Work().Plan(time.Now(), "plans", left...)
	for round := range t.rounds {
		for i, pl := range plans {
			meter.Work().Begin(time.Now(), one(round, i))
			predicted, err := ahead.again(c.Context(), plans[i:i+1], foresightPasses)
			if err != nil {
				return err
			}
			q, now := *p, *pl
			q.Plan, now.Predicted = &now, &predicted[0]
			steps := t.steps
			if steps == 0 {
				steps = bench.SettleSteps + bench.VisitSteps(now.Predicted.StepS, leastCounted)
			}
			r, err := predictedAndTrained(c.Context(), &q, steps)
			if err != nil {
				return err
			}
			if i == 0 {
				r.Plan += " (chosen)"
			}
			trained[i] = append(trained[i], r)
			fmt.Fprintf(c.ErrOrStderr(), "  round %d of %d, plan %d of %d: %s: step %.1f %% off, memory %.1f %%\n",
				round+1, t.rounds, i+1, len(plans), r.Plan, 100*r.OffStep, 100*r.OffMemory)
		}
	}
	meter.Stop()
	var rows []bench.PredictionRow
	for _, all := range trained {
		rows = append(rows, bench.MiddleTraining(all))
	}
	if parts {
		if err := writeParts(c.ErrOrStderr(), rows); err != nil {
			return err
		}
	}
	if err := keepPredictions(t.output, head, p, rows); err != nil {
		return err
	}
	if asJSON {
		return cli.WriteJSON(c.OutOrStdout(), rows)
	}
	return bench.WritePredictions(c.OutOrStdout(), rows)
}

// writeParts prints for each plan how long each kind of instruction takes.
func writeParts(w io.Writer, rows []bench.PredictionRow) error {
	for _, r := range rows {
		fmt.Fprintln(w, r.Plan)
		if err := bench.WriteParts(w, r.Parts); err != nil {
			return err
		}
	}
	return nil
}

// keepPredictions writes the file of results.
func keepPredictions(path string, head record.Head, p *prepare.Prepared, rows []bench.PredictionRow) error {
	head.End()
	return record.Write(path, &bench.Predictions{Head: head, Model: p.Model.Name, Workers: p.Job.Machine.Workers,
		Rows: rows, Summary: bench.Summarized(rows)})
}

// predictedAndTrained trains a plan once and compares the result with its prediction.
func predictedAndTrained(ctx context.Context, p *prepare.Prepared, steps int) (bench.PredictionRow, error) {
	result, err := measuredTraining(ctx, p, steps)
	if err != nil {
		return bench.PredictionRow{}, err
	}
	simulated, err := prepare.CheckAndSimulate(p)
	if err != nil {
		return bench.PredictionRow{}, err
	}
	r := bench.CompareWith(p.Plan, result)
	r.Parts = bench.StepParts(simulated, &result.Timeline, 1, bench.SettleSteps)
	return r, nil
}

// randomPlan makes a plan with a random split.
func randomPlan(ctx context.Context, rng *rand.Rand, p *prepare.Prepared) (*plan.Plan, error) {
	fix := tune.Overrides{MicroBatch: p.Job.Plan.MicroBatch, MicroBatches: p.Job.Plan.MicroBatches}
	var sizes []int
	if fix.MicroBatch == 0 && fix.MicroBatches == 0 {
		sizes = prepare.MicroBatches(p.Job)
	}
	split := bench.RandomSplit(rng, len(p.Model.Layers), p.Job.Machine.Workers, sizes)
	if sizes != nil {
		fix.MicroBatch = split.MicroBatch
	}
	if fix.Split, fix.Schedule, fix.Recompute = split.Cuts, split.Schedule, split.Recompute; len(split.Cuts) == 0 {
		fix.Stages = 1
	}
	found, err := tune.Search(ctx, tune.Request{Profile: p.Profile, Cluster: p.Cluster, Batch: p.Job.Plan.Batch,
		Clip: p.Job.Train.Clip > 0, Fix: fix, Runnable: true})
	if err != nil {
		return nil, err
	}
	return found.Best, nil
}

// measuredTraining trains a few steps of a plan, without evaluations or files.
func measuredTraining(ctx context.Context, p *prepare.Prepared, steps int) (*run.Result, error) {
	train, err := prepare.TrainingData(p.Job, p.Model)
	if err != nil {
		return nil, err
	}
	engine, err := prepare.OpenEngine()
	if err != nil {
		return nil, err
	}
	return run.Train(ctx, run.Config{
		Model: p.Model, Plan: p.Plan, Engine: engine, Data: run.Data{Train: data.Prefetch(train, 4)},
		Train: run.Training{Optimizer: p.Job.Train.Optimizer, Rate: optim.Rate{Kind: optim.Constant, Base: timedRate},
			Clip: p.Job.Train.Clip, Seed: p.Job.Data.Seed, Steps: steps},
		Keep: run.Keeping{Steps: steps},
		Machine: run.Machine{Place: &place.Policy{}, ThreadsPerWorker: p.Job.Machine.ThreadsPerWorker,
			Cores: predict.Cores(p.Cluster, p.Plan, 0)},
		Wire: run.Wire{Carriers: prepare.CarriersOf(p.Job, p.Cluster)},
	})
}

// foresight predicts plans again just before they are trained, from a profile that another process has just measured.
// The first profile may be minutes old, and the speed of a shared machine may have changed. If the job names a profile
// or a cluster, nothing is measured and the job's costs do not change.
type foresight struct {
	p   *prepare.Prepared
	dir string // folder for profiles
	n   int    // number of profiles so far
}

// again predicts all plans. It first measures their sizes, unless the job names a profile or a cluster. `passes` is the
// number of passes; 0 for a profile's default.
func (f *foresight) again(ctx context.Context, plans []*plan.Plan, passes int) ([]plan.Predicted, error) {
	if f.p.Job.Plan.Profile == "" && f.p.Job.Machine.Cluster == "" {
		var sizes []int
		for _, pl := range plans {
			sizes = append(sizes, pl.MicroBatch)
		}
		slices.Sort(sizes)
		path := filepath.Join(f.dir, fmt.Sprintf("profile%d.json", f.n))
		f.n++
		if err := prepare.ProfileInChild(ctx, f.p.Job, path, slices.Compact(sizes), passes); err != nil {
			return nil, err
		}
		again, err := profile.Read(path)
		if err != nil {
			return nil, err
		}
		if again.PaceSpread == 0 && f.p.Profile != nil { // a short profile has too few visits for a PaceSpread
			again.PaceSpread = f.p.Profile.PaceSpread
		}
		f.p.Profile = again
		if err := f.p.Local(); err != nil {
			return nil, err
		}
	}
	out := make([]plan.Predicted, len(plans))
	for i, pl := range plans {
		var err error
		if out[i], err = predict.Plan(f.p.Profile, f.p.Cluster, pl, f.p.Job.Train.Clip > 0); err != nil {
			return nil, err
		}
	}
	return out, nil
}
