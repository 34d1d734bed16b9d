package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace-ml/millrace/bench"
	"github.com/millrace-ml/millrace/data"
	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/report"
	"github.com/millrace-ml/millrace/run"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/trace"
	"github.com/millrace-ml/millrace/tune"
)

func benchPredictionCommand() *cobra.Command {
	var flags jobFlags
	splits, steps := 20, 15
	var asJSON, parts bool
	c := &cobra.Command{
		Use: "prediction", Short: "Compare predictions with measurements: the chosen plan and random splits",
		Long: `Predicts the chosen plan and random splits from a profile that another process measured,
then trains a few steps of each and compares step times, peak memory and live micro-batches.

The same fixed loop of matrix products is timed while the profile is taken and between the
steps. The table shows each step time as measured, and beside it what it would have been at the
profile's pace: scaled by how much slower or faster the loop ran around each step. The first
is what a user of the machine sees; the second leaves out the machine's own drift, but only what
such a loop can see of it, the clock and stolen time, not memory. Predictions are the
same in both. For a fresh profile, take one with "millrace profile" and name it with --profile.`,
		Example: "  millrace bench prediction --model gpt --data text.txt --workers 2 --batch 32\n  millrace bench prediction --model convnet --workers 4 --cores 2 --batch 64 --splits 40",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			j, err := flags.job()
			if err != nil {
				return err
			}
			if steps <= settleSteps {
				return badInput(fmt.Errorf("--steps %d; the first %d are left out, so give %d at least", steps, settleSteps, settleSteps+1))
			}
			return benchPrediction(c, j, splits, steps, asJSON, parts)
		},
	}
	flags.add(c, job.ModelOptions, job.PlanOptions, job.ElasticOptions, []job.Option{dataOption()})
	f := c.Flags()
	f.IntVar(&splits, "splits", splits, "random splits beside the chosen plan")
	f.IntVar(&steps, "steps", steps, "training steps of each")
	f.BoolVar(&asJSON, "json", false, "for machines")
	f.BoolVar(&parts, "parts", false, "show what each kind of instruction takes of each worker's step, predicted and measured")
	return c
}

// predictionRow is one plan, predicted and measured.
type predictionRow struct {
	Plan      string         `json:"plan"`
	Predicted plan.Predicted `json:"predicted"`
	Measured  report.Numbers `json:"measured"`
	OffStep   float64        `json:"off_step"`  // as a part of what was measured
	AtPaceS   float64        `json:"at_pace_s"` // the measured step at the machine's speed of when the profile was taken; 0: not known
	OffAtPace float64        `json:"off_at_pace"`
	Beats     []float64      `json:"beats_s"`    // around the steps, see bench.Pace
	OffMemory float64        `json:"off_memory"` // the worst worker's
	SameCount bool           `json:"same_count"` // of live micro-batches, on every worker
	Parts     []stepPart     `json:"parts"`
}

func benchPrediction(c *cobra.Command, j *job.Job, splits, steps int, asJSON, parts bool) error {
	p, err := prepare(c, j)
	if err != nil {
		return err
	}
	plans := []*plan.Plan{p.plan}
	rng := rand.New(rand.NewPCG(j.Seed, 7))
	for len(plans) <= splits {
		pl, err := randomPlan(rng, p)
		if err != nil {
			return err
		}
		plans = append(plans, pl)
	}
	engine, err := openEngine()
	if err != nil {
		return err
	}
	pace, err := bench.StartPace(engine, min(j.Workers, coresOf(j)), j.ThreadsPerWorker)
	if err != nil {
		return err
	}
	defer pace.Close()
	var rows []predictionRow
	for i, pl := range plans {
		q := *p
		q.plan = pl
		result, beats, err := pacedTraining(c.Context(), &q, steps, pace)
		if err != nil {
			return err
		}
		r := compareWith(pl, result)
		r.atPace(result, beats, p.profile.ReferenceS)
		if i == 0 {
			r.Plan += " (chosen)"
		}
		simulated, err := checkAndSimulate(&q)
		if err != nil {
			return err
		}
		r.Parts = stepParts(simulated, &result.Timeline, 1, settleSteps)
		rows = append(rows, r)
		fmt.Fprintf(c.ErrOrStderr(), "  %d of %d: %s: step %.1f %% off, at the profile's pace %.1f %%, memory %.1f %%\n",
			i+1, len(plans), r.Plan, 100*r.OffStep, 100*r.OffAtPace, 100*r.OffMemory)
		if parts {
			if err := writeParts(c.ErrOrStderr(), r.Parts); err != nil {
				return err
			}
		}
	}
	if asJSON {
		return writeJSON(c.OutOrStdout(), rows)
	}
	return writePredictions(c.OutOrStdout(), rows)
}

// randomPlan cuts the model anywhere, with any profiled micro-batch, schedule and recompute.
func randomPlan(rng *rand.Rand, p *planned) (*plan.Plan, error) {
	stages := min(p.job.Workers, len(p.model.Layers))
	cuts := rng.Perm(len(p.model.Layers) - 1)[:stages-1]
	for i := range cuts {
		cuts[i]++
	}
	slices.Sort(cuts)
	fix := tune.Overrides{
		Split: cuts, Schedule: []string{"1f1b", "afab", "pb"}[rng.IntN(3)], Recompute: []string{"none", "none", "all", "every:2"}[rng.IntN(4)],
		MicroBatch: p.job.MicroBatch, MicroBatches: p.job.MicroBatches,
	}
	if sizes := microBatches(p.job); fix.MicroBatch == 0 && fix.MicroBatches == 0 {
		fix.MicroBatch = sizes[rng.IntN(len(sizes))]
	}
	if stages == 1 {
		fix = tune.Overrides{Stages: 1, MicroBatch: fix.MicroBatch, MicroBatches: fix.MicroBatches}
	}
	found, err := tune.Search(context.Background(), tune.Request{Profile: p.profile, Cluster: p.cluster, Batch: p.job.Batch, Clip: p.job.Clip > 0, Fix: fix, Runnable: true})
	if err != nil {
		return nil, err
	}
	return found.Best, nil
}

// measuredTraining trains a few steps of a plan, and nothing else.
func measuredTraining(ctx context.Context, p *planned, steps int) (*run.Result, error) {
	return trainWith(ctx, p, steps, nil)
}

// pacedTraining is measuredTraining with a beat before each step and one after the last: run
// asks for each step's Program when all workers have drained, which is between two steps and
// in neither. A plan that never drains is trained in one piece, without beats.
func pacedTraining(ctx context.Context, p *planned, steps int, pace *bench.Pace) (*run.Result, []float64, error) {
	if p.plan.Weights != string(schedule.Sync) {
		result, err := measuredTraining(ctx, p, steps)
		return result, nil, err
	}
	var beats []float64
	result, err := trainWith(ctx, p, steps, func(trace.Timeline, int) (*schedule.Program, error) {
		b, err := pace.Beat()
		if err != nil {
			return nil, err
		}
		beats = append(beats, b)
		return run.ProgramOf(p.plan, p.model, p.job.Clip > 0, 1)
	})
	if err != nil {
		return nil, nil, err
	}
	last, err := pace.Beat()
	return result, append(beats, last), err
}

func trainWith(ctx context.Context, p *planned, steps int, next func(trace.Timeline, int) (*schedule.Program, error)) (*run.Result, error) {
	train, err := trainingData(p.job, p.model)
	if err != nil {
		return nil, err
	}
	engine, err := openEngine()
	if err != nil {
		return nil, err
	}
	return run.Train(ctx, run.Config{
		Model: p.model, Plan: p.plan, Engine: engine, Data: run.Data{Train: data.Prefetch(train, 4)},
		Optimizer: p.job.Optimizer, Rate: p.job.Rate, Clip: p.job.Clip, Seed: p.job.Seed, Steps: steps, KeepSteps: steps,
		ThreadsPerWorker: p.job.ThreadsPerWorker, Cores: tune.Cores(p.cluster, p.plan), Mesh: meshOf(p.job, p.cluster), Next: next,
	})
}

func compareWith(pl *plan.Plan, r *run.Result) predictionRow {
	n := report.NumbersOf(&r.Timeline, settleSteps, pl.Batch())
	row := predictionRow{Plan: shortPlan(pl), Predicted: *pl.Predicted, Measured: n, SameCount: slices.Equal(pl.Predicted.PeakActivations, n.PeakActivations)}
	row.OffStep = bench.Off(pl.Predicted.StepS, n.StepS)
	for w, bytes := range n.PeakBytes {
		row.OffMemory = max(row.OffMemory, bench.Off(float64(pl.Predicted.MemoryBytes[w]), float64(bytes)))
	}
	return row
}

// atPace fills in what the steps would have taken at the profile's pace.
func (r *predictionRow) atPace(result *run.Result, beats []float64, reference float64) {
	if len(beats) <= settleSteps || len(result.Timeline.Steps) <= settleSteps {
		return
	}
	var took []float64
	for _, s := range result.Timeline.Steps[settleSteps:] {
		took = append(took, s.EndS-s.StartS)
	}
	r.Beats = beats[settleSteps:]
	if r.AtPaceS = bench.AtPace(took, r.Beats, reference); r.AtPaceS > 0 {
		r.OffAtPace = bench.Off(r.Predicted.StepS, r.AtPaceS)
	}
}

// shortPlan is a plan in a table's cell.
func shortPlan(pl *plan.Plan) string {
	if len(pl.Stages) == 1 {
		return fmt.Sprintf("%d workers, %d x %d", len(pl.Stages[0].Devices), pl.MicroBatches, pl.MicroBatch)
	}
	var cuts []string
	again := ""
	for _, s := range pl.Stages[1:] {
		cuts = append(cuts, fmt.Sprint(s.FirstLayer))
	}
	if pl.Stages[0].Recompute.Again() {
		again = ", recompute " + pl.Stages[0].Recompute.String()
	}
	return fmt.Sprintf("%s, cut at %s, %d x %d%s", pl.Schedule, strings.Join(cuts, " "), pl.MicroBatches, pl.MicroBatch, again)
}

func writePredictions(w io.Writer, rows []predictionRow) error {
	t := report.Table{Head: []string{"plan", " predicted ms", " measured ms", " step off", " at the profile's pace ms", " off", " memory off", "live micro-batches"}}
	var steps, atPace, memory []float64
	for _, r := range rows {
		live := "exact"
		if !r.SameCount {
			live = fmt.Sprintf("%v, measured %v", r.Predicted.PeakActivations, r.Measured.PeakActivations)
		}
		t.Add(r.Plan, fmt.Sprintf("%.1f", 1e3*r.Predicted.StepS), fmt.Sprintf("%.1f", 1e3*r.Measured.StepS),
			fmt.Sprintf("%.1f %%", 100*r.OffStep), known(r.AtPaceS, "%.1f", 1e3*r.AtPaceS), known(r.AtPaceS, "%.1f %%", 100*r.OffAtPace),
			fmt.Sprintf("%.1f %%", 100*r.OffMemory), live)
		steps, memory = append(steps, r.OffStep), append(memory, r.OffMemory)
		if r.AtPaceS > 0 {
			atPace = append(atPace, r.OffAtPace)
		}
	}
	if err := t.Markdown(w); err != nil {
		return err
	}
	fmt.Fprintf(w, "\nWorst: step %.1f %%, memory %.1f %%; median: step %.1f %%, memory %.1f %%.\n",
		100*bench.Worst(steps), 100*bench.Worst(memory), 100*bench.Median(steps), 100*bench.Median(memory))
	var predicted, measured []float64
	for _, r := range rows {
		predicted, measured = append(predicted, r.Predicted.SamplesPerSecond), append(measured, r.Measured.SamplesPerSecond)
	}
	fmt.Fprintf(w, "Throughput, predicted against real over the plans (PipeDream Fig. 15): correlation %.3f.\n", bench.Correlation(predicted, measured))
	if len(atPace) == 0 {
		_, err := fmt.Fprintln(w, "The profile does not say how fast the machine was when it was taken, so steps cannot be brought to its pace.")
		return err
	}
	_, err := fmt.Fprintf(w, "At the profile's pace, of %d plans: worst %.1f %%, median %.1f %%. A fixed loop of matrix products was timed while the profile was taken and between the steps; steps are scaled by its drift.\n",
		len(atPace), 100*bench.Worst(atPace), 100*bench.Median(atPace))
	return err
}

// known is a figure, or a dash where it is not known, which is at 0.
func known(value float64, format string, figure float64) string {
	if value == 0 {
		return "-"
	}
	return fmt.Sprintf(format, figure)
}

// milliseconds lists times for people.
func milliseconds(seconds []float64) string {
	words := make([]string, len(seconds))
	for i, s := range seconds {
		words[i] = fmt.Sprintf("%.1f", 1e3*s)
	}
	return strings.Join(words, " and ") + " ms"
}
