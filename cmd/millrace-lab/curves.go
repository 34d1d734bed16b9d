package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/cmd/internal/prepare"
	"github.com/millrace-ml/millrace/data"
	"github.com/millrace-ml/millrace/internal/document"
	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/lab/curves"
	"github.com/millrace-ml/millrace/lab/race"
	"github.com/millrace-ml/millrace/lab/record"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/tune/avgpipe"
)

// curvesFlags are the flags of bench curves in addition to a job's flags.
type curvesFlags struct {
	parts   []string
	methods []string
	seeds   int
	epochs  float64
	evals   int
	rows    int
	at      int
	metric  string
	target  float64
	rounds  int
	steps   int
	output  string
}

// These are the parts of bench curves.
const (
	learnPart = "learn"
	timePart  = "time"
)

func benchCurvesCommand() *cobra.Command {
	var flags prepare.JobFlags
	own := curvesFlags{parts: []string{learnPart, timePart}, methods: curves.UsualMethods, seeds: 5, epochs: 2, evals: 20,
		at: 2, rounds: 9, steps: 8}
	c := &cobra.Command{
		Use: "curves", Short: "Time to a target of data parallelism, GPipe, DAPPLE, PipeDream, PipeDream-2BW and AvgPipe " +
			"held to the memory of each",
		Long: `Trains the model with every method, and measures how many epochs each needs to reach a target (the part
learn). Measures the step and the memory of each method (the part time). Multiplied, they give the time to the
target: a table, plots, and a page with both in the folder --out, like AvgPipe's Figures 11 to 14.

The part learn does not depend on the speed of the machine. What it has trained is kept in OUT/trainings.jsonl
and is not trained again. AFAB (GPipe), 1F1B (DAPPLE) and data parallelism learn as one worker does, the first
two to the last bit. They are trained once, as "sync". A method is a weight policy, or elastic:N for AvgPipe
with N pipelines. Settings follow, with colons: elastic:3:lr=1:alpha=0.5. Here lr is a factor of --lr; the
default is N for elastic:N. With momentum m, elastic:N:momentum=m^N:lr=N(1-m^N)/(1-m) remembers as many
samples as one pipeline does. With elastic:N:split each pipeline takes 1/N of a batch, at the rate and alpha
of train --lr-scale split.

Without --target, the target is what every training of sync reaches in two thirds of its epochs. If --only
leaves out a part, the results of an earlier run in --out are shown for it. --only= trains and measures
nothing.`,
		Example: "  millrace-lab bench curves --model convnet --data fashion-mnist --rows 8000 --batch 32 --out " +
			"runs/curves\n  millrace-lab bench curves --model gpt --data text.txt --only learn --methods sync,elastic:2 " +
			"--seeds 5 --out runs/gpt-curves",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			// The learning rate's schedule covers the steps of --epochs. Their number is known only after the data is
			// read. Until then the job has the largest number.
			flags.Given = append(flags.Given, func(j *job.Job) error { j.Train.Steps = math.MaxInt32; return nil })
			j, err := flags.Job()
			if err != nil {
				return err
			}
			return own.run(c, j)
		},
	}
	flags.Add(c, job.ModelOptions, job.PlanOptions, trainOptions("data", "lr", "lr-schedule", "lr-warmup", "seed",
		"eval-rows", "out"))
	f := c.Flags()
	f.StringSliceVar(&own.parts, "only", own.parts, "parts to do: learn, time; of others what lies in --out is shown")
	f.StringSliceVar(&own.methods, "methods", own.methods, "ways to learn: sync, stash, vertical, 2bw, latest, elastic:N")
	f.IntVar(&own.seeds, "seeds", own.seeds, "trainings of each method, with seeds from --seed on")
	f.Float64Var(&own.epochs, "epochs", own.epochs, "length of a training")
	f.IntVar(&own.evals, "evals", own.evals, "evaluations of an epoch")
	f.IntVar(&own.rows, "rows", own.rows, "training samples of an epoch, the first ones; 0 is all")
	f.IntVar(&own.at, "at-once", own.at, "trainings at a time")
	f.StringVar(&own.metric, "metric", "", "loss or accuracy (default: accuracy for images and tables, loss for texts)")
	f.Float64Var(&own.target, "target", 0, "value to reach (default: from the trainings of sync, see above)")
	f.IntVar(&own.rounds, "rounds", own.rounds, "times that each method's step is measured")
	f.IntVar(&own.steps, "visit-steps", own.steps, "training steps of a measurement")
	resultsFlag(c, &own.output)
	return c
}

// check refuses invalid values.
func (f *curvesFlags) check() error {
	for _, p := range f.parts {
		if p != learnPart && p != timePart {
			return fmt.Errorf("--only %s; there are %s and %s", p, learnPart, timePart)
		}
	}
	for name, n := range map[string]int{"seeds": f.seeds, "evals": f.evals, "at-once": f.at} {
		if n < 1 {
			return fmt.Errorf("--%s %d; it must be 1 at least", name, n)
		}
	}
	switch {
	case !(f.epochs > 0):
		return fmt.Errorf("--epochs %g; it must be above 0", f.epochs)
	case f.rows < 0:
		return fmt.Errorf("--rows %d; it is a number of samples, or 0 for all", f.rows)
	case f.rounds < 6:
		return fmt.Errorf("--rounds %d; an interval takes 6 at least", f.rounds)
	case f.steps < 1:
		return fmt.Errorf("--visit-steps %d; it must be 1 at least", f.steps)
	case f.metric != "" && f.metric != string(curves.Loss) && f.metric != string(curves.Accuracy):
		return fmt.Errorf("--metric %s; there are %s and %s", f.metric, curves.Loss, curves.Accuracy)
	case f.target < 0 || f.metric == string(curves.Accuracy) && f.target > 1:
		return fmt.Errorf("--target %g; a loss is 0 or more, an accuracy a part of 1", f.target)
	}
	return nil
}

func (f *curvesFlags) run(c *cobra.Command, j *job.Job) error {
	head := record.Begin("curves", "Time to a target by method")
	if err := f.check(); err != nil {
		return cli.BadInput(err)
	}
	methods, err := curves.ReadMethods(f.methods)
	if err != nil {
		return cli.BadInput(err)
	}
	if j.Output.Folder == "" {
		j.Output.Folder = filepath.Join("runs", "curves-"+prepare.Trimmed(j.Model.Name))
	}
	m, err := prepare.LoadModel(j)
	if err != nil {
		return err
	}
	if least := j.Machine.Workers + 2; slices.Contains(f.parts, timePart) && f.steps < least {
		return cli.BadInput(fmt.Errorf("--visit-steps %d; of a stream over %d workers whole steps are left with %d at least",
			f.steps, j.Machine.Workers, least))
	}
	l, err := f.learning(c, j, m, methods)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(j.Output.Folder, 0o755); err != nil {
		return cli.BadInput(fmt.Errorf("--out: %w", err))
	}
	file, err := curves.OpenTrainings(filepath.Join(j.Output.Folder, "trainings.jsonl"))
	if err != nil {
		return cli.BadInput(err)
	}
	defer file.Close()
	var trained map[string][]curves.Training
	if _, err := l.Tasks(); err != nil {
		return cli.BadInput(err)
	}
	if slices.Contains(f.parts, learnPart) {
		trained, err = l.Learn(c.Context(), file, f.at, c.ErrOrStderr(), l.train)
	} else {
		trained, err = l.Found(file)
	}
	if err != nil {
		return err
	}
	var measured *curves.Times
	if slices.Contains(f.parts, timePart) {
		measured, err = f.measureTimes(c, l)
	} else {
		measured, err = curves.ReadTimes(l.Setting)
		err = cli.BadInput(err)
	}
	if err != nil {
		return err
	}
	head.End()
	return f.show(c, l, trained, measured, head)
}

// learning returns the settings for the part that compares how methods learn.
func (f *curvesFlags) learning(c *cobra.Command, j *job.Job, m *model.Model,
	methods []curves.Method) (*learning, error) {
	micros := j.Plan.MicroBatches
	if micros == 0 {
		micros = j.Machine.Workers // AvgPipe's baselines have this many (section 7.1)
	}
	j.Plan.MicroBatches = 0 // AvgPipe chooses its own number of micro-batches
	if j.Plan.Batch%micros != 0 {
		return nil, cli.BadInput(fmt.Errorf("a batch of %d samples does not divide into %d micro-batches; give "+
			"--micro-batches, or another --batch", j.Plan.Batch, micros))
	}
	for _, own := range methods {
		if own.Split && j.Plan.Batch%own.Pipelines() != 0 {
			return nil, cli.BadInput(fmt.Errorf("--methods: %s: a batch of %d samples does not divide among %d pipelines; "+
				"give another --batch", own.Name, j.Plan.Batch, own.Pipelines()))
		}
	}
	set, err := prepare.OpenData(j, m)
	if err != nil {
		return nil, err
	}
	if set.Test == nil {
		return nil, cli.BadInput(fmt.Errorf("--train-part 1: all rows train, and curves are of what is evaluated"))
	}
	if f.rows > 0 {
		short := *set
		if short.Train, err = data.Head(set.Train, f.rows); err != nil {
			return nil, cli.BadInput(err)
		}
		set = &short
	}
	if f.metric == "" {
		f.metric = string(curves.Accuracy)
		if set.Tokens {
			f.metric = string(curves.Loss)
		}
	}
	engine, err := prepare.OpenEngine()
	if err != nil {
		return nil, err
	}
	base, err := stagesByOperations(c.Context(), j, m)
	if err != nil {
		return nil, err
	}
	return &learning{
		Setting: &curves.Setting{
			Job: j, Model: m, Base: base, Micros: micros, Methods: methods, Seeds: f.seeds, Epochs: f.epochs, Evals: f.evals,
			Rows: set.Train.Len(), Tests: set.Test.Len(),
		},
		engine: engine,
	}, nil
}

// show prints the tables and writes the page and the plots.
func (f *curvesFlags) show(c *cobra.Command, l *learning, trained map[string][]curves.Training,
	measured *curves.Times, head record.Head) error {
	s := &curves.Comparison{Setting: l.Setting, Metric: curves.Metric(f.metric), Target: f.target, Trained: trained,
		Times: measured}
	if err := s.Count(); err != nil {
		return cli.BadInput(err)
	}
	kept, err := s.Report(head)
	if err == nil {
		err = errors.Join(record.Write(f.output, kept), s.Fill())
	}
	if err != nil {
		return err
	}
	for _, p := range s.Files {
		if err := document.Write(filepath.Join(l.Job.Output.Folder, p.Name), p.Plot.SVG); err != nil {
			return err
		}
	}
	page := filepath.Join(l.Job.Output.Folder, "curves.html")
	if err := document.Write(page, s.Study.HTML); err != nil {
		return err
	}
	if err := s.Study.Markdown(c.OutOrStdout()); err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.OutOrStdout(), "\npage        %s\n", page)
	return err
}

// measureTimes plans every contender, measures them in rounds, and writes the times to a file.
func (f *curvesFlags) measureTimes(c *cobra.Command, l *learning) (*curves.Times, error) {
	j := *l.Job
	p, err := prepare.PrepareHardware(c, &j)
	if err != nil {
		return nil, err
	}
	fix, err := prepare.Overrides(&j, prepare.NamesOf(l.Model))
	if err != nil {
		return nil, err
	}
	w := &avgpipe.Workload{Profile: p.Profile, Cluster: p.Cluster, Batch: j.Plan.Batch, Clip: j.Train.Clip > 0,
		LimitBytes: j.Machine.MemoryBytes()}
	if w.Base, err = avgpipe.Partition(c.Context(), w, fix); err != nil {
		return nil, cli.BadInput(err)
	}
	t := &curves.Times{Version: curves.TimesVersion, Model: l.Model.ID(), Batch: j.Plan.Batch, Workers: j.Machine.Workers,
		Cores: prepare.CoresOf(&j), Wire: j.Machine.Wire, Stages: curves.FirstLayers(w.Base)}
	if err := t.Contend(c.Context(), w, l.Micros, l.Methods); err != nil {
		return nil, cli.BadInput(err)
	}
	if err := measureRounds(c, t, &j, f.rounds, f.steps); err != nil {
		return nil, err
	}
	machine, err := prepare.TrainingMachine(p)
	if err != nil {
		return nil, err
	}
	if err := t.Fill(c.Context(), machine, w.Simulated()); err != nil {
		return nil, err
	}
	return t, document.Write(curves.TimesPath(l.Job), func(out io.Writer) error { return cli.WriteJSON(out, t) })
}

// measureRounds measures every contender once per round. Each runs in its own process, which is paused while another
// one trains.
func measureRounds(c *cobra.Command, t *curves.Times, j *job.Job, rounds, steps int) error {
	own, remove, err := openExperiment(c, j, steps)
	if err != nil {
		return err
	}
	defer remove()
	var commands []race.Command
	for _, one := range t.Contested {
		command, err := own.command(one.Name, one.Plan, j.Machine.ThreadsPerWorker)
		if err != nil {
			return err
		}
		commands = append(commands, command)
	}
	return own.rounds(c.Context(), commands, rounds, nil, func(at int, r *race.Rival) {
		one := t.Contested[at]
		one.StepS = append(one.StepS, r.StepS/float64(one.Batches()))
		one.Busy, one.PeakBytes = append(one.Busy, r.Busy), r.PeakBytes
	})
}
