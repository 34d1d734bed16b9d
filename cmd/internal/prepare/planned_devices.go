package prepare

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/tune/predict"
)

// takeOver sets the job's precision to that of its plan. If the job names a cluster file, takeOver also sets the plan's
// tensor-parallel groups. It refuses a job that sets a precision, groups, `shard` or `gradients` other than the plan's.
func takeOver(j *job.Job, pl *plan.Plan) error {
	refuse := func(key string, own, planned any) error {
		return fmt.Errorf("%s is %v; the plan in %s has %v: leave it out, or plan again with it", j.Called(key), own,
			j.Plan.File, planned)
	}
	planned := cmp.Or(pl.Precision, "f32")
	if own := cmp.Or(j.Machine.Precision, "f32"); j.Given("precision") && own != planned {
		return refuse("precision", own, planned)
	}
	t := cmp.Or(pl.Tensor, &plan.Tensor{Devices: 1})
	if len(j.Machine.Tensor) > 0 && (len(j.Machine.Tensor) > 1 || j.Machine.Tensor[0] != t.Devices) {
		return refuse("tensor", j.Machine.Tensor, t.Devices)
	}
	if j.Given("sequence_parallel") && j.Machine.SequenceParallel != t.SequenceParallel {
		return refuse("sequence_parallel", j.Machine.SequenceParallel, t.SequenceParallel)
	}
	if own := cmp.Or(j.Plan.Shard, "none"); j.Given("shard") && own != pl.Shard.String() {
		return refuse("shard", own, pl.Shard)
	}
	if own := cmp.Or(j.Plan.Gradients, "overlapped"); j.Given("gradients") && own != pl.Gradients.String() {
		return refuse("gradients", own, pl.Gradients)
	}
	j.Machine.Precision = pl.Precision
	if pl.Tensor != nil && j.Machine.Cluster != "" {
		j.Machine.Tensor, j.Machine.SequenceParallel = []int{t.Devices}, t.SequenceParallel
	}
	return nil
}

// suits refuses costs in another precision than the given plan's, and devices with other tensor-parallel groups.
func (p *Prepared) suits() error {
	planned, has := cmp.Or(p.Plan.Precision, "f32"), cmp.Or(p.Profile.Precision, "f32")
	if planned != has {
		return fmt.Errorf("the plan in %s is in %s, and the costs are in %s: name devices with --cluster, without "+
			"--profile, or plan again", p.Job.Plan.File, planned, has)
	}
	t, g := cmp.Or(p.Plan.Tensor, &plan.Tensor{Devices: 1}), groupOf(p.Cluster)
	if t.Devices != g.Size || t.SequenceParallel != g.SequenceParallel {
		return fmt.Errorf("the plan in %s has tensor-parallel groups of %d devices, sequence-parallel %v; those of %s are "+
			"of %d, %v: name the cluster that it is for, or plan again", p.Job.Plan.File, t.Devices, t.SequenceParallel,
			p.Cluster.Name, g.Size, g.SequenceParallel)
	}
	return nil
}

// hasDevices refuses a given plan with a worker on a device that is not there. Without a cluster, there are as many
// devices as the job has workers.
func (p *Prepared) hasDevices() error {
	if p.Plan == nil {
		return nil
	}
	last, n, each, where := slices.Max(p.Plan.Devices()), p.Job.Machine.Workers, 1, ""
	if p.Cluster != nil {
		n, each, where = len(p.Cluster.Devices), groupOf(p.Cluster).Size, " of "+p.Cluster.Name
	}
	if last < n {
		return nil
	}
	text := fmt.Sprintf("the plan in %s has a worker on device %d, counted from 0", p.Job.Plan.File, last)
	if p.Cluster != nil && !p.Job.Given("workers") {
		return cli.BadInput(fmt.Errorf("%s; %s has %s: name the cluster that it is for, or plan again", text, p.Cluster.Name,
			terminal.Count(n, "device")))
	}
	return cli.BadInput(fmt.Errorf("%s; %s takes %d devices%s: give %d or more, or plan again", text,
		p.Job.Called("workers"), n*each, where, (last+1)*each))
}

// groupOf returns the tensor-parallel group of a cluster's devices; a group of one device if they have none.
func groupOf(c *cluster.Cluster) cluster.Group {
	if len(c.Devices) > 0 {
		if g := c.DeviceTypes[c.Devices[0]].Group; g != nil {
			return *g
		}
	}
	return cluster.Group{Size: 1}
}

// SharedCores returns how many cores the workers of a plan share on this machine; 0 if each worker has its own core.
func SharedCores(j *job.Job, pl *plan.Plan) int {
	return predict.Cores(cluster.Local("any", j.Machine.Workers, CoresOf(j), 0, 0, 1, 1), pl, 0)
}
