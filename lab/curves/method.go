package curves

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/schedule"
)

// Method is one of the ways of learning that bench curves compares. It has a weight policy or elastic averaging, and
// may change settings of the job.
type Method struct {
	Name    string // as the user wrote it
	Policy  schedule.Policy
	Elastic *plan.Elastic // nil: no elastic averaging

	// Split gives each of N pipelines of elastic averaging 1/N of a batch. One iteration of all pipelines then has as
	// many samples as a step of other methods.
	Split    bool
	LR       float64 // factor of the learning rate; 0: the job's rule for pipelines that split a batch
	momentum float64 // of SGD; below 0: the job's
	beta1    float64 // of Adam and AdamW; below 0: the job's
	warmup   int     // steps; below 0: the job's
}

// UsualMethods are the methods that are compared by default.
var UsualMethods = []string{"sync", "stash", "vertical", "2bw", "latest", "elastic:2", "elastic:3"}

// ReadMethods reads methods. sync comes first, because the others are compared with it.
func ReadMethods(words []string) ([]Method, error) {
	all := []Method{{Name: "sync", Policy: schedule.Sync, LR: 1, momentum: -1, beta1: -1, warmup: -1}}
	seen := map[string]bool{"sync": true}
	for _, word := range words {
		if seen[word] {
			continue
		}
		seen[word] = true
		m, err := ReadMethod(word)
		if err != nil {
			return nil, fmt.Errorf("--methods: %q: %w", word, err)
		}
		all = append(all, m)
	}
	return all, nil
}

// SplitBatches is the setting with which the pipelines of elastic averaging share a batch.
const SplitBatches = "split"

// ReadMethod reads a method such as "stash" or "elastic:2", possibly with settings: "elastic:3:lr=1:alpha=0.5".
func ReadMethod(word string) (Method, error) {
	parts := strings.Split(word, ":")
	m := Method{Name: word, Policy: schedule.Policy(parts[0]), LR: 1, momentum: -1, beta1: -1, warmup: -1}
	parts = parts[1:]
	switch m.Policy {
	case schedule.Sync, schedule.Stash, schedule.Vertical, schedule.DoubleBuffered, schedule.Latest:
	case schedule.Elastic:
		n := 0
		if len(parts) > 0 {
			n, _ = strconv.Atoi(parts[0])
			parts = parts[1:]
		}
		if n < 2 || n > plan.MaxPipelines {
			return m, fmt.Errorf("give the number of pipelines, 2 to %d, like elastic:2", plan.MaxPipelines)
		}
		// The same samples should change the weights by the same amount; see plan.Elastic.
		m.Elastic, m.LR = plan.NewElastic(n), float64(n)
		if slices.Contains(parts, SplitBatches) {
			m.Split, m.LR = true, 0
			split := job.Default()
			split.Train.RateScale = job.ScaleSplit
			m.Elastic.Alpha = split.AlphaOf(n)
			parts = slices.DeleteFunc(parts, func(part string) bool { return part == SplitBatches })
		}
	default:
		return m, fmt.Errorf("there is no such method; there are sync, stash, vertical, 2bw, latest and elastic:N")
	}
	for _, part := range parts {
		if err := m.set(part); err != nil {
			return m, err
		}
	}
	return m, nil
}

// set changes a setting of the method, such as lr=1.
func (m *Method) set(setting string) error {
	name, value, _ := strings.Cut(setting, "=")
	number, err := strconv.ParseFloat(value, 64)
	if name == "order" && m.Elastic != nil {
		m.Elastic.Order = plan.AveragingOrder(value)
		return m.Elastic.Check()
	}
	if err != nil {
		return fmt.Errorf("setting %q; there are lr=FACTOR, momentum=M, beta1=B and warmup=STEPS, and of elastic split, "+
			"alpha=A and order=O", setting)
	}
	switch {
	case name == "lr" && number > 0:
		m.LR = number
	case name == "momentum" && number >= 0 && number < 1:
		m.momentum = number
	case name == "beta1" && number >= 0 && number < 1:
		m.beta1 = number
	case name == "warmup" && number >= 0 && number == float64(int(number)):
		m.warmup = int(number)
	case name == "alpha" && m.Elastic != nil:
		m.Elastic.Alpha = number
		return m.Elastic.Check()
	default:
		return fmt.Errorf("setting %q; there are lr=FACTOR above 0, momentum=M and beta1=B from 0 to below 1 and "+
			"warmup=STEPS, and of elastic split, alpha=A and order=O", setting)
	}
	return nil
}

// Pipelines returns how many models learn side by side.
func (m *Method) Pipelines() int {
	if m.Elastic == nil {
		return 1
	}
	return m.Elastic.Pipelines
}

// Plan returns the method's plan with the stages of `base`. With sync and elastic, a batch has `micros` micro-batches.
// With PipeDream-2BW it has at least one micro-batch for each stage. With PipeDream's other policies, a minibatch is
// not divided (section 3.2).
func (m *Method) Plan(base *plan.Plan, batch, micros int) *plan.Plan {
	pl := *base
	pl.Stages = slices.Clone(base.Stages)
	for i := range pl.Stages {
		pl.Stages[i].Warmup = 0 // 0 means the schedule's own warm-up
	}
	pl.Weights, pl.Elastic, pl.MicroBatches = string(m.Policy), m.Elastic, micros
	switch m.Policy {
	case schedule.Sync:
		pl.Schedule = "1f1b"
	case schedule.Elastic:
		pl.Schedule = "elastic"
	case schedule.DoubleBuffered:
		pl.Schedule, pl.MicroBatches = "1f1b-rr", max(micros, len(pl.Stages)) // with fewer micro-batches, stages would wait
	default:
		pl.Schedule, pl.MicroBatches = "1f1b-rr", 1
	}
	pl.MicroBatch = batch / pl.MicroBatches
	return &pl
}

// Factor returns the factor by which the method multiplies a job's learning rate.
func (m *Method) Factor(j *job.Job) float64 {
	if m.LR > 0 {
		return m.LR
	}
	split := job.Train{RateScale: job.ScaleSplit, Clip: j.Train.Clip, Optimizer: j.Train.Optimizer}
	return split.RateFactor(m.Pipelines())
}

// Job returns a job with the method's settings.
func (m *Method) Job(j *job.Job, seed uint64) job.Job {
	own := *j
	own.Data.Seed = seed
	own.Train.Rate.Base *= m.Factor(j)
	if m.Split {
		own.Plan.Batch /= m.Pipelines()
	} else {
		own.Train.Rate.Warmup /= m.Pipelines() // so that it covers the same number of samples
	}
	if m.momentum >= 0 {
		own.Train.Optimizer.Momentum = m.momentum
	}
	if m.beta1 >= 0 {
		own.Train.Optimizer.Beta1 = m.beta1
	}
	if m.warmup >= 0 {
		own.Train.Rate.Warmup = m.warmup
	}
	return own
}

// FlatDevice is a device on which every kind of layer reaches the peak speed. Stages then depend only on the model, so
// that the training can be repeated anywhere.
var FlatDevice = cluster.DeviceType{PeakFLOPS: 50e9, MemoryBandwidthBytesPerSecond: 10e9,
	Efficiency: map[string]float64{"": 1, "memory": 1}}

// MethodOf returns the first method with this policy, this number of pipelines and this value of Split. Elastic
// averaging with one pipeline counts as sync.
func MethodOf(methods []Method, policy schedule.Policy, pipelines int, split bool) (Method, bool) {
	if pipelines == 1 && policy == schedule.Elastic {
		policy = schedule.Sync // one pipeline is plain training
	}
	at := slices.IndexFunc(methods, func(m Method) bool {
		return m.Policy == policy && m.Pipelines() == pipelines && m.Split == split
	})
	if at < 0 {
		return Method{}, false
	}
	return methods[at], true
}
