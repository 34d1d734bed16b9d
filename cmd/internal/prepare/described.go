package prepare

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/sim"
)

// DescribedCluster reads the cluster file that a job names, and cuts it to the job's workers and cores. It groups the
// devices if the job asks for tensor parallelism. The job's workers are then the cluster's devices.
func DescribedCluster(c *cobra.Command, j *job.Job) (*cluster.Cluster, error) {
	all, err := cluster.Read(j.Machine.Cluster)
	if err != nil {
		return nil, cli.BadInput(err)
	}
	described, err := all.First(j.Machine.Workers)
	if err != nil {
		return nil, cli.BadInput(fmt.Errorf("%s %d: %w", j.Called("workers"), j.Machine.Workers, err))
	}
	if n := len(described.Devices); n < len(all.Devices) {
		fmt.Fprintf(c.ErrOrStderr(), "millrace: the first %d of the %d devices of %s, as %s asks\n", n,
			len(all.Devices), all.Name, j.Called("workers"))
	}
	if j.Machine.Cores > 0 {
		described = described.WithCores(j.Machine.Cores, 0)
	}
	if err := dividing(j, described); err != nil {
		return nil, err
	}
	switch len(j.Machine.Tensor) {
	case 0:
	case 1:
		if g := groupOf(described); g.Size > 1 && g.Size == j.Machine.Tensor[0] &&
			g.SequenceParallel == j.Machine.SequenceParallel {
			break // the cluster file already has these groups
		}
		if described, err = described.Grouped(j.Machine.Tensor[0], j.Machine.SequenceParallel); err != nil {
			return nil, cli.BadInput(fmt.Errorf("%s: %w", j.Called("tensor"), err))
		}
	default:
		return nil, cli.BadInput(fmt.Errorf("%s is %v: several are tried by plan --sweep; give one", j.Called("tensor"),
			j.Machine.Tensor))
	}
	j.Machine.Workers = len(described.Devices)
	return described, nil
}

// dividing refuses a job with sequence parallelism if its devices are not tensor-parallel groups. It also refuses such
// a job if the groups come from the cluster file, and the file has no sequence parallelism.
func dividing(j *job.Job, described *cluster.Cluster) error {
	g := groupOf(described)
	switch {
	case !j.Machine.SequenceParallel, len(j.Machine.Tensor) > 0 && j.Machine.Tensor[0] > 1,
		len(j.Machine.Tensor) == 0 && g.SequenceParallel:
		return nil
	case len(j.Machine.Tensor) == 0 && g.Size > 1:
		return cli.BadInput(fmt.Errorf("%s: the groups are those of %s: say sequence_parallel: true there",
			j.Called("sequence_parallel"), described.Name))
	}
	return cli.BadInput(fmt.Errorf("%s divides positions over a tensor-parallel group, and a device is alone: give "+
		"--tensor 2 or more, or leave it out", j.Called("sequence_parallel")))
}

// Analysis returns the options of an analytic profile for a job and these micro-batch sizes.
func Analysis(j *job.Job, sizes []int) profile.Analysis {
	return profile.Analysis{Sizes: sizes, Optimizer: j.Train.Optimizer.Kind, States: len(j.Train.Optimizer.States()),
		Precision: j.Machine.Precision}
}

// updates returns the optimizer and the clipping that a plan is predicted with. They are nil if they are the model's
// own. A given profile has the updates of its own optimizer.
func (p *Prepared) updates() *plan.Updates {
	o, clip := p.Job.Train.Optimizer, p.Job.Train.Clip
	switch {
	case p.Profile != nil && p.Job.Plan.Profile != "" && p.Profile.Optimizer != "" && p.Profile.Optimizer != o.Kind:
		return &plan.Updates{Optimizer: p.Profile.Optimizer, Clip: clip}
	case job.UsualUpdates(p.Job):
		return nil
	}
	return &plan.Updates{Optimizer: o.Kind, Momentum: o.Momentum, Nesterov: o.Nesterov, WeightDecay: o.WeightDecay,
		Clip: clip}
}

// PlannedModel returns the name or file of the model that the job's plan is for, or "" if there is no such plan.
func PlannedModel(j *job.Job) string {
	if j.Plan.File == "" {
		return ""
	}
	p, err := plan.Read(j.Plan.File)
	if err != nil {
		return ""
	}
	return modelOf(p)
}

// modelOf returns the name or file of the model that a plan is for.
func modelOf(p *plan.Plan) string {
	if p.Asked != nil && p.Asked.File != "" {
		return p.Asked.File
	}
	return p.Model
}

// OneRun reports whether the plan's prediction is of one simulation. Otherwise it is the mean of several, in each of
// which another worker is slow (sim.Expect).
func (p *Prepared) OneRun() bool {
	costs, err := sim.CostsOf(p.Profile, p.Cluster, p.Plan)
	return err == nil && costs.Plays(len(p.Plan.Devices())) == 1
}
