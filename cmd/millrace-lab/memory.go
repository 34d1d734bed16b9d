package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/cmd/internal/prepare"
	"github.com/millrace-ml/millrace/internal/document"
	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/lab/bench"
	"github.com/millrace-ml/millrace/lab/race"
	"github.com/millrace-ml/millrace/lab/record"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/report"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/tune/avgpipe"
	"github.com/millrace-ml/millrace/tune/predict"
)

// memoryFlags are the flags of bench memory in addition to a job's flags.
type memoryFlags struct {
	counts    []int
	schedules []string
	measuring
}

func benchMemoryCommand() *cobra.Command {
	var flags prepare.JobFlags
	own := memoryFlags{counts: []int{2, 4, 8, 16}, schedules: []string{"afab", "1f1b"}, measuring: measuring{steps: 4}}
	c := &cobra.Command{
		Use: "memory", Short: "What schedules hold as the micro-batches of a step grow in number and not in size: " +
			"predicted and measured",
		Long: `Trains a few steps with every number of micro-batches M and every schedule, over the same stages, and reads
the memory of each worker from its allocator. This is DAPPLE's Table 5: GPipe's memory grows with M, 1F1B's
does not. Weights, gradients and the optimizer's states are the same throughout, so only activations can grow.
--out also draws the results.`,
		Example: "  millrace-lab bench memory --model gpt --micro-batch 4 --counts 2,4,8,16 --out runs/memory",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			j, err := flags.Job()
			if err != nil {
				return err
			}
			return own.run(c, j)
		},
	}
	flags.Add(c, job.ModelOptions, job.PlanOptions, trainOptions("data", "seed", "out"))
	f := c.Flags()
	f.IntSliceVar(&own.counts, "counts", own.counts, "micro-batches of a step")
	f.StringSliceVar(&own.schedules, "schedules", own.schedules, "schedules to compare")
	own.add(c, "visit-steps")
	return c
}

func (f *memoryFlags) run(c *cobra.Command, j *job.Job) error {
	head := record.Begin("memory", "What schedules hold as micro-batches grow in number")
	slices.Sort(f.counts)
	f.counts = slices.Compact(f.counts)
	switch {
	case len(f.counts) < 2 || f.counts[0] < 1:
		return cli.BadInput(fmt.Errorf("--counts %v; give two numbers of micro-batches or more, 1 at least", f.counts))
	case len(f.schedules) == 0:
		return cli.BadInput(fmt.Errorf("--schedules names none; give afab,1f1b"))
	}
	if err := f.check(c, 1, "to hold what it takes"); err != nil {
		return err
	}
	if j.Plan.MicroBatch == 0 {
		j.Plan.MicroBatch = 4
	}
	j.Plan.MicroBatches, j.Plan.Batch = 0, j.Plan.MicroBatch*f.counts[0]
	p, err := prepare.PrepareHardware(c, j)
	if err != nil {
		return err
	}
	fix, err := prepare.Overrides(j, prepare.NamesOf(p.Model))
	if err != nil {
		return err
	}
	base, err := avgpipe.Partition(c.Context(), &avgpipe.Workload{Profile: p.Profile, Cluster: p.Cluster,
		Batch: j.Plan.Batch, Clip: j.Train.Clip > 0}, fix)
	if err != nil {
		return cli.BadInput(err)
	}
	own, remove, err := openExperiment(c, j, f.steps)
	if err != nil {
		return err
	}
	defer remove()
	var all []bench.Held
	for _, name := range f.schedules {
		for _, m := range f.counts {
			one, err := f.measure(c.Context(), own, p, base, name, m)
			if err != nil {
				return err
			}
			fmt.Fprintf(own.log, "  %s, %d micro-batches: %s\n", name, m, terminal.Bytes(slices.Max(one.Measured)))
			all = append(all, one)
		}
	}
	head.End()
	if err := record.Write(f.output, &bench.Memory{Head: head, Model: p.Model.Name, MicroBatch: j.Plan.MicroBatch,
		Held: all}); err != nil {
		return err
	}
	if f.asJSON {
		return cli.WriteJSON(c.OutOrStdout(), all)
	}
	return f.show(c.OutOrStdout(), p, all)
}

// measure predicts how much memory a schedule needs, and trains some steps with it.
func (f *memoryFlags) measure(ctx context.Context, own *experiment, p *prepare.Prepared, base *plan.Plan,
	name string, micros int) (one bench.Held, err error) {
	pl := *base
	pl.Stages = slices.Clone(base.Stages)
	pl.Schedule, pl.Weights, pl.MicroBatches, pl.MicroBatch = name, string(schedule.Sync), micros, p.Job.Plan.MicroBatch
	for i := range pl.Stages {
		pl.Stages[i].Warmup = 0 // 0 means the schedule's own warm-up
	}
	predicted, err := predict.Plan(p.Profile, p.Cluster, &pl, p.Job.Train.Clip > 0)
	if err != nil {
		return one, cli.BadInput(err)
	}
	j := *p.Job
	j.Plan.Batch = pl.Batch()
	own.job = &j
	command, err := own.command(fmt.Sprintf("%s M=%d", name, micros), &pl, j.Machine.ThreadsPerWorker)
	if err != nil {
		return one, err
	}
	one = bench.Held{Schedule: name, MicroBatches: micros, Predicted: predicted.MemoryBytes}
	err = race.Together(ctx, []race.Command{command}, func(rivals []*race.Rival) error {
		defer func() { one.Measured = rivals[0].PeakBytes }()
		return race.Warm(ctx, 2, rivals[0])
	})
	return one, err
}

// show prints the table, and draws it if a folder for drawings is given.
func (f *memoryFlags) show(w io.Writer, p *prepare.Prepared, all []bench.Held) error {
	t := report.Table{Head: []string{"schedule", " M", " predicted", " measured", " off", " more than with the fewest"}}
	lines := report.Lines{Title: fmt.Sprintf("%s: fullest worker, micro-batches of %d", p.Model.Name,
		p.Job.Plan.MicroBatch), XLabel: "micro-batches of a step", Unit: report.UnitBytes, Zero: true}
	for i, name := range f.schedules {
		first := all[i*len(f.counts)]
		predicted, measured := report.Series{Name: name + ", predicted", Like: -1, Dashed: true}, report.Series{Name: name +
			", measured", Like: 2 * i, Dots: true}
		for _, one := range all[i*len(f.counts) : (i+1)*len(f.counts)] {
			says, is := float64(slices.Max(one.Predicted)), float64(slices.Max(one.Measured))
			least := float64(slices.Max(first.Measured))
			t.Add(name, one.MicroBatches, terminal.Bytes(says), terminal.Bytes(is), report.Percent(race.Off(says, is)),
				terminal.Bytes(is-least))
			x := float64(one.MicroBatches)
			predicted.Points = append(predicted.Points, report.SeriesPoint{X: x, Y: says, Lo: says, Hi: says})
			measured.Points = append(measured.Points, report.SeriesPoint{X: x, Y: is, Lo: is, Hi: is})
		}
		lines.Series = append(lines.Series, predicted, measured)
	}
	if err := t.Markdown(w); err != nil {
		return err
	}
	if p.Job.Output.Folder == "" {
		return nil
	}
	if err := os.MkdirAll(p.Job.Output.Folder, 0o755); err != nil {
		return cli.BadInput(fmt.Errorf("--out: %w", err))
	}
	study := report.Study{
		Title: lines.Title, Subtitle: "DAPPLE's Table 5: GPipe's memory grows with the micro-batches of a step, 1F1B's " +
			"does not",
		Sections: []report.StudySection{{Title: "Peak memory of the fullest worker", Table: &t,
			Plots: []report.Plot{&lines}}},
		Facts: []report.Fact{{Name: "model", Value: fmt.Sprintf("%s, %d parameters", p.Model.Name,
			p.Model.ParameterElements())}, {Name: "optimizer", Value: p.Job.Train.Optimizer.Kind},
			{Name: "workers", Value: fmt.Sprint(p.Job.Machine.Workers)}},
		Links: []report.StudyLink{{File: "memory.svg", What: "the plot"}},
	}
	page := filepath.Join(p.Job.Output.Folder, "memory.html")
	if err := document.Write(filepath.Join(p.Job.Output.Folder, "memory.svg"), lines.SVG); err != nil {
		return err
	}
	if err := document.Write(page, study.HTML); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\npage        %s\n", page)
	return err
}
