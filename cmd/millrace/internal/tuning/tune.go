package tuning

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/cmd/internal/prepare"
	"github.com/millrace-ml/millrace/internal/document"
	"github.com/millrace-ml/millrace/internal/progress"
	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/tune/avgpipe"
)

// tuneFlags are the flags of tune in addition to a job's flags.
type tuneFlags struct {
	pipelines                     int
	profileAt                     string
	all, rivals, simulate, asJSON bool
	grid, baselines               bool
	output, page                  string
	train, rounds, settings       int

	profilingS float64 // time to get the layers' profile, in seconds
	meter      *cli.Meter
}

func TuneCommand() *cobra.Command {
	var flags prepare.JobFlags
	own := tuneFlags{pipelines: 4, train: 10000, rounds: 1, settings: 1}
	c := &cobra.Command{
		Use: "tune", Short: "Choose AvgPipe's micro-batches and pipelines, or with --all everything, from one profile",
		Long: `tune chooses how many micro-batches (M) a batch has and how many pipelines (N) share the devices, as AvgPipe does.
From one short profile it predicts every pair of M and N, by the paper's equations and by the simulator; the
simulator decides. --all also chooses schedule, depths, recompute and stages from that profile. With --rivals it
then tries the best ones in turn.`,
		Example: `  millrace tune --model gpt --data text.txt --batch 32 --most-pipelines 2 --rivals
  millrace tune --model gnmt --cluster avgpipe --batch 128 --most-pipelines 8 --memory-limit 16GiB --rivals
  millrace tune --model bert --cluster avgpipe --batch 32 --all --json
  millrace tune --model gpt --batch 32 -o plan.json && millrace train --plan plan.json --data text.txt`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			flags.Given = append(flags.Given, own.check)
			j, err := flags.Job()
			if err != nil {
				return err
			}
			return own.run(c, j)
		},
	}
	flags.Add(c, job.ModelOptions, job.PlanOptions, job.ClusterOptions, []job.Option{prepare.DataOption()})
	cli.More(c, `The profile is a few passes over every layer, and twenty batches at one setting (one pair of M and N). The layers'
times are scaled to agree with these batches. Unless --profile-at gives it, the setting is one pipeline and the second
largest M, or the largest M if the second largest does not fit or fills the devices. --settings 4 divides about
seventeen batches among four settings: a middle M, the fewest micro-batches, and the most with one pipeline and with
two. If several settings are within 5 % of the fastest, tune takes the one that loses least when memory is slow for a
while. With --simulate, or for a described --cluster, the simulator also takes the place of the machine, and nothing is
scaled.

--baselines also simulates data parallelism, GPipe, DAPPLE, PipeDream and PipeDream-2BW, and AvgPipe within the memory
of each. --html writes a page with every prediction beside its measurement, and with the cost and gain of tuning.`)
	f := c.Flags()
	f.IntVar(&own.pipelines, "most-pipelines", own.pipelines, "largest number of pipelines to try; 1 is plain training")
	f.StringVar(&own.profileAt, "profile-at", "",
		"the setting to profile (default: 1 pipeline and rather many micro-batches)")
	f.IntVar(&own.settings, "settings", own.settings, "number of settings to profile at most, 1 to 4")
	f.BoolVar(&own.all, "all", false, "also choose schedule, depths, recompute and stages, by simulation")
	f.BoolVar(&own.rivals, "rivals", false, "also choose by traversal, max-num and max-size, and compare")
	f.IntVar(&own.rounds, "rounds", own.rounds, "how often --rivals tries all settings; medians count")
	f.BoolVar(&own.simulate, "simulate", false, "simulate instead of running on this machine; needs no libtorch")
	f.BoolVar(&own.grid, "grid", false, "list all settings, however many")
	f.IntVar(&own.train, "steps", own.train, "steps of the training whose total time is compared")
	f.BoolVar(&own.baselines, "baselines", false, "also simulate other methods, and AvgPipe within the memory of each")
	cli.Output(c, &own.output, "write the chosen plan to this file, to simulate or train it")
	f.StringVar(&own.page, "html", "", "write a page to this file: predictions beside measurements")
	cli.Writes(c, "html")
	cli.JSON(c, &own.asJSON)
	cli.Formerly(c, map[string]string{"output": "out", "report": "html", "train": "steps", "memory": "memory-limit",
		"pipelines": "most-pipelines"})
	return c
}

// check refuses invalid values.
func (f *tuneFlags) check(j *job.Job) error {
	if name := j.Plan.Schedule; name != "" {
		asked, err := family.Named(name)
		if err != nil {
			return err
		}
		if asked.Name != "elastic" {
			return fmt.Errorf("%s %s: tune chooses degrees of elastic pipelines, and with --all among all schedules; to plan "+
				"one schedule, give plan --schedule %s", j.Called("schedule"), name, name)
		}
	}
	if f.train < 1 {
		return fmt.Errorf("--steps %d; a training has 1 step at least", f.train)
	}
	if f.settings < 1 || f.settings > avgpipe.MostSettings {
		return fmt.Errorf("--settings %d; give 1 to %d", f.settings, avgpipe.MostSettings)
	}
	if f.rounds < 1 || f.rounds > 1 && !f.rivals {
		return fmt.Errorf("--rounds %d; the grid is traversed with --rivals, once at least", f.rounds)
	}
	return nil
}

// tuned is what tune prints with --json.
type tuned struct {
	Model        string `json:"model"`
	Cluster      string `json:"cluster"`
	Batch        int    `json:"batch"`
	Simulated    bool   `json:"simulated"` // trials ran in the simulator instead of on a machine
	TrainBatches int    `json:"train_batches"`
	LimitBytes   int64  `json:"limit_bytes,omitempty"`
	*avgpipe.Result
	// Chosen is the plan that -o writes. It takes the name of Result.Best, which is the best setting of the grid: with
	// --all, Chosen is the first plan of All.
	Chosen *avgpipe.Pipelined `json:"best,omitempty"`
	// Outcomes takes the name of Result.Choices, and adds to each choice what it gives.
	Outcomes outcomes `json:"choices,omitempty"`
	// All holds, if --all is given, the fastest plan with each kind of schedule. AvgPipe's plan uses the stages of the
	// pipeline that suits it best.
	All []anySchedule `json:"all,omitempty"`

	// Baselines compares, if --baselines is given, each rival system with AvgPipe in the same memory.
	Baselines []avgpipe.EqualMemory `json:"baselines,omitempty"`

	train   string              // the command that trains the chosen plan
	whole   bool                // print lists the whole grid
	refused *avgpipe.LimitError // why AvgPipe has no Result
	stopped bool                // the traversal was stopped
	inTurn  bool                // after the traversal, the choices were run again in turn
}

func (f *tuneFlags) run(c *cobra.Command, j *job.Job) error {
	f.meter = cli.StartMeter("tune")
	defer f.meter.Stop()
	f.meter.Work().Plan(time.Now(), "profile", progress.Piece{What: "profile", Cost: progress.Unknown})
	p, err := f.gather(c, j)
	if err != nil {
		return err
	}
	w, err := f.workload(c, p)
	if err != nil {
		return err
	}
	r := avgpipe.Request{Workload: w, Sizes: f.sizes(p), Pipelines: f.pipelines, Rivals: f.rivals, Rounds: f.rounds,
		Anchored: !f.simulate, Settings: f.settings, Progress: f.meter.Work()}
	if r.ProfileAt, err = readDegrees(f.profileAt); err != nil {
		return err
	}
	if r.Machine = w.Simulated(); !f.simulate {
		r.ProfileS = f.profilingS
		if r.Machine, err = prepare.TrainingMachine(p); err != nil {
			return err
		}
	}
	if err := cli.ShowsWhatItHas(c, "showing what was tried so far"); err != nil {
		return err
	}
	out, err := f.tune(c, p, r)
	f.meter.Stop()
	stopped := context.Cause(c.Context())
	switch {
	case stopped != nil && (out == nil || out.Result == nil || out.Best == nil):
		slog.Error(stopped.Error() + "; no setting had been tried, so that nothing is kept")
		return stopped
	case stopped == nil && err != nil:
		return cli.BadInput(err)
	}
	if err := f.show(c, p, out); err != nil || stopped == nil {
		return err
	}
	kept := "this is what was tried so far"
	if f.output != "" {
		kept += ", the best of it in " + f.output
	}
	slog.Error(stopped.Error() + "; " + kept)
	return stopped
}

// tune chooses the degrees. If it is stopped, it returns what is known so far together with the error.
func (f *tuneFlags) tune(c *cobra.Command, p *prepare.Prepared, r avgpipe.Request) (*tuned, error) {
	if f.all {
		f.meter.Work().Plan(time.Now(), "schedules", progress.Piece{What: searching, Kind: searching, Cost: searchS})
	}
	found, err := avgpipe.Tune(c.Context(), r)
	var tooMuch *avgpipe.LimitError
	if found == nil && err != nil && !(f.all && errors.As(err, &tooMuch)) {
		return nil, err
	}
	w := r.Workload
	if found != nil && found.Calibrated != nil {
		w, p.Profile = found.Calibrated, found.Calibrated.Profile
	}
	out := &tuned{
		Model: p.Profile.Model, Cluster: p.Cluster.Name, Batch: p.Job.Plan.Batch, Simulated: f.simulate,
		TrainBatches: f.train, LimitBytes: w.LimitBytes, Result: found, whole: f.grid, refused: tooMuch,
		inTurn: r.Rivals && r.Anchored && r.Rounds < 2,
	}
	if out.stopped = c.Context().Err() != nil; out.stopped {
		return out, err
	}
	if f.all {
		f.meter.Work().Begin(time.Now(), progress.Piece{What: searching, Kind: searching, Cost: searchS})
		out.All, err = f.everything(c, p, w, found)
		f.meter.Work().End(time.Now())
		if err != nil {
			return out, err
		}
		if f.rivals && !f.simulate {
			if err := inTurn(c, out.All, r.Machine, f.meter.Work()); err != nil {
				return out, err
			}
		}
	}
	if f.baselines && found != nil {
		f.meter.Doing("simulating the other methods")
		out.Baselines, err = compared(c.Context(), w, found)
	}
	return out, err
}

// searching names the search over all schedules in the progress display; searchS is roughly its duration in seconds.
const (
	searching = "searching all schedules"
	searchS   = 6
)

// show writes and prints the result.
func (f *tuneFlags) show(c *cobra.Command, p *prepare.Prepared, out *tuned) error {
	if f.output != "" {
		if err := f.write(p, out); err != nil {
			return err
		}
	}
	if f.page != "" {
		if out.Result == nil {
			return cli.BadInput(out.refused)
		}
		if err := document.Write(f.page, out.study().HTML); err != nil {
			return err
		}
	}
	out.Chosen, out.Outcomes = out.chosen(), outcomesOf(out.Result, out.TrainBatches)
	if f.asJSON {
		return cli.WriteJSON(c.OutOrStdout(), out)
	}
	if p.Job.Machine.Cluster == "" && prepare.CheckRunnable(p.Model) == nil { // otherwise it cannot be trained here
		out.train = f.trains(p.Job)
	}
	return errors.Join(out.print(c.OutOrStdout()), cli.Wrote(c.OutOrStdout(), f.output, f.page))
}

// compared compares AvgPipe with each baseline in the same memory. For the baselines it takes the smallest number of
// micro-batches in the grid that is at least the number of stages. If all numbers are smaller, it takes the largest.
func compared(ctx context.Context, w *avgpipe.Workload, found *avgpipe.Result) ([]avgpipe.EqualMemory, error) {
	var grid []avgpipe.Degrees
	micros := 0
	for _, cell := range found.Grid {
		grid = append(grid, cell.At)
		if m := cell.At.MicroBatches; micros < len(w.Base.Stages) && m > micros {
			micros = m
		}
	}
	baselines, err := w.Baselines(ctx, micros)
	if err != nil {
		return nil, err
	}
	return w.AtEqualMemory(ctx, grid, baselines)
}

// trains returns the shell command that trains the chosen plan.
func (f *tuneFlags) trains(j *job.Job) string {
	args := []string{cli.Called(), "train", "--plan", cmp.Or(f.output, "plan.json"), "--data",
		cmp.Or(j.Data.Source, "DATA")}
	for _, o := range []struct {
		key, flag string
		value     any
	}{{"optimizer.kind", "--optimizer", j.Train.Optimizer.Kind},
		{"optimizer.momentum", "--momentum", j.Train.Optimizer.Momentum},
		{"optimizer.weight_decay", "--weight-decay", j.Train.Optimizer.WeightDecay}, {"clip", "--clip", j.Train.Clip}} {
		if j.Given(o.key) {
			args = append(args, o.flag, fmt.Sprint(o.value))
		}
	}
	text := cli.Quoted(args)
	if f.output == "" {
		return "give tune -o plan.json too, then: " + text
	}
	return text
}

// gather returns the job's model, hardware and profile. If the job names a profile, gather reads it. If the job names
// described hardware without a profile, gather computes the costs at the micro-batch size that the job fixes, or else
// at every size that divides the batch. Otherwise gather measures this machine: briefly, unless the simulator stands
// for the machine.
func (f *tuneFlags) gather(c *cobra.Command, j *job.Job) (*prepare.Prepared, error) {
	p := &prepare.Prepared{Job: j}
	var err error
	if p.Model, err = prepare.LoadModel(j); err != nil {
		return nil, err
	}
	f.simulate = f.simulate || j.Machine.Cluster != ""
	if !f.simulate {
		if _, err := prepare.OpenEngine(); err != nil { // libtorch is checked first, because every method needs it here
			return nil, noEngine(err)
		}
		if _, err := prepare.TrainingData(j, p.Model); err != nil { // the data is checked before anything is measured
			return nil, err
		}
	}
	began := time.Now()
	defer func() { f.profilingS = time.Since(began).Seconds() }()
	switch {
	case j.Machine.Cluster == "" && j.Plan.Profile == "" && !f.simulate:
		prepare.WarnOfCores(c.ErrOrStderr(), j, 0)
		if p.Profile, err = briefly(c, j, p.Model, f.meter); err != nil {
			return nil, err
		}
		p.Brief = true
		return p, p.Local()
	case j.Machine.Cluster == "" || j.Plan.Profile != "":
		return p, p.Hardware(c)
	}
	if err := p.Describe(c); err != nil {
		return nil, err
	}
	a := prepare.Analysis(j, divisors(j))
	a.Recurrent = true
	p.Profile, err = profile.Analyze(p.Model, p.Cluster.DeviceTypes, a)
	return p, cli.BadInput(err)
}

// sizes returns the micro-batch sizes to try. These are the sizes in the profile. With a brief profile, they are all
// sizes that are worth measuring.
func (f *tuneFlags) sizes(p *prepare.Prepared) []int {
	if p.Brief {
		return prepare.MicroBatches(p.Job)
	}
	return p.Profile.Sizes(p.Cluster.Devices[0])
}

// divisors returns the micro-batch size that the job fixes, or else all sizes that divide its batch.
func divisors(j *job.Job) []int {
	if j.Plan.MicroBatch > 0 || j.Plan.MicroBatches > 0 {
		return prepare.MicroBatches(j)
	}
	return plan.Divisors(j.Plan.Batch)
}

// workload cuts the model into stages, as the job says or with AvgPipe's partitioner.
func (f *tuneFlags) workload(c *cobra.Command, p *prepare.Prepared) (*avgpipe.Workload, error) {
	limit := p.Job.Machine.MemoryBytes()
	for d := range p.Cluster.Devices {
		if own := p.Cluster.MemoryBytes(d); limit == 0 || own > 0 && own < limit {
			limit = own
		}
	}
	w := &avgpipe.Workload{Profile: p.Profile, Cluster: p.Cluster, Batch: p.Job.Plan.Batch, Clip: p.Job.Train.Clip > 0,
		LimitBytes: limit}
	fix, err := prepare.Overrides(p.Job, prepare.NamesOf(p.Model))
	if err != nil {
		return nil, err
	}
	if w.Base, err = avgpipe.Partition(c.Context(), w, fix); err != nil {
		return nil, prepare.Refused(p.Job, err)
	}
	return w, nil
}
