package planning

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/cmd/internal/prepare"
	"github.com/millrace-ml/millrace/internal/progress"
	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/plan"
	_ "github.com/millrace-ml/millrace/plan/planners" // planners register by name
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/tune"
	"github.com/millrace-ml/millrace/tune/predict"
)

// LongestSearch limits the time of a search that does a fixed amount of work; 0 for the limit of package tune. Tests
// set it high, so that their result does not depend on the speed of the machine.
var LongestSearch time.Duration

// planFlags are the flags of plan in addition to a job's flags.
type planFlags struct {
	planner, formula string
	time             time.Duration
	async, asJSON    bool
	explain          bool
	output           string
	set              map[string]string // the planner's own settings, taken from --set
	shapes           sweepFlags
	bare             bool // a profile is given, and no model
	fix              tune.Overrides
	why              *tune.Explanation // explains the plan that the search found

	stopped error // why the search ended early; the plan is then the best that it had found
}

func PlanCommand() *cobra.Command {
	var flags prepare.JobFlags
	var own planFlags
	c := &cobra.Command{
		Use: "plan", Short: "Choose stages, schedule and micro-batches, and say why",
		Long: `plan splits a model into stages and chooses schedule, micro-batches, replicas and recompute. On one screen it prints
the plan, its predicted step and memory, a step time that no plan can beat, and why the first rivals lost. --explain
prints all rivals and workers, what fills the memory, and how a step begins. --json prints everything.

Without --cluster, plan is for this machine. It uses earlier measurements, and measures what is missing in about 15
seconds, or longer with --thorough. With --cluster, plan is for described hardware, and computes the costs from the
devices' peaks. --profile gives other costs.

--sweep ranks plans of a fixed shape on described hardware: equal blocks over replicas x stages x tensor-parallel
groups. It prints the shapes that fit, the parts of the best step, and the assumptions that it depends on. --explain
prints more of each. --svg draws the shapes, step time over memory.`,
		Example: `  millrace plan --model gpt --workers 2 --batch 32
  millrace plan --model gpt --profile gpt.json --stages 4 --workers 4 --schedule pb -o plan.json
  millrace plan --model gpt --cluster examples/two-nodes.yaml --batch 64 --time 10s
  millrace plan --sweep --model gpt --cluster dgx-a100 --precision bf16 --tensor 1,2,4,8 --batch 64
  millrace plan --planner pipedream --profile vgg16.json --cluster pipedream-a --batch 64 --json`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			flags.Given = append(flags.Given, own.complete)
			j, err := flags.Job()
			if err != nil {
				return err
			}
			if own.shapes.wanted() {
				return own.shapes.run(c, j, own.explain, own.asJSON, own.output)
			}
			p, err := own.prepare(c, j)
			if err != nil {
				return own.remedied(c, p, err)
			}
			switch err := own.print(c, p); {
			case err != nil:
				return err
			case own.stopped == nil && own.asJSON:
				return nil
			case own.stopped == nil:
				return cli.Wrote(c.OutOrStdout(), own.output)
			}
			kept := "this is the best plan so far"
			if own.output != "" {
				kept += ", which is in " + own.output
			}
			slog.Error(own.stopped.Error() + "; " + kept)
			return own.stopped
		},
	}
	flags.Add(c, job.ModelOptions, job.PlanOptions, job.ElasticOptions, job.ClusterOptions)
	cli.More(c, `--planner asks only one of the papers' planners, and refuses flags that fix a part of the plan. --formula selects
the formula of the paper or that of the published code (artifact). --set also sets this planner's own settings.`)
	f := c.Flags()
	f.StringVar(&own.planner, "planner", "auto", "auto, or only one: "+plannerNames())
	f.StringVar(&own.formula, "formula", "", "formula of a planner: paper (default) or artifact")
	f.DurationVar(&own.time, "time", 0, "time to search, like 30s (default: until its work is done, usually under 10 s)")
	f.BoolVar(&own.async, "async", false, "search plans without a flush too")
	f.BoolVar(&own.explain, "explain", false, "print all rivals and workers, what fills memory, where a step goes")
	own.shapes.add(c)
	cli.JSON(c, &own.asJSON)
	cli.Output(c, &own.output, "write the plan to this file")
	return c
}

func plannerNames() string {
	var names []string
	for _, p := range plan.Planners() {
		names = append(names, p.Name)
	}
	return strings.Join(names, ", ")
}

// complete takes the model's name from the profile if no model is given, and moves the planner's settings out of the
// model's.
func (f *planFlags) complete(j *job.Job) error {
	if j.Model.Name == "" && j.Plan.Profile != "" {
		p, err := profile.Read(j.Plan.Profile)
		if err != nil {
			return err
		}
		if j.Machine.Cluster == "" {
			return fmt.Errorf("a profile without a model says nothing of this machine: name the hardware with " +
				"--cluster, or the model with --model")
		}
		j.Model.Name, f.bare = p.Model, true
	}
	f.set = map[string]string{}
	var known []plan.Setting
	if f.planner != "auto" {
		p, err := plan.LookupPlanner(f.planner)
		if err != nil {
			return err
		}
		known = p.Settings
		if err := f.alone(j); err != nil {
			return err
		}
	}
	for name, value := range j.Model.Settings {
		theirs := f.bare
		for _, s := range known {
			theirs = theirs || s.Name == name
		}
		if theirs {
			f.set[name] = fmt.Sprint(value)
			delete(j.Model.Settings, name)
		}
	}
	if f.planner == "auto" && len(f.set) > 0 {
		return fmt.Errorf("--set: planner auto has no settings of its own, and a profile alone has no model to set")
	}
	if f.planner == "auto" && f.formula != "" {
		return fmt.Errorf("--formula %s: planner auto is judged by the simulator; name another planner", f.formula)
	}
	if f.formula != "" && f.formula != "paper" && f.formula != "artifact" {
		return fmt.Errorf("--formula %q; it is paper or artifact", f.formula)
	}
	return nil
}

// prepare collects the model, the profile and the cluster, and plans. If it fails after it has collected them, it
// returns them together with the error.
func (f *planFlags) prepare(c *cobra.Command, j *job.Job) (*prepare.Prepared, error) {
	p := &prepare.Prepared{Job: j}
	if j.Plan.Program != "" && f.planner != "auto" {
		return nil, cli.BadInput(fmt.Errorf("--program %s is a schedule of its own, and planner %s chooses another; leave "+
			"out one of them", j.Plan.Program, f.planner))
	}
	_, err := prepare.UseProgram(j)
	if err != nil {
		return nil, err
	}
	readCosts := f.measureCosts
	if f.bare {
		readCosts = f.readCosts
	}
	if err := readCosts(c, p); err != nil {
		return nil, err
	}
	if f.planner != "auto" {
		return p, f.other(c, p)
	}
	if err := cli.ShowsWhatItHas(c, "showing the best plan so far"); err != nil {
		return p, err
	}
	meter := cli.StartMeter("plan")
	defer meter.Stop()
	within, cancel := context.WithCancel(c.Context())
	if f.time > 0 {
		within, cancel = context.WithTimeout(c.Context(), f.time)
		meter.Work().Begin(time.Now(), progress.Piece{What: "searching", Cost: f.time.Seconds(), Sure: true})
	}
	defer cancel()
	r := f.request(p)
	if f.time > 0 && p.Job.Machine.Cluster != "" {
		r.Time -= f.time / adviceOf
	}
	r.Simulated = func(plans int) { meter.Doing("searching, " + terminal.Count(plans, "plan") + " simulated") }
	r.Asked = func(change string) { meter.Doing("searching what " + change + " would do") }
	p.Result, err = tune.Search(c.Context(), r)
	stopped := context.Cause(c.Context())
	switch {
	case stopped != nil && p.Result == nil:
		slog.Error(stopped.Error() + "; there is no plan yet, so that nothing is kept")
		return p, stopped
	case stopped != nil:
		f.stopped = stopped
		p.Plan = p.Result.Best
		p.NoteSpread()
		p.Placed(p.Plan)
		return p, nil
	case err != nil:
		return p, prepare.Refused(p.Job, err)
	}
	if p.Job.Machine.Cluster != "" {
		if f.why, err = p.Result.Explain(within); err != nil {
			return p, cli.BadInput(err)
		}
	}
	p.Plan = p.Result.Best
	p.NoteSpread()
	p.Placed(p.Plan)
	return p, p.Advance()
}

// alone refuses settings that fix a part of the plan beside a single planner, which would ignore them.
func (f *planFlags) alone(j *job.Job) error {
	var fixed []string
	for _, key := range []string{"stages", "split", "schedule", "weights", "recompute", "post_validate", "staleness",
		"shard", "gradients", "pipelines", "alpha", "averaging", "reference", "advance"} {
		if j.Given(key) && (key != "pipelines" || j.Plan.Elastic.Pipelines > 1) {
			fixed = append(fixed, j.Called(key))
		}
	}
	if f.async {
		fixed = append(fixed, "--async")
	}
	if fixed == nil {
		return nil
	}
	return fmt.Errorf("%s: planner %s chooses the whole plan as its paper does; leave --planner out to search with this "+
		"fixed, or give the planner's own settings alone", strings.Join(fixed, ", "), f.planner)
}

// readCosts reads the layers' costs from a profile. The profile's model is not needed.
func (f *planFlags) readCosts(c *cobra.Command, p *prepare.Prepared) (err error) {
	if err := p.Describe(c); err != nil {
		return err
	}
	if p.Profile, err = profile.Read(p.Job.Plan.Profile); err != nil {
		return cli.BadInput(err)
	}
	f.fix, err = prepare.Overrides(p.Job, layersOf(p.Profile))
	return err
}

// measureCosts reads the model and determines its layers' costs on the hardware. It refuses wrong settings before it
// measures.
func (f *planFlags) measureCosts(c *cobra.Command, p *prepare.Prepared) (err error) {
	j := p.Job
	if p.Model, err = prepare.LoadModel(j); err != nil {
		return err
	}
	if f.fix, err = prepare.Overrides(j, prepare.NamesOf(p.Model)); err != nil {
		return err
	}
	if j.Machine.Cluster == "" {
		if err := f.fix.Check(p.Model.Name, len(p.Model.Layers), j.Machine.Workers, j.Plan.Batch); err != nil {
			return prepare.Refused(j, err)
		}
	}
	return p.Hardware(c)
}

// adviceOf is the number of equal parts that --time is divided into. On described hardware one part is kept for finding
// out what better hardware would gain.
const adviceOf = 5

func (f *planFlags) request(p *prepare.Prepared) tune.Request {
	return tune.Request{
		Profile: p.Profile, Cluster: p.Cluster, Batch: p.Job.Plan.Batch, Clip: p.Job.Train.Clip > 0, Fix: f.fix,
		Runnable: p.Job.Machine.Cluster == "", Async: f.async, Time: f.time, Longest: LongestSearch,
	}
}

// question returns the request for a single planner.
func (f *planFlags) question(p *prepare.Prepared) plan.Request {
	return plan.Request{Profile: p.Profile, Cluster: p.Cluster, Batch: p.Job.Plan.Batch, MicroBatch: p.Job.Plan.MicroBatch,
		Formula: f.formula, Boundary: f.fix.Boundary, Runnable: p.Job.Machine.Cluster == "", Set: f.set}
}

// other has a single planner make the plan, and simulates that plan.
func (f *planFlags) other(c *cobra.Command, p *prepare.Prepared) error {
	planner, err := plan.LookupPlanner(f.planner)
	if err != nil {
		return cli.BadInput(err)
	}
	if err := planner.CheckSettings(f.set); err != nil {
		return cli.BadInput(err)
	}
	p.Plan, err = planner.Plan(c.Context(), f.question(p))
	if err != nil {
		return cli.BadInput(err)
	}
	p.Placed(p.Plan)
	predicted, err := predict.Plan(p.Profile, p.Cluster, p.Plan, p.Job.Train.Clip > 0)
	if err != nil {
		p.Plan.Why = append(p.Plan.Why, "not simulated: "+err.Error())
		return nil
	}
	p.Plan.Predicted = &predicted
	return nil
}
