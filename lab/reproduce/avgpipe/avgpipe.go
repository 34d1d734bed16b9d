// Package avgpipe registers the experiments of AvgPipe's tables and figures.
//
// Input: an experiment's Options. Output: its Table. Errors: the planners' errors.
package avgpipe

import (
	"strings"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/lab/reproduce/table"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/tune/avgpipe"
)

// training is one of AvgPipe's three trainings (section 7).
type training struct {
	Name      string         `yaml:"name"`
	Cluster   string         `yaml:"cluster"`
	Batch     int            `yaml:"batch"`
	Pipelines int            `yaml:"pipelines"` // the largest number for which the guideline max-num finds enough memory
	Optimizer string         `yaml:"optimizer"`
	Settings  map[string]any `yaml:"settings"`
}

// launching describes a cluster with the paper's GPU. Its preset v100-32gb has the cost of each kernel. These costs
// include launches, and the efficiency of a matrix product depends on its size.
const launching = `
name: kernels
device_types: {v100: {like: v100-32gb}}
device: v100
levels: [{name: node, size: 1, bandwidth: 1GB/s}]
`

// described returns the training as a Workload without stages. Its costs follow from a roofline or, if `kernels` is
// set, from the costs of single kernels. It also returns all divisors of the batch, which are the possible sizes of
// micro-batches.
func (a training) described(kernels bool) (w *avgpipe.Workload, sizes []int, err error) {
	c, err := cluster.Preset(a.Cluster)
	if err != nil {
		return nil, nil, err
	}
	if kernels {
		other, err := cluster.Parse(strings.NewReader(launching))
		if err != nil {
			return nil, nil, err
		}
		c.DeviceTypes = other.DeviceTypes
	}
	m, err := model.Build(a.Name, a.Settings)
	if err != nil {
		return nil, nil, err
	}
	states := 0
	if a.Optimizer == "adam" {
		states = 2
	}
	sizes = plan.Divisors(a.Batch)
	p, err := profile.Analyze(m, c.DeviceTypes, profile.Analysis{Sizes: sizes, Optimizer: a.Optimizer, States: states,
		Recurrent: true})
	if err != nil {
		return nil, nil, err
	}
	return &avgpipe.Workload{Profile: p, Cluster: c, Batch: a.Batch, LimitBytes: c.MemoryBytes(0)}, sizes, nil
}

// note says how the trainings are modelled.
const note = "on 3 x 2 V100 over 1 Gbps (AWD: 2 x 2), layers by roofline; GNMT's sentences have 29 positions, BERT " +
	"is its large model at 512, AWD its 3 layers of 1150 units; stages by PipeDream's partitioner, which is shown no " +
	"wires: with them it gives GPU 1 BERT's embedding alone, and then advance could not spare 37.2 % of that GPU's memory"

// ofTrainings reads the trainings of a table, with the paper's statements on each.
func ofTrainings[W any](t *table.Table, name string) ([]W, error) {
	var paper struct {
		Source    string `yaml:"source"`
		Workloads []W    `yaml:"workloads"`
	}
	if err := table.Read(files, name, &paper); err != nil {
		return nil, err
	}
	t.Source = paper.Source
	t.Notes = append(t.Notes, note)
	return paper.Workloads, nil
}
