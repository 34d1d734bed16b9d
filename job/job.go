// Package job is what a user asks of millrace in one file: model, data, workers, how to
// train, where to write.
//
// In: a YAML file, and settings by name from a command line, which win. Out: a Job with
// every default filled in. Refused: unknown keys, quoting the line, and values that
// cannot be; the schema that editors complete from is Schema.
package job

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/internal/document"
	"github.com/millrace-ml/millrace/internal/strictyaml"
	"github.com/millrace-ml/millrace/stage/optim"
)

// Job is one training run.
type Job struct {
	Model    string         `json:"model,omitempty" yaml:"model"`
	Settings map[string]any `json:"settings,omitempty" yaml:"settings"`
	// Freeze is patterns of parameters that do not learn.
	Freeze []string `json:"freeze,omitempty" yaml:"freeze"`
	Data   string   `json:"data,omitempty" yaml:"data"`
	// TrainPart is which part of the rows of arrays trains; 0 is data's default.
	TrainPart float64 `json:"train_part,omitempty" yaml:"train_part"`
	Tokenizer string  `json:"tokenizer,omitempty" yaml:"tokenizer"`
	Seed      uint64  `json:"seed,omitempty" yaml:"seed"`
	Init      string  `json:"init,omitempty" yaml:"init"`

	Workers          int    `json:"workers,omitempty" yaml:"workers"`
	Cores            int    `json:"cores,omitempty" yaml:"cores"`
	ThreadsPerWorker int    `json:"threads_per_worker,omitempty" yaml:"threads_per_worker"`
	Bind             string `json:"bind,omitempty" yaml:"bind"`

	Cluster   string `json:"cluster,omitempty" yaml:"cluster"`
	Precision string `json:"precision,omitempty" yaml:"precision"`
	// Tensor is the devices of a tensor-parallel group; several are tried by a sweep.
	Tensor           []int `json:"tensor,omitempty" yaml:"tensor"`
	SequenceParallel bool  `json:"sequence_parallel,omitempty" yaml:"sequence_parallel"`

	Batch int `json:"batch,omitempty" yaml:"batch"`
	Steps int `json:"steps,omitempty" yaml:"steps"`

	Optimizer optim.Settings `json:"optimizer,omitzero" yaml:"optimizer"`
	Rate      optim.Rate     `json:"rate,omitzero" yaml:"rate"`
	Clip      float64        `json:"clip,omitempty" yaml:"clip"`
	// PostValidate has plans with a flush validate their updates in the next step.
	PostValidate bool `json:"post_validate,omitempty" yaml:"post_validate"`

	Wire         string   `json:"wire,omitempty" yaml:"wire"`
	Stages       int      `json:"stages,omitempty" yaml:"stages"`
	Split        []string `json:"split,omitempty" yaml:"split"`
	Schedule     string   `json:"schedule,omitempty" yaml:"schedule"`
	Program      string   `json:"program,omitempty" yaml:"program"`
	Weights      string   `json:"weights,omitempty" yaml:"weights"`
	Staleness    *int     `json:"staleness,omitempty" yaml:"staleness"`
	Boundary     string   `json:"boundary,omitempty" yaml:"boundary"`
	Pipelines    int      `json:"pipelines,omitempty" yaml:"pipelines"`
	Alpha        float64  `json:"alpha,omitempty" yaml:"alpha"`
	Averaging    string   `json:"averaging,omitempty" yaml:"averaging"`
	Reference    string   `json:"reference,omitempty" yaml:"reference"`
	RateScale    string   `json:"rate_scale,omitempty" yaml:"rate_scale"`
	Advance      string   `json:"advance,omitempty" yaml:"advance"`
	BatchNorm    string   `json:"batch_norm,omitempty" yaml:"batch_norm"`
	MicroBatch   int      `json:"micro_batch,omitempty" yaml:"micro_batch"`
	MicroBatches int      `json:"micro_batches,omitempty" yaml:"micro_batches"`
	Recompute    string   `json:"recompute,omitempty" yaml:"recompute"`
	MemoryLimit  string   `json:"memory_limit,omitempty" yaml:"memory_limit"`
	Profile      string   `json:"profile,omitempty" yaml:"profile"`
	Thorough     bool     `json:"thorough,omitempty" yaml:"thorough"`
	Plan         string   `json:"plan,omitempty" yaml:"plan"`
	AnyOrder     bool     `json:"any_order,omitempty" yaml:"any_order"`
	Collectives  string   `json:"collectives,omitempty" yaml:"collectives"`

	EvalEvery      int    `json:"eval_every,omitempty" yaml:"eval_every"`
	EvalRows       int    `json:"eval_rows,omitempty" yaml:"eval_rows"`
	SaveEvery      int    `json:"save_every,omitempty" yaml:"save_every"`
	SaveMode       string `json:"save_mode,omitempty" yaml:"save_mode"`
	Keep           int    `json:"keep,omitempty" yaml:"keep"`
	Resume         string `json:"resume,omitempty" yaml:"resume"`
	ResumeAveraged bool   `json:"resume_averaged,omitempty" yaml:"resume_averaged"`
	Replay         string `json:"replay,omitempty" yaml:"replay"`
	Out            string `json:"out,omitempty" yaml:"out"`
	Overwrite      bool   `json:"overwrite,omitempty" yaml:"overwrite"`
	Metrics        string `json:"metrics,omitempty" yaml:"metrics"`
	Live           string `json:"live,omitempty" yaml:"live"`
	TokenFile      string `json:"token_file,omitempty" yaml:"token_file"`

	frozen bool // a flag has named patterns of Freeze, which wins over those of a file

	given map[string]string // keys that are set, like rate.base, and by whom: --lr, job.yaml, or empty
}

// Given says whether somebody has set a key, such as batch or rate.base, to whatever value.
func (j *Job) Given(key string) bool {
	_, given := j.given[key]
	return given
}

// Give notes that a key is set.
func (j *Job) Give(key string) { j.giveBy(key, "") }

// TakeBack notes that keys are not set, whose values are zero again.
func (j *Job) TakeBack(keys ...string) {
	for _, key := range keys {
		delete(j.given, key)
	}
}

// giveBy notes that a key is set by a flag or a file.
func (j *Job) giveBy(key, by string) {
	if j.given == nil {
		j.given = map[string]string{}
	}
	if by != "" || !j.Given(key) {
		j.given[key] = by
	}
}

// Called is a key as whoever has set it knows it: by the flag, or with the job file that it stands in.
func (j *Job) Called(key string) string {
	switch by := j.given[key]; {
	case strings.HasPrefix(by, "--"):
		return by
	case by != "":
		return key + " in " + by
	}
	return key
}

// wrong refuses a key's value and says what would be right.
func (j *Job) wrong(key string, value any, right string) error {
	if word, is := value.(string); is {
		value = strconv.Quote(word)
	}
	return fmt.Errorf("%s is %v; give %s", j.Called(key), value, right)
}

// The SaveModes: nothing is in flight as a checkpoint is written, or each stage writes its own behind its last update.
const (
	SaveDrained = "drain"
	SaveStage   = "stage"
)

// PerSlice is the BatchNorm under which statistics are of slices of micro-batches.
const PerSlice = "per_slice"

// The Collectives say who sums gradients over replicas: millrace itself in rank order, which leaves the same bits
// anywhere, or Gloo, to a bound. Left out it is Ordered.
const (
	Ordered = "ordered"
	Native  = "native"
)

// The RateScales set the rate of several pipelines from one that was chosen for a single one. `millrace-lab bench
// curves` measures what they come to, in epochs to a target.
//
// ScaleByPipelines multiplies the rate by the number of pipelines, each of which takes as large a batch as one
// did: the reference moves by the mean of their steps. That is a batch so many times as large, with what this
// costs where batches were not small.
//
// ScaleSplit is for pipelines of which each takes an N-th of the batch, so that an iteration learns from as many
// samples as a step of one did. The mean of N steps in proportion to gradients is the step of the whole batch, at
// the same rate. With Adam, or where gradients are clipped, a step is about as long whatever the batch; the mean
// of N whose noise points elsewhere is shorter by up to the root of N, which the rate is multiplied by. Alpha is
// one and a half over N.
const (
	ScaleByPipelines = "pipelines"
	ScaleSplit       = "split"
)

// RateFactor is what the RateScale multiplies the rate by for so many pipelines; one pipeline trains as ever.
func (j *Job) RateFactor(pipelines int) float64 {
	switch {
	case pipelines > 1 && j.RateScale == ScaleByPipelines:
		return float64(pipelines)
	case pipelines > 1 && j.RateScale == ScaleSplit && (j.Clip > 0 || likeRates(j.Optimizer.Kind) != optim.SGD):
		return math.Sqrt(float64(pipelines))
	}
	return 1
}

// AlphaOf is the part of the reference that each of so many pipelines takes over: as given, the RateScale's, or the
// paper's 1/N.
func (j *Job) AlphaOf(pipelines int) float64 {
	switch n := float64(max(pipelines, 1)); {
	case j.Alpha != Auto:
		return j.Alpha
	case j.RateScale == ScaleSplit:
		return min(1, 1.5/n)
	default:
		return 1 / n
	}
}

// Values of Bind. Left out, workers are bound where no other run on this machine has bound its own.
const (
	BindAlways = "always"
	BindNever  = "never"
)

// AutoAdvance is the Advance that adapts while training goes on.
const AutoAdvance = "auto"

// PrintedAdvance adapts as AutoAdvance does, by as many forwards on every stage: AvgPipe's Algorithm 1 as each GPU
// runs it for itself.
const PrintedAdvance = "printed"

// Advances says whether forwards in advance adapt while training goes on.
func (j *Job) Advances() bool { return j.Advance == AutoAdvance || j.Advance == PrintedAdvance }

// Auto in place of a number leaves it to millrace, where 0 says something else. A job that was given
// this very number is refused, as those below 0 are.
const Auto = math.MinInt32

// mostWorkers is beyond what one machine runs, and within what a plan is found for.
const mostWorkers = 4096

// Default is a Job with the settings that need no thought. Optimizer, rate and data depend on
// the model and are filled by Complete.
func Default() Job {
	return Job{
		Workers: Auto, ThreadsPerWorker: 1, Batch: 32, Steps: 200, Recompute: "auto", Keep: 3, Seed: 1,
		Optimizer: optim.Settings{Momentum: Auto, WeightDecay: Auto, Beta1: Auto, Beta2: Auto, Epsilon: Auto,
			Trust: Auto, AverageFrom: Auto},
		Rate: optim.Rate{Base: Auto, Warmup: Auto, Total: Auto, Power: Auto}, EvalRows: Auto, Alpha: Auto,
	}
}

// Read lays a job file over j. Unknown keys are errors that quote the line.
func (j *Job) Read(path string) error {
	text, err := document.Read(path, strictyaml.MaxBytes)
	if err != nil {
		return fmt.Errorf("job: %w", err)
	}
	if err := j.decode(text, path); err != nil {
		return fmt.Errorf("job: %s: %w", path, err)
	}
	return nil
}

// decode lays a text over j; by is what its keys are set by.
func (j *Job) decode(text []byte, by string) error {
	err := strictyaml.Decode(text, j)
	if errors.Is(err, io.EOF) {
		return nil // an empty file asks for nothing
	}
	if err != nil {
		return err
	}
	var keys map[string]any
	if err := strictyaml.Decode(text, &keys); err != nil {
		return err
	}
	j.giveAll("", by, keys)
	return nil
}

// giveAll notes the keys of a file. One without a value is not set.
func (j *Job) giveAll(within, by string, keys map[string]any) {
	for name, value := range keys {
		switch below, isMap := value.(map[string]any); {
		case isMap && within+name != "settings":
			j.giveAll(within+name+".", by, below)
		case value != nil:
			j.giveBy(within+name, by)
		}
	}
}

// Complete fills in what depends on other settings, and refuses what cannot be.
func (j *Job) Complete() error {
	if j.Model == "" {
		return errors.New("no model is named; give --model: a name that millrace model ls lists, a .yaml file or a PyTorch " +
			"network")
	}
	if j.Cluster != "" && j.Wire != "" {
		return fmt.Errorf("%s puts workers of this machine behind the links of %s, and %s %s is other hardware; leave one "+
			"out", j.Called("wire"), j.Wire, j.Called("cluster"), j.Cluster)
	}
	if p := j.Precision; p != "" && !slices.Contains(cluster.Precisions, p) {
		return j.wrong("precision", p, strings.Join(cluster.Precisions, ", "))
	}
	if j.Precision != "" && j.Cluster == "" && j.Plan == "" {
		return fmt.Errorf("%s is %s, which is of described devices: name them with --cluster", j.Called("precision"),
			j.Precision)
	}
	for _, t := range j.Tensor {
		if t < 1 || t > 64 {
			return j.wrong("tensor", t, "1 to 64 devices")
		}
	}
	if (len(j.Tensor) > 0 || j.SequenceParallel) && j.Cluster == "" {
		return fmt.Errorf("%s: tensor-parallel groups are of described devices: name them with --cluster",
			j.Called("tensor"))
	}
	all := j.Workers == Auto && !j.Given("workers") && j.Cluster != ""
	if j.Workers == Auto && !j.Given("workers") {
		j.Workers = 2
	}
	if err := j.checkCounts(); err != nil {
		return err
	}
	if all {
		j.Workers = cluster.MaxDevices
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
	if j.MemoryLimit != "" {
		if n, err := cluster.ParseBytes(j.MemoryLimit); err != nil || n == 0 {
			return j.wrong("memory_limit", j.MemoryLimit, "a size over 0 with its unit, like 512MiB, or leave it out")
		}
	}
	return nil
}

// MemoryBytes is the memory limit of each worker; 0 is none. The Job must be complete.
func (j *Job) MemoryBytes() int64 {
	if j.MemoryLimit == "" {
		return 0
	}
	n, err := cluster.ParseBytes(j.MemoryLimit)
	if err != nil {
		panic("job: MemoryBytes of a Job that is not complete: " + err.Error())
	}
	return n
}

// Schema is the JSON schema of a job file.
func Schema() ([]byte, error) {
	s, err := jsonschema.For[Job](nil)
	if err != nil {
		return nil, fmt.Errorf("job: schema: %w", err)
	}
	s.Title = "millrace job"
	for key, property := range s.Properties {
		property.Description = says[key]
	}
	text, err := json.MarshalIndent(s, "", "  ")
	return append(text, '\n'), err
}

// SettingsText says with which settings the model is built, by name: "context 64, layers 3"; empty where none is given.
func (j *Job) SettingsText() string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(j.Settings)) {
		all = append(all, fmt.Sprintf("%s %v", name, j.Settings[name]))
	}
	return strings.Join(all, ", ")
}
