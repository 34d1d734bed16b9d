package prepare

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/run"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/tune"
	"github.com/millrace-ml/millrace/tune/predict"
)

// Prepared is a job with everything that is decided before training.
type Prepared struct {
	Job     *job.Job
	Model   *model.Model
	Profile *profile.Profile
	Brief   bool // the profile has few sizes; costs of other sizes are scaled from them
	Cluster *cluster.Cluster
	Plan    *plan.Plan
	Result  *tune.Result // nil if the plan was given, or another planner made it

	unlimited *cluster.Cluster // Cluster without the job's memory limit; nil before Limit
}

// Prepare profiles and plans a job. `trains` says whether the job will be trained.
func Prepare(c *cobra.Command, j *job.Job, trains bool) (*Prepared, error) {
	return PrepareOn(c, j, trains, func(p *Prepared) error {
		if !trains && j.Machine.Cluster == "" && p.Plan != nil && len(p.Plan.Hardware) > 0 {
			return p.planned(c)
		}
		return p.Hardware(c)
	})
}

// planned fills in the cluster that the given plan names, and the model's costs on it.
func (p *Prepared) planned(c *cobra.Command) (err error) {
	if p.Cluster, err = p.Plan.For(); err != nil {
		return cli.BadInput(fmt.Errorf("%s: %w", p.Job.Plan.File, err))
	}
	p.Job.Machine.Workers = len(p.Cluster.Devices)
	p.Limit()
	fmt.Fprintf(c.ErrOrStderr(), "millrace: on %s, which %s is for; --cluster names another cluster\n", p.Cluster.Name,
		p.Job.Plan.File)
	if err := p.described(); err != nil {
		return fmt.Errorf("%s, which %s is for: %w", p.Cluster.Name, p.Job.Plan.File, err)
	}
	return nil
}

// PrepareOn is Prepare with a function `hardware` that fills in the Profile and the Cluster.
func PrepareOn(c *cobra.Command, j *job.Job, trains bool, hardware func(p *Prepared) error) (*Prepared, error) {
	if trains && len(j.Machine.Tensor) > 0 {
		return nil, cli.BadInput(fmt.Errorf("%s: tensor-parallel groups are planned, simulated and exported to Megatron-LM, "+
			"not executed: a worker here is one device", j.Called("tensor")))
	}
	if trains && j.Machine.Precision != "" && j.Machine.Precision != "f32" {
		return nil, cli.BadInput(fmt.Errorf("%s is %s: training is in f32; other precisions are planned for and simulated "+
			"alone, with plan and simulate", j.Called("precision"), j.Machine.Precision))
	}
	source, err := UseProgram(j)
	if err != nil {
		return nil, err
	}
	m, err := LoadModel(j)
	if err != nil {
		return nil, err
	}
	note, err := sums(c, j, source, m, trains)
	if err != nil {
		return nil, err
	}
	fix, err := Overrides(j, NamesOf(m))
	if err != nil {
		return nil, err
	}
	if (trains || j.Machine.Cluster == "") && j.Plan.File == "" { // check the job before anything is measured
		if err := fix.Check(m.Name, len(m.Layers), j.Machine.Workers, j.Plan.Batch); err != nil {
			return nil, Refused(j, err)
		}
	}
	p := &Prepared{Job: j, Model: m}
	if j.Plan.File != "" {
		if p.Plan, err = givenPlan(j, m); err != nil {
			return nil, err
		}
		if trains { // check the plan before anything is measured
			if err := run.CheckPlan(p.Plan, m, j.Plan.BatchNorm == job.PerSlice); err != nil {
				return nil, cli.BadInput(fmt.Errorf("%w (in %s)", err, j.Plan.File))
			}
		}
	}
	if err := hardware(p); err != nil {
		return nil, err
	}
	if j.Plan.File != "" {
		err := p.given()
		p.Placed(p.Plan)
		return p, err
	}
	p.Result, err = tune.Search(c.Context(), tune.Request{Profile: p.Profile, Cluster: p.Cluster, Batch: j.Plan.Batch,
		Clip: j.Train.Clip > 0, Fix: fix, Runnable: trains || j.Machine.Cluster == "",
		Whole: m.NormalisesMicroBatches() != nil && j.Plan.BatchNorm != job.PerSlice})
	var memory *tune.MemoryError
	if source != nil && errors.As(err, &memory) {
		err = p.tooMuch(source, memory)
	}
	if err != nil {
		return nil, Refused(j, err)
	}
	p.Plan = p.Result.Best
	if note != "" {
		p.Plan.Why = append(p.Plan.Why, note)
	}
	p.NoteSpread()
	p.Placed(p.Plan)
	return p, p.Advance()
}

// NoteSpread adds a note to the plan on the precision of its costs.
func (p *Prepared) NoteSpread() {
	if note := Spread(p.Profile, predict.Cores(p.Cluster, p.Plan, 0)); note != "" {
		p.Plan.Why = append(p.Plan.Why, note)
	}
}

// Placed records in a plan the model that was asked for, the hardware, and the format between stages. A plan for
// threads of one machine names no hardware.
func (p *Prepared) Placed(pl *plan.Plan) {
	p.noteBoundary(pl)
	if p.Profile != nil {
		pl.Precision = p.Profile.Precision
	}
	if p.Cluster != nil && len(p.Cluster.Devices) > 0 {
		if g := p.Cluster.DeviceTypes[p.Cluster.Devices[0]].Group; g != nil {
			pl.Tensor = &plan.Tensor{Devices: g.Size, SequenceParallel: g.SequenceParallel}
		}
	}
	if j := p.Job; p.Model != nil {
		asked := plan.Asked{Settings: j.Model.Settings, Freeze: j.Model.Freeze}
		if j.Model.Name != p.Model.Name {
			asked.File = j.Model.Name
		}
		asked.Updates = p.updates()
		if pl.Asked = nil; asked.File != "" || len(j.Model.Settings) > 0 || len(j.Model.Freeze) > 0 || asked.Updates != nil {
			pl.Asked = &asked
		}
	}
	if p.Job.Machine.Cluster != "" || p.Cluster.PerHost != nil {
		pl.On(cmp.Or(p.unlimited, p.Cluster))
	}
}

// Advance sets the plan's number of advance forwards to the job's number.
func (p *Prepared) Advance() error {
	n, err := strconv.Atoi(p.Job.Plan.Advance)
	if err != nil {
		return nil // the job has no fixed number of advance forwards
	}
	pl, err := predict.Advanced(p.Profile, p.Cluster, p.Plan, p.Job.Train.Clip > 0, n)
	if err != nil {
		return cli.BadInput(err)
	}
	p.Plan = pl
	return nil
}

// Advancing returns how a training adapts the plan's advance forwards. The training reports each change on `out`.
func (p *Prepared) Advancing(out io.Writer) *run.Advancing {
	rule := family.Graded
	if p.Job.Plan.Advance == job.PrintedAdvance {
		rule = family.Printed
	}
	return &run.Advancing{
		Rule: rule, Plan: p.Plan, Model: p.Model, Clip: p.Job.Train.Clip > 0,
		Fits: func(k []int) bool { return predict.DepthsFit(p.Profile, p.Cluster, p.Plan, p.Job.Train.Clip > 0, k) },
		OnDepths: func(next, measured []int, stepS float64, settled bool) {
			switch {
			case measured == nil:
			case settled:
				fmt.Fprintf(out, "advance: depths %v took %s a step; settled on %v\n", measured, terminal.Duration(stepS), next)
			default:
				fmt.Fprintf(out, "advance: depths %v took %s a step; next %v\n", measured, terminal.Duration(stepS), next)
			}
		},
	}
}

// Hardware fills in the cluster and the model's costs on it. The cluster is this machine as measured, or the cluster in
// a file.
func (p *Prepared) Hardware(c *cobra.Command) (err error) {
	if p.Job.Machine.Cluster == "" {
		if err := p.hasDevices(); err != nil { // check the plan before anything is measured
			return err
		}
		want, slices := p.Wanted(), p.slices()
		want.Sizes = append(slices, want.Sizes...)
		if p.Profile, err = profileFor(c, p.Job, p.Model, want); err != nil {
			return err
		}
		if p.Job.Plan.Profile == "" {
			p.Profile.Slices = slices
		}
		return p.Local()
	}
	if err := p.Describe(c); err != nil {
		return err
	}
	return p.described()
}

// CostsOn sets the cluster, and fills in the model's costs on it.
func (p *Prepared) CostsOn(c *cluster.Cluster) error {
	p.Cluster = c
	return p.described()
}

// described fills in the model's costs on the cluster, from the job's profile or by a roofline.
func (p *Prepared) described() (err error) {
	if p.Job.Plan.Profile != "" {
		p.Profile, err = GivenProfile(p.Job, p.Model)
		return err
	}
	sizes, divided := p.sizesToDescribe()
	p.Profile, err = profile.Analyze(p.Model, p.Cluster.DeviceTypes, Analysis(p.Job, append(divided, sizes...)))
	if err == nil {
		p.Profile.Slices = divided
	}
	return cli.BadInput(err)
}

// slices returns further sizes to measure here, for replicas that split micro-batches. A given plan needs none.
func (p *Prepared) slices() []int {
	if p.Plan != nil {
		return nil
	}
	return slicesOf(p.Sizes(), p.Job.Machine.Workers)
}

// Sizes returns the micro-batch sizes to measure. For a given plan they are the sizes that it computes, including
// slices of replicas. Otherwise they are the sizes worth measuring for the job.
func (p *Prepared) Sizes() []int {
	switch {
	case p.Plan != nil:
		return p.Plan.Sizes()
	case p.Cluster != nil:
		return microBatches(p.Job, len(p.Cluster.Devices))
	}
	return MicroBatches(p.Job)
}

// Describe sets the cluster to the job's cluster, with the job's memory limit.
func (p *Prepared) Describe(c *cobra.Command) (err error) {
	if p.Cluster, err = DescribedCluster(c, p.Job); err == nil {
		p.Limit()
		err = p.hasDevices()
	}
	return err
}

// Limit limits the memory of devices to the job's setting. It keeps the unlimited cluster, because descriptions of
// hosts and plans must not contain the job's limit.
func (p *Prepared) Limit() {
	p.unlimited, p.Cluster = p.Cluster, p.Cluster.Limited(p.Job.Machine.MemoryBytes())
}

// Local sets the cluster to this machine as the profile measured it. If the job names a wire, its links replace the
// measured ones.
func (p *Prepared) Local() (err error) {
	p.Cluster = localCluster(p.Job, p.Profile)
	if p.Job.Machine.Wire != "" {
		p.Cluster, err = Shaped(p.Job, p.Cluster)
	}
	return cli.BadInput(err)
}

// givenPlan reads the plan that a job names, and checks that it is for this model and agrees with the job. The plan
// gets the job's post-validation, staleness and format between stages, if the job sets these.
func givenPlan(j *job.Job, m *model.Model) (*plan.Plan, error) {
	pl, err := plan.Read(j.Plan.File)
	if err != nil {
		return nil, cli.BadInput(err)
	}
	if err := pl.Fits(m.Name, m.ID(), len(m.Layers)); err != nil {
		return nil, cli.BadInput(err)
	}
	if err := agrees(j, pl); err != nil {
		return nil, cli.BadInput(err)
	}
	if err := takeOver(j, pl); err != nil {
		return nil, cli.BadInput(err)
	}
	pl.PostValidate = pl.PostValidate || j.Plan.PostValidate
	if j.Plan.Staleness != nil {
		pl.Staleness = j.Plan.Staleness
	}
	if err := bound(j, pl); err != nil {
		return nil, cli.BadInput(err)
	}
	if err := pl.Validate(); err != nil {
		return nil, cli.BadInput(fmt.Errorf("--post-validate: %w", err))
	}
	return pl, nil
}

// agrees refuses a job whose setting differs from its given plan, because the setting would have no effect.
func agrees(j *job.Job, pl *plan.Plan) error {
	for _, own := range []struct {
		key         string
		asked, plan any
	}{
		{"batch", j.Plan.Batch, pl.Batch()}, {"micro_batch", j.Plan.MicroBatch, pl.MicroBatch},
		{"micro_batches", j.Plan.MicroBatches, pl.MicroBatches}, {"stages", j.Plan.Stages, len(pl.Stages)},
		{"schedule", j.Plan.Schedule, pl.Schedule}, {"weights", j.Plan.Weights, pl.Weights},
		{"pipelines", j.Plan.Elastic.Pipelines, pl.Together()},
	} {
		if j.Given(own.key) && own.asked != own.plan {
			return fmt.Errorf("%s is %v; the plan in %s has %v: leave one of them out", own.key, own.asked, j.Plan.File,
				own.plan)
		}
	}
	return nil
}

// given predicts the plan that the job names.
func (p *Prepared) given() error {
	pl := p.Plan
	if err := p.suits(); err != nil {
		return cli.BadInput(err)
	}
	predicted, err := predict.Plan(p.Profile, p.Cluster, pl, p.Job.Train.Clip > 0)
	if err != nil {
		return cli.BadInput(err)
	}
	forgetSearch(pl, predicted.StepS)
	pl.Predicted = &predicted
	p.Job.Plan.Batch = pl.Batch()
	// Notes in the plan's file describe the costs it was planned with, so they are replaced.
	pl.Why = slices.DeleteFunc(pl.Why, func(why string) bool { return strings.HasPrefix(why, costsAre) })
	p.NoteSpread()
	for _, size := range pl.Sizes() {
		if basis := p.Profile.Basis(p.Cluster.Devices[pl.Stages[0].Devices[0]], size); basis != "" &&
			!slices.Contains(pl.Why, basis) {
			pl.Why = append(pl.Why, basis)
		}
	}
	return p.Advance()
}

func NamesOf(m *model.Model) []string {
	var names []string
	for _, l := range m.Layers {
		names = append(names, l.Name)
	}
	return names
}

// PrepareHardware returns a job with its model, its profile and its cluster, but without a plan. If the model is to be
// measured here, it first checks the data. A described cluster needs no data, so the model may be planned only.
func PrepareHardware(c *cobra.Command, j *job.Job) (*Prepared, error) {
	m, err := LoadModel(j)
	if err != nil {
		return nil, err
	}
	if j.Machine.Cluster == "" {
		if _, err := TrainingData(j, m); err != nil {
			return nil, err // refused before the slow profile is measured
		}
	}
	p := &Prepared{Job: j, Model: m}
	return p, p.Hardware(c)
}

// PrepareToTrain is Prepare for training. It first checks the data, because measuring a profile takes a long time.
func PrepareToTrain(c *cobra.Command, j *job.Job) (*Prepared, error) {
	if err := CheckTrainingData(j); err != nil {
		return nil, err
	}
	return Prepare(c, j, true)
}
