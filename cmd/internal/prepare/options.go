package prepare

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/internal/names"
	"github.com/millrace-ml/millrace/internal/packing"
	"github.com/millrace-ml/millrace/internal/registry"
	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/model/imported"
	"github.com/millrace-ml/millrace/model/pretrained"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/stage/optim"
	"github.com/millrace-ml/millrace/tune"
)

// JobFlags are the flags of a command for a job's settings. Flags override the job file, which overrides defaults.
type JobFlags struct {
	File  string
	Text  []byte // content of File, if File is on another host
	Given []func(*job.Job) error
	Words []string // the flags as they were typed, without --job
	// Repeats says that a plan's prediction is repeated: unless flags name them, or there is a job file, the optimizer
	// and the clipping are the plan's.
	Repeats bool
}

// flagValue keeps the value of a flag, which is applied to the job later.
type flagValue struct {
	option job.Option
	to     *JobFlags
	text   string
}

func (v *flagValue) String() string { return v.text }
func (v *flagValue) Set(text string) error {
	v.text = text
	v.to.Words = append(v.to.Words, "--"+v.option.Name+"="+text)
	v.to.Given = append(v.to.Given, func(j *job.Job) error { return v.option.Set(j, text) })
	return nil
}

func (v *flagValue) Type() string {
	if v.option.Bool {
		return "bool"
	}
	return "value"
}

// Add adds flags for these settings, and --job, to a command.
func (f *JobFlags) Add(c *cobra.Command, groups ...[]job.Option) {
	c.Flags().StringVar(&f.File, "job", "", "a YAML job file; flags win over it")
	for _, o := range slices.Concat(groups...) {
		short := o.Short
		if short != "" && c.Flags().ShorthandLookup(short) != nil {
			short = ""
		}
		c.Flags().VarP(&flagValue{option: o, to: f}, o.Name, short, o.Doc)
		if c.Flags().Lookup(o.Name).NoOptDefVal = o.Bare; o.Bool {
			c.Flags().Lookup(o.Name).NoOptDefVal = "true"
		}
	}
}

// given returns the job from the defaults, the file and the flags; it may be incomplete.
func (f *JobFlags) given() (*job.Job, error) {
	j := job.Default()
	if err := f.read(&j); err != nil {
		return nil, err
	}
	for _, set := range f.Given {
		if err := set(&j); err != nil {
			return nil, cli.BadInput(err)
		}
	}
	return &j, nil
}

// read reads the job file, if there is one, into a job.
func (f *JobFlags) read(j *job.Job) error {
	if f.Text != nil {
		return cli.BadInput(j.ReadText(f.Text, f.File))
	}
	if err := missing(jobFile, f.File, makesJob); err != nil || f.File == "" {
		return err
	}
	return cli.BadInput(j.Read(f.File))
}

// Asked returns the job that a command's flags describe so far. It need not be complete.
func Asked(c *cobra.Command) (*job.Job, error) {
	f := c.Flags().Lookup("model")
	if f == nil {
		return nil, fmt.Errorf("%s has no --model", c.CommandPath())
	}
	v, ok := f.Value.(*flagValue)
	if !ok {
		return nil, fmt.Errorf("the --model of %s is of no job", c.CommandPath())
	}
	j, err := v.to.given()
	if err == nil {
		_ = named(j) // an incomplete job may give an error
	}
	return j, err
}

// Job returns the complete job. It refuses too many threads, and files that would otherwise be refused only after the
// measurements.
func (f *JobFlags) Job() (*job.Job, error) {
	given, err := f.given()
	if err != nil {
		return nil, err
	}
	j := *given
	if err := named(&j); err != nil {
		return nil, err
	}
	if f.Repeats && f.File == "" { // a job file says how its run updates
		if err := updatedAsPlanned(&j); err != nil {
			return nil, err
		}
	}
	if err := j.Complete(); err != nil {
		return nil, cli.BadInput(err)
	}
	if err := CheckThreads(&j); err != nil {
		return nil, err
	}
	return &j, checkFiles(&j)
}

// named sets the model of a job that names none to the model of its plan. On this machine, a job without a number of
// workers gets enough workers for all devices of its plan. If the job has the plan's model, named also adds the plan's
// model settings that the job does not set, and the plan's frozen parts if the job sets none. A plan whose model cannot
// be made is refused.
func named(j *job.Job) error {
	if j.Plan.File == "" {
		return nil
	}
	p, err := plan.Read(j.Plan.File)
	if err != nil {
		return cli.BadInput(err)
	}
	if j.Machine.Workers == job.Auto && !j.Given("workers") && j.Machine.Cluster == "" {
		j.Machine.Workers = slices.Max(p.Devices()) + 1
	}
	asked := p.Asked
	if asked == nil {
		asked = &plan.Asked{}
	}
	usual := modelOf(p)
	if j.Model.Name == "" {
		j.Model.Name = usual
		if _, err := os.Stat(asked.File); asked.File != "" && err != nil {
			return cli.BadInput(fmt.Errorf("%s %s is for the model of %s, which is not there: name its file with --model",
				j.Called("plan"), j.Plan.File, asked.File))
		}
	}
	if j.Model.Name == usual {
		if own := maps.Clone(asked.Settings); len(own) > 0 {
			maps.Copy(own, j.Model.Settings)
			j.Model.Settings = own
		}
		if len(j.Model.Freeze) == 0 {
			j.Model.Freeze = asked.Freeze
		}
	}
	if asked.File != "" || j.Model.Name != p.Model {
		return nil
	}
	m, err := model.Build(p.Model, j.Model.Settings)
	switch {
	case err != nil && len(j.Model.Settings) == 0:
		return cli.BadInput(fmt.Errorf("plan %s is for the model %s, which is not built in: name its file with --model",
			j.Plan.File, names.Shown(p.Model)))
	case err == nil && p.ModelID != "" && p.ModelID != m.ID() && len(j.Model.Settings) == 0 && len(j.Model.Freeze) == 0:
		return cli.BadInput(fmt.Errorf("plan %s is for %s with other settings than the usual ones, and does not say which: "+
			"give --set NAME=VALUE as it was made with", j.Plan.File, p.Model))
	}
	return nil
}

// updatedAsPlanned sets the optimizer and the clipping that flags do not name to those of the plan. If flags name
// another optimizer, its coefficients are not the plan's. An optimizer or clipping that no job can have is refused.
func updatedAsPlanned(j *job.Job) error {
	p, err := plan.Read(j.Plan.File)
	if j.Plan.File == "" || err != nil || p.Asked == nil || p.Asked.Updates == nil {
		return nil // a plan that cannot be read is refused where it is needed
	}
	u, o := p.Asked.Updates, &j.Train.Optimizer
	refused := func(err error) error {
		return cli.BadInput(fmt.Errorf("%s %s: asked.updates: %w", j.Called("plan"), j.Plan.File, err))
	}
	if !j.Given("clip") {
		if j.Train.Clip = u.Clip; !(u.Clip >= 0 && u.Clip <= math.MaxFloat32) {
			return refused(fmt.Errorf("clip is %v; it is the largest norm of the gradients, above 0, or left out", u.Clip))
		}
	}
	if o.Kind != "" && o.Kind != u.Optimizer {
		return nil
	}
	if err := possible(u); err != nil {
		return refused(err)
	}
	o.Kind = u.Optimizer
	if o.Momentum == job.Auto {
		o.Momentum = u.Momentum
	}
	if o.WeightDecay == job.Auto {
		o.WeightDecay = u.WeightDecay
	}
	if !j.Given("optimizer.nesterov") {
		o.Nesterov = u.Nesterov
	}
	return nil
}

// possible refuses an optimizer that no job can have.
func possible(u *plan.Updates) error {
	o, err := optim.Default(u.Optimizer)
	if err != nil {
		return fmt.Errorf("optimizer: %w", err)
	}
	o.Momentum, o.Nesterov, o.WeightDecay = u.Momentum, u.Nesterov, u.WeightDecay
	return o.Check()
}

// LoadModel makes the job's model: a built-in family, a YAML file, or an imported network. It sets the initial
// values that the job names, and freezes layers.
func LoadModel(j *job.Job) (*model.Model, error) {
	m, err := loadModel(j)
	if err == nil {
		err = freeze(j, m)
	}
	if err != nil || j.Model.Init == "" {
		return m, err
	}
	w, err := pretrained.Open(j.Model.Init, m)
	if err != nil {
		return nil, cli.BadInput(err)
	}
	m.Weights = w
	return m, nil
}

func loadModel(j *job.Job) (*model.Model, error) {
	if imported.IsFile(j.Model.Name) {
		if err := missing("model", j.Model.Name, makesNetwork); err != nil {
			return nil, err
		}
		if len(j.Model.Settings) > 0 {
			return nil, cli.BadInput(fmt.Errorf("model %s: an imported network takes no settings; change the module and "+
				"export it again", j.Model.Name))
		}
		m, err := imported.Load(j.Model.Name)
		return m, cli.BadInput(err)
	}
	if model.IsFile(j.Model.Name) {
		if err := missing("model", j.Model.Name, makesModel); err != nil {
			return nil, err
		}
	}
	m, err := model.Load(j.Model.Name, j.Model.Settings)
	return m, cli.BadInput(err)
}

// Inside returns the link between workers of one process, as measured, or a usual one without a measurement. With
// several device types it takes the worst of each value.
func Inside(p *profile.Profile) cluster.Link {
	usual := cluster.Link{LatencyS: 20e-6, BandwidthBytesPerSecond: 10e9, CollectiveBytesPerSecond: 2e9}
	out := usual
	for i, device := range p.DeviceTypes() {
		l := usual
		if t := p.On(device).Transfer; t != nil {
			l = cluster.Link{LatencyS: t.LatencyS, BandwidthBytesPerSecond: t.BandwidthBytesPerSecond,
				CollectiveBytesPerSecond: t.AllReduceBytesPerSecond}
		}
		if i == 0 {
			out = l
			continue
		}
		out = cluster.Link{LatencyS: max(out.LatencyS, l.LatencyS),
			BandwidthBytesPerSecond:  min(out.BandwidthBytesPerSecond, l.BandwidthBytesPerSecond),
			CollectiveBytesPerSecond: min(out.CollectiveBytesPerSecond, l.CollectiveBytesPerSecond)}
	}
	return out
}

// localCluster returns this machine as a cluster for a job, with the measured transfers of the profile.
func localCluster(j *job.Job, p *profile.Profile) *cluster.Cluster {
	inside := Inside(p)
	device := "none" // stays if the profile has no costs; the planner reports that
	if types := p.DeviceTypes(); len(types) > 0 {
		device = types[0]
	}
	return cluster.Local(device, j.Machine.Workers, CoresOf(j), j.Machine.MemoryBytes(), inside.LatencyS,
		inside.BandwidthBytesPerSecond, inside.CollectiveBytesPerSecond)
}

// CoresOf returns how many workers can compute at once: the job's setting, or this process's cores divided by the
// threads of a worker.
func CoresOf(j *job.Job) int {
	if j.Machine.Cores > 0 {
		return j.Machine.Cores
	}
	own := ownCores()
	return max(1, own.Cores()/j.Machine.ThreadsPerWorker)
}

// Overrides returns the parts of the plan that a job fixes. `layers` are the names of the model's layers.
func Overrides(j *job.Job, layers []string) (tune.Overrides, error) {
	o := tune.Overrides{
		Stages: j.Plan.Stages, Schedule: j.Plan.Schedule, Weights: schedule.Policy(j.Plan.Weights),
		MicroBatch: j.Plan.MicroBatch, MicroBatches: j.Plan.MicroBatches, Recompute: j.Plan.Recompute,
		PostValidate: j.Plan.PostValidate, Staleness: j.Plan.Staleness,
	}
	var err error
	if o.Boundary, err = packing.Named(j.Plan.Boundary); err != nil {
		return o, cli.BadInput(fmt.Errorf("%s: %w", j.Called("boundary"), err))
	}
	if o.Shard, err = plan.ParseShard(j.Plan.Shard); err != nil {
		return o, cli.BadInput(fmt.Errorf("%s: %w", j.Called("shard"), err))
	}
	if o.Gradients, err = plan.ParseGradients(j.Plan.Gradients); err != nil {
		return o, cli.BadInput(fmt.Errorf("%s: %w", j.Called("gradients"), err))
	}
	if wholeMinibatches(j) && o.MicroBatches == 0 && o.MicroBatch == 0 {
		o.MicroBatches = 1
	}
	if j.Plan.Elastic.Pipelines > 0 {
		o.Elastic = plan.NewElastic(j.Plan.Elastic.Pipelines)
		o.Elastic.Alpha = j.AlphaOf(j.Plan.Elastic.Pipelines)
		if j.Plan.Elastic.Averaging != "" {
			o.Elastic.Order = plan.AveragingOrder(j.Plan.Elastic.Averaging)
		}
		if r := plan.Reference(j.Plan.Elastic.Reference); r != plan.Inline { // Inline may be only the job's default
			o.Elastic.Reference = r
		}
		if err := o.Elastic.Check(); err != nil {
			return o, cli.BadInput(fmt.Errorf("--pipelines, --alpha, --averaging, --reference: %w", err))
		}
	}
	if err := o.CheckNames(); err != nil { // check the names before anything is measured
		return o, Refused(j, err)
	}
	if j.Machine.Cluster == "" && j.Plan.File == "" { // the job is trained on this machine
		if err := o.Executed(); err != nil {
			return o, Refused(j, err)
		}
	}
	for _, at := range j.Plan.Split {
		at = strings.TrimSpace(at)
		n, err := strconv.Atoi(at)
		if err != nil {
			if n = slices.Index(layers, at); n < 0 {
				return o, cli.BadInput(fmt.Errorf("%s: %s has no layer %q; %s", j.Called("split"), j.Model.Name, at,
					registry.Instead(at, layers)))
			}
		}
		o.Split = append(o.Split, n)
	}
	return o, nil
}

// Refused marks an error of a search as bad input. It names the setting as the user gave it.
func Refused(j *job.Job, err error) error {
	var setting *tune.SettingError
	if errors.As(err, &setting) {
		err = fmt.Errorf("%s: %w", j.Called(setting.Key), setting.Err)
	}
	return cli.BadInput(err)
}

// DataOption is the option --data, for verbs that take no other option of a training.
func DataOption() job.Option {
	return job.Option{Name: "data", Doc: "what to train on (default: random samples)",
		Set: func(j *job.Job, v string) error { j.Data.Source = v; return nil }}
}

func Trimmed(name string) string {
	base := filepath.Base(name)
	return base[:len(base)-len(filepath.Ext(base))]
}
