package main

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"

	"github.com/spf13/cobra"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/cmd/internal/prepare"
	"github.com/millrace-ml/millrace/data"
	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/lab/bench"
	"github.com/millrace-ml/millrace/lab/race"
	"github.com/millrace-ml/millrace/lab/record"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/schedule"
)

// These are target speeds of the imported gpt, as fractions of a rival's speed.
const (
	overOneF1B = 1.1
	overOwn    = 0.9
)

const (
	recordedBatches = 32 // after these batches, a rival starts again from the first batch
	agreeingSteps   = 4
	// lossesWithin is the allowed relative difference of a loss. The two programs sum in different orders, and the
	// rounding of one step affects the weights of the next.
	lossesWithin = 1e-3
)

// importedOptions are the options of bench imported.
type importedOptions struct {
	measuring
	gpt      race.Workload
	resnet   race.ResNet
	only     []string
	exporter string
}

func benchImportedCommand() *cobra.Command {
	o := importedOptions{measuring: measuring{pairs: 15, visits: 3, steps: 2}, gpt: race.SixMillion(),
		resnet:   race.ResNet{Classes: 10, Size: 32, Batch: 32, LearningRate: 0.01, Seed: 1},
		exporter: "python/millrace_export.py"}
	c := &cobra.Command{
		Use: "imported", Short: "Race imported PyTorch modules: 1F1B by hand, and the built-in gpt",
		Long: `Exports the modules that the rivals train, plans them for two workers, and trains millrace and a rival in
alternating pairs: a gpt on a text, and torchvision's resnet18 on images of noise (32 x 32). The rival is 1F1B
written by hand over Gloo, with its fastest settings for the module. Both begin with the same values, and
train on the same rows in the same order with the same optimizer. Their first losses must agree before
anything is timed. The imported gpt also races the built-in gpt of the same shape.

The verb ends with 1 if the median for gpt is below 1.1 times the rival's speed or 0.9 times the built-in
gpt's, or if the whole interval for resnet18 is below 1.`,
		Example: "  millrace-lab bench imported --data text.txt -o lab/results/imported.json\n" +
			"  millrace-lab bench imported --data text.txt --only resnet18 --pairs 6",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := o.check(c, 1, "to be timed"); err != nil {
				return err
			}
			return benchImported(c, o)
		},
	}
	f := c.Flags()
	f.StringVar(&o.gpt.Data, "data", "", "the text that gpt trains on")
	f.StringSliceVar(&o.only, "only", nil, "these modules alone: gpt, resnet18")
	f.StringVar(&o.exporter, "exporter", o.exporter, "the exporter")
	o.add(c, "steps")
	return c
}

func (o *importedOptions) takes(name string) bool {
	return len(o.only) == 0 || slices.Contains(o.only, name)
}

func benchImported(c *cobra.Command, o importedOptions) error {
	for _, name := range o.only {
		if name != "gpt" && name != "resnet18" {
			return cli.BadInput(fmt.Errorf("--only %s: the modules are gpt and resnet18", name))
		}
	}
	if o.takes("gpt") && o.gpt.Data == "" {
		return cli.BadInput(fmt.Errorf("no text is named; give --data FILE.txt, or --only resnet18"))
	}
	if _, err := os.Stat(o.exporter); err != nil {
		return cli.BadInput(fmt.Errorf("--exporter: %w; run it in millrace's repository", err))
	}
	python, version, err := race.Python(c.Context())
	if err != nil {
		return fmt.Errorf("%w, or run: make setup-pytorch", err)
	}
	dir, remove, err := scratch()
	if err != nil {
		return err
	}
	defer remove()
	if err := race.WriteScripts(dir); err != nil {
		return err
	}
	r := bench.ImportedReport{Head: record.Begin("imported", "Imported modules on 2 workers"), Torch: version}
	rows := filepath.Join(dir, "rows")
	for _, m := range []struct {
		race.Module
		data  string
		batch int
		seed  uint64
		visit int // steps of a visit
	}{
		{o.gpt.Module(rows), o.gpt.Data, o.gpt.Batch, o.gpt.Seed, o.steps},
		{o.resnet.Module(rows), "", o.resnet.Batch, o.resnet.Seed, 4 * o.steps}, // more steps, since they are short
	} {
		if !o.takes(m.Name) {
			continue
		}
		j := job.Default()
		j.Model.Name, j.Data.Source, j.Plan.Batch, j.Data.Seed = filepath.Join(dir, m.Name+".mr"), m.data, m.batch, m.seed
		j.Machine.Workers = 2
		j.Train.Optimizer.Kind = "sgd"
		e := &importedModule{c: c, o: &o, Module: m.Module, python: python, scripts: dir, rows: rows, job: &j,
			visit: m.visit}
		if err := e.Export(c.Context(), python, o.exporter, dir, j.Model.Name); err != nil {
			return err
		}
		if err := j.Complete(); err != nil {
			return cli.BadInput(err)
		}
		if err := prepare.CheckTrainingData(&j); err != nil {
			return err
		}
		found, err := e.race()
		if err != nil {
			return err
		}
		r.Modules = append(r.Modules, *found)
	}
	r.End()
	return o.tell(c, &r)
}

func (o *importedOptions) tell(c *cobra.Command, r *bench.ImportedReport) error {
	if err := record.Write(o.output, r); err != nil {
		return err
	}
	tell := func() error { return r.Write(c.OutOrStdout()) }
	if o.asJSON {
		tell = func() error { return cli.WriteJSON(c.OutOrStdout(), r) }
	}
	if err := tell(); err != nil {
		return err
	}
	return r.Missed()
}

// importedModule runs the benchmark for one module.
type importedModule struct {
	race.Module
	c                     *cobra.Command
	o                     *importedOptions
	python, scripts, rows string
	job                   *job.Job // of the exported module
	visit                 int      // steps of a visit
}

// planned is a job's training on two workers, with the plan that millrace chooses and with its fastest pipeline.
type planned struct {
	experiment       *experiment
	chosen, pipeline *prepare.Prepared
	choice, cut      race.Command
}

// plan plans a job and makes the commands of its plans.
func (e *importedModule) plan(j *job.Job, called string) (*planned, func(), error) {
	chosen, err := prepare.Prepare(e.c, j, true)
	if err != nil {
		return nil, nil, err
	}
	piped := *j
	piped.Plan.Stages = 2
	pipeline, err := prepare.Prepare(e.c, &piped, true)
	if err != nil {
		return nil, nil, err
	}
	x, remove, err := openExperiment(e.c, j, e.visit)
	if err != nil {
		return nil, nil, err
	}
	x.rate = e.LearningRate
	p := &planned{experiment: x, chosen: chosen, pipeline: pipeline}
	for _, one := range []struct {
		name string
		plan *plan.Plan
		at   *race.Command
	}{{called + ", its choice", chosen.Plan, &p.choice}, {called + ", pipeline", pipeline.Plan, &p.cut}} {
		if *one.at, err = x.command(one.name, one.plan, j.Machine.ThreadsPerWorker); err != nil {
			remove()
			return nil, nil, err
		}
	}
	return p, remove, nil
}

// commands returns the commands to race. If millrace chose the pipeline anyway, there is only one.
func (p *planned) commands() []race.Command {
	chosen, pipeline := *p.chosen.Plan, *p.pipeline.Plan
	if chosen.Why, chosen.Rivals, pipeline.Why, pipeline.Rivals = nil, nil, nil, nil; reflect.DeepEqual(chosen, pipeline) {
		return []race.Command{p.choice}
	}
	return []race.Command{p.choice, p.cut}
}

// race runs the whole benchmark of one module.
func (e *importedModule) race() (*bench.ImportedModule, error) {
	ctx := e.c.Context()
	p, remove, err := e.plan(e.job, "imported "+e.Name)
	if err != nil {
		return nil, err
	}
	defer remove()
	if err := e.record(p.chosen.Model); err != nil {
		return nil, err
	}
	x := p.experiment
	found := &bench.ImportedModule{Name: e.Name, Unit: unitOf(p.chosen.Model), Choice: reason(p.chosen.Plan),
		Pipeline: reason(p.pipeline.Plan)}
	if found.Agreement, err = e.agree(x, p.cut, p.pipeline.Plan); err != nil {
		return nil, err
	}
	if len(p.commands()) > 1 {
		chosen, err := e.agree(x, p.choice, p.chosen.Plan)
		if err != nil {
			return nil, err
		}
		found.Chosen = &chosen
	}
	rivals := e.Rivals(e.python, e.scripts, e.visit, p.chosen.Plan.MicroBatch, p.pipeline.Plan.MicroBatch)
	fmt.Fprintf(x.log, "%s: 1F1B by hand: %d settings\n", e.Name, len(rivals))
	if found.Sweep, err = x.sweep(ctx, rivals, e.o.visits, found.Unit); err != nil {
		return nil, err
	}
	least := 0.0
	if e.Name == "gpt" {
		least = overOneF1B
	}
	against := func(a, b race.Command, least float64) error {
		r, err := x.duel(ctx, a, b, e.o.pairs, nil)
		found.Speeds = append(found.Speeds, bench.Speed{Result: r, Least: least})
		return err
	}
	for _, a := range p.commands() {
		if err := against(a, found.Sweep[0].Command, least); err != nil {
			return nil, err
		}
	}
	if e.Name != "gpt" {
		return found, nil
	}
	j, err := workloadJob(e.o.gpt)
	if err != nil {
		return nil, err
	}
	j.Machine.Workers = 2
	own, remove, err := e.plan(j, "built-in gpt")
	if err != nil {
		return nil, err
	}
	defer remove()
	found.Own = reason(own.chosen.Plan)
	if a, b := p.chosen.Model.ParameterElements(), own.chosen.Model.ParameterElements(); a != b {
		return nil, fmt.Errorf("bench: the imported gpt has %d parameters, the built-in one %d: they are not alike", a, b)
	}
	if err := against(p.choice, own.choice, overOwn); err != nil {
		return nil, err
	}
	if len(p.commands())+len(own.commands()) == 2 {
		return found, nil
	}
	return found, against(p.cut, own.cut, overOwn)
}

// agree checks that the losses of a plan and of the rival differ by at most lossesWithin, for agreeingSteps steps.
func (e *importedModule) agree(x *experiment, c race.Command, pl *plan.Plan) (race.Agreement, error) {
	a, err := race.Agree(e.c.Context(), c, e.Rival(e.python, e.scripts, rowsTogether(pl), 1), agreeingSteps,
		lossesWithin)
	if err == nil {
		fmt.Fprintf(x.log, "%s: losses of %d steps lie within %.2g of %s's\n", c.Name, agreeingSteps, a.Within, a.B)
	}
	return a, err
}

// rowsTogether returns the number of rows over which a plan computes batch statistics. Usually these are all rows of a
// micro-batch. If the replicas of a stage split a micro-batch into equal parts, they are the rows of one part.
func rowsTogether(pl *plan.Plan) int {
	rows := pl.MicroBatch
	if pl.Replication == string(schedule.Split) && rows%len(pl.Stages[0].Devices) == 0 {
		rows /= len(pl.Stages[0].Devices)
	}
	return rows
}

// record writes the first batches of millrace's training to a file for the rival.
func (e *importedModule) record(m *model.Model) error {
	train, err := prepare.TrainingData(e.job, m)
	if err != nil {
		return err
	}
	f, err := os.Create(e.rows)
	if err != nil {
		return fmt.Errorf("bench: recorded batches: %w", err)
	}
	defer f.Close()
	for step := range recordedBatches {
		b, err := train.Batch(step, e.job.Plan.Batch, 0, e.job.Plan.Batch)
		if err != nil {
			return err
		}
		for _, in := range m.Inputs { // the last input is the target
			if err := race.Record(f, numbers(b[in.Name])); err != nil {
				return err
			}
		}
	}
	return f.Close()
}

// numbers returns the values of an array, floats or whole numbers.
func numbers(a data.Array) any {
	if a.Floats != nil {
		return a.Floats
	}
	return a.Ints
}
