// Package job is what a user asks of millrace in one file: model, data, machine, plan, training, checkpoints,
// output.
//
// In: a YAML file, and settings by name from a command line, which override the file. Out: a Job with every default
// filled in. Refused: unknown keys, with the line, and impossible values. Schema returns the schema from which
// editors complete keys.
//
// A file is nested, with a group of settings under each key ("plan: {batch: 32}"). It may also be flat, with all
// settings on one level ("batch: 32"), as older files are. A file that mixes both is refused. A setting's key is its
// name in the flat form: short and unique. Its path is its place in the nested form. Given, Called and errors use
// keys; users who have written a path in a file see that path in messages.
package job

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/stage/optim"
)

// Job describes one training run. Its settings are grouped as `millrace help train all` groups its flags.
type Job struct {
	Model   Model   `json:"model,omitzero" yaml:"model"`
	Data    Data    `json:"data,omitzero" yaml:"data"`
	Machine Machine `json:"machine,omitzero" yaml:"machine"`
	Plan    Plan    `json:"plan,omitzero" yaml:"plan"`
	Train   Train   `json:"train,omitzero" yaml:"train"`
	Save    Save    `json:"save,omitzero" yaml:"save"`
	Output  Output  `json:"output,omitzero" yaml:"output"`

	givens `json:"-" yaml:"-"`
}

// Model is the model to train.
type Model struct {
	Name     string         `json:"name,omitempty" yaml:"name" flat:"model"`
	Settings map[string]any `json:"settings,omitempty" yaml:"settings"`
	// Freeze holds patterns of parameters that do not learn.
	Freeze []string `json:"freeze,omitempty" yaml:"freeze"`
	Init   string   `json:"init,omitempty" yaml:"init"`

	frozen bool // a flag has given Freeze, so further flags add to it
}

// Data is the data to learn from, and their order.
type Data struct {
	Source    string `json:"source,omitempty" yaml:"source" flat:"data"`
	Tokenizer string `json:"tokenizer,omitempty" yaml:"tokenizer"`
	// TrainPart is the fraction of an array's rows used for training; 0 means the default of package data.
	TrainPart float64 `json:"train_part,omitempty" yaml:"train_part"`
	Seed      uint64  `json:"seed,omitempty" yaml:"seed"`
}

// Machine is the hardware to train on: workers of this machine, or of a described cluster.
type Machine struct {
	Workers          int    `json:"workers,omitempty" yaml:"workers"`
	Cluster          string `json:"cluster,omitempty" yaml:"cluster"`
	MemoryLimit      string `json:"memory_limit,omitempty" yaml:"memory_limit"`
	Thorough         bool   `json:"thorough,omitempty" yaml:"thorough"`
	Cores            int    `json:"cores,omitempty" yaml:"cores"`
	ThreadsPerWorker int    `json:"threads_per_worker,omitempty" yaml:"threads_per_worker"`
	Precision        string `json:"precision,omitempty" yaml:"precision"`
	// Tensor is the number of devices of a tensor-parallel group. A sweep may try several.
	Tensor           []int  `json:"tensor,omitempty" yaml:"tensor"`
	SequenceParallel bool   `json:"sequence_parallel,omitempty" yaml:"sequence_parallel"`
	Wire             string `json:"wire,omitempty" yaml:"wire"`
	Bind             string `json:"bind,omitempty" yaml:"bind"`
	Collectives      string `json:"collectives,omitempty" yaml:"collectives"`
}

// Plan holds the number of samples in a step, and the settings of the plan that are fixed. The planner searches for the
// others.
type Plan struct {
	Batch        int      `json:"batch,omitempty" yaml:"batch"`
	Stages       int      `json:"stages,omitempty" yaml:"stages"`
	Schedule     string   `json:"schedule,omitempty" yaml:"schedule"`
	MicroBatches int      `json:"micro_batches,omitempty" yaml:"micro_batches"`
	MicroBatch   int      `json:"micro_batch,omitempty" yaml:"micro_batch"`
	File         string   `json:"file,omitempty" yaml:"file" flat:"plan"`
	Split        []string `json:"split,omitempty" yaml:"split"`
	Weights      string   `json:"weights,omitempty" yaml:"weights"`
	Staleness    *int     `json:"staleness,omitempty" yaml:"staleness"`
	Boundary     string   `json:"boundary,omitempty" yaml:"boundary"`
	Recompute    string   `json:"recompute,omitempty" yaml:"recompute"`
	Shard        string   `json:"shard,omitempty" yaml:"shard"`
	Gradients    string   `json:"gradients,omitempty" yaml:"gradients"`
	Profile      string   `json:"profile,omitempty" yaml:"profile"`
	Program      string   `json:"program,omitempty" yaml:"program"`
	AnyOrder     bool     `json:"any_order,omitempty" yaml:"any_order"`
	Elastic      Elastic  `json:"elastic,omitzero" yaml:"elastic"`
	Advance      string   `json:"advance,omitempty" yaml:"advance"`
	BatchNorm    string   `json:"batch_norm,omitempty" yaml:"batch_norm"`
	// PostValidate makes plans with a flush validate their updates in the next step.
	PostValidate bool `json:"post_validate,omitempty" yaml:"post_validate"`
}

// Elastic describes parallel pipelines with a common reference model (AvgPipe).
type Elastic struct {
	Pipelines int     `json:"pipelines,omitempty" yaml:"pipelines"`
	Alpha     float64 `json:"alpha,omitempty" yaml:"alpha"`
	Averaging string  `json:"averaging,omitempty" yaml:"averaging"`
	Reference string  `json:"reference,omitempty" yaml:"reference"`
}

// Train says for how many steps the model learns, and with which optimizer and learning rate. It also says how often
// the model is evaluated.
type Train struct {
	Steps     int            `json:"steps,omitempty" yaml:"steps"`
	Optimizer optim.Settings `json:"optimizer,omitzero" yaml:"optimizer"`
	Rate      optim.Rate     `json:"rate,omitzero" yaml:"rate"`
	RateScale string         `json:"rate_scale,omitempty" yaml:"rate_scale"`
	Clip      float64        `json:"clip,omitempty" yaml:"clip"`
	EvalEvery int            `json:"eval_every,omitempty" yaml:"eval_every"`
	EvalRows  int            `json:"eval_rows,omitempty" yaml:"eval_rows"`
	Replay    string         `json:"replay,omitempty" yaml:"replay"`
}

// Save says when checkpoints are written, how many are kept, and from which one a run continues.
type Save struct {
	Every          int    `json:"every,omitempty" yaml:"every" flat:"save_every"`
	Mode           string `json:"mode,omitempty" yaml:"mode" flat:"save_mode"`
	Keep           int    `json:"keep,omitempty" yaml:"keep"`
	Resume         string `json:"resume,omitempty" yaml:"resume"`
	ResumeAveraged bool   `json:"resume_averaged,omitempty" yaml:"resume_averaged"`
}

// Output says where a run writes, and who may watch it.
type Output struct {
	Folder    string `json:"folder,omitempty" yaml:"folder" flat:"out"`
	Overwrite bool   `json:"overwrite,omitempty" yaml:"overwrite"`
	Live      string `json:"live,omitempty" yaml:"live"`
	Metrics   string `json:"metrics,omitempty" yaml:"metrics"`
	TokenFile string `json:"token_file,omitempty" yaml:"token_file"`
}

// These are the values of Save.Mode. With SaveDrained a checkpoint is written when nothing is in flight. With SaveStage
// each stage writes its own part after its last update of the step that is saved, without a drain.
const (
	SaveDrained = "drain"
	SaveStage   = "stage"
)

// PerSlice is the BatchNorm setting that computes statistics over slices of micro-batches.
const PerSlice = "per_slice"

// These are the values of Machine.Collectives. Ordered sums gradients over replicas in millrace, in rank order, which
// gives the same bits everywhere. Native uses Gloo, with results equal up to a bound. The default is Ordered.
const (
	Ordered = "ordered"
	Native  = "native"
)

// These are the values of Train.RateScale. They derive the learning rate of several pipelines from one chosen for a
// single pipeline. `millrace-lab bench curves` measures how many epochs a training then needs to reach a target.
//
// ScaleByPipelines multiplies the rate by the number of pipelines. It is for pipelines that each take as large a batch
// as the single pipeline. The reference moves by the mean of the pipelines' steps. So they train as if the batch were
// larger, which has drawbacks unless batches were small.
//
// ScaleSplit is for N pipelines that each take 1/N of the batch. An iteration of all pipelines then uses as many
// samples as a step of the single pipeline. If steps are proportional to gradients, the mean of N steps is the step of
// the whole batch, at the same rate. With Adam, or with clipped gradients, a step has about the same length for any
// batch. The mean of N steps with different noise is shorter by a factor of up to the square root of N, so the rate is
// multiplied by that root. Alpha is 1.5/N.
const (
	ScaleByPipelines = "pipelines"
	ScaleSplit       = "split"
)

// RateFactor returns the factor of the rate under the RateScale with this many pipelines. It is 1 for one pipeline.
func (t *Train) RateFactor(pipelines int) float64 {
	switch {
	case pipelines > 1 && t.RateScale == ScaleByPipelines:
		return float64(pipelines)
	case pipelines > 1 && t.RateScale == ScaleSplit && (t.Clip > 0 || likeRates(t.Optimizer.Kind) != optim.SGD):
		return math.Sqrt(float64(pipelines))
	}
	return 1
}

// AlphaOf returns the fraction of the reference that each pipeline takes over: the given value, the RateScale's, or
// the paper's 1/N.
func (j *Job) AlphaOf(pipelines int) float64 {
	switch n := float64(max(pipelines, 1)); {
	case j.Plan.Elastic.Alpha != Auto:
		return j.Plan.Elastic.Alpha
	case j.Train.RateScale == ScaleSplit:
		return min(1, 1.5/n)
	default:
		return 1 / n
	}
}

// These are the values of Machine.Bind. By default workers are bound, unless another run on this machine has bound its
// workers.
const (
	BindAlways = "always"
	BindNever  = "never"
)

// AutoAdvance is the value of Plan.Advance with which the number of forwards in advance adapts during training.
const AutoAdvance = "auto"

// PrintedAdvance adapts like AutoAdvance, but by the same number of forwards on every stage. This is AvgPipe's
// Algorithm 1 when each GPU runs it for itself.
const PrintedAdvance = "printed"

// Advances reports whether forwards in advance adapt during training.
func (p *Plan) Advances() bool { return p.Advance == AutoAdvance || p.Advance == PrintedAdvance }

// Auto, as the value of a setting, means that millrace chooses the number. It serves settings for which 0 has another
// meaning. If a user gives this very number, it is refused, as other negative numbers are.
const Auto = math.MinInt32

// mostWorkers limits the workers of a job. One machine cannot run as many, and the planner can still find a plan for
// them.
const mostWorkers = 4096

// Default returns a Job with the defaults that do not depend on other settings. Optimizer and rate depend on the model,
// and Complete fills them in.
func Default() Job {
	return Job{
		Data:    Data{Seed: 1},
		Machine: Machine{Workers: Auto, ThreadsPerWorker: 1},
		Plan:    Plan{Batch: 32, Recompute: "auto", Elastic: Elastic{Alpha: Auto}},
		Train: Train{
			Steps: 200,
			Optimizer: optim.Settings{Momentum: Auto, WeightDecay: Auto, Beta1: Auto, Beta2: Auto, Epsilon: Auto,
				Trust: Auto, AverageFrom: Auto},
			Rate:     optim.Rate{Base: Auto, Warmup: Auto, Total: Auto, Power: Auto},
			EvalRows: Auto,
		},
		Save: Save{Keep: 3},
	}
}

// Complete fills in settings that depend on others, and refuses impossible ones.
func (j *Job) Complete() error {
	if j.Model.Name == "" {
		return errors.New("no model is named; give --model: a name that millrace model ls lists, a .yaml file or a PyTorch " +
			"network")
	}
	if j.Machine.Cluster != "" && j.Machine.Wire != "" {
		return fmt.Errorf("%s puts workers of this machine behind the links of %s, and %s %s is other hardware; leave one "+
			"out", j.Called("wire"), j.Machine.Wire, j.Called("cluster"), j.Machine.Cluster)
	}
	if p := j.Machine.Precision; p != "" && !slices.Contains(cluster.Precisions, p) {
		return j.wrong("precision", p, strings.Join(cluster.Precisions, ", "))
	}
	if j.Machine.Precision != "" && j.Machine.Cluster == "" && j.Plan.File == "" {
		return fmt.Errorf("%s is %s, which is of described devices: name them with --cluster", j.Called("precision"),
			j.Machine.Precision)
	}
	for _, t := range j.Machine.Tensor {
		if t < 1 || t > 64 {
			return j.wrong("tensor", t, "1 to 64 devices")
		}
	}
	if (len(j.Machine.Tensor) > 0 || j.Machine.SequenceParallel) && j.Machine.Cluster == "" {
		return fmt.Errorf("%s: tensor-parallel groups are of described devices: name them with --cluster",
			j.Called("tensor"))
	}
	all := j.Machine.Workers == Auto && !j.Given("workers") && j.Machine.Cluster != ""
	if j.Machine.Workers == Auto && !j.Given("workers") {
		j.Machine.Workers = 2
	}
	if err := j.checkCounts(); err != nil {
		return err
	}
	if all {
		j.Machine.Workers = cluster.MaxDevices
	}
	if err := j.checkChoices(); err != nil {
		return err
	}
	if err := j.checkTogether(); err != nil {
		return err
	}
	if err := j.completeOptimizer(); err != nil {
		return err
	}
	if err := j.completeRate(); err != nil {
		return err
	}
	if j.Machine.MemoryLimit != "" {
		if n, err := cluster.ParseBytes(j.Machine.MemoryLimit); err != nil || n == 0 {
			return j.wrong("memory_limit", j.Machine.MemoryLimit,
				"a size over 0 with its unit, like 83200B, 512MiB or 16GB, or leave it out")
		}
	}
	return nil
}

// MemoryBytes returns the memory limit of each worker; 0 means no limit. The Job must be complete.
func (m *Machine) MemoryBytes() int64 {
	if m.MemoryLimit == "" {
		return 0
	}
	n, err := cluster.ParseBytes(m.MemoryLimit)
	if err != nil {
		panic("job: MemoryBytes of a Job that is not complete: " + err.Error())
	}
	return n
}

// SettingsText returns the settings of the model, by name: "context 64, layers 3". It is empty if none is given.
func (m *Model) SettingsText() string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(m.Settings)) {
		all = append(all, fmt.Sprintf("%s %v", name, m.Settings[name]))
	}
	return strings.Join(all, ", ")
}
