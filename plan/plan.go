// Package plan says what runs where: stages, replicas, devices, micro-batches.
//
// It holds the values, Plan and Request, with their checks and their file, the registry of planners, and what
// planners share: their settings and their refusals. A planner is a package below this one that registers
// itself; whoever asks for one by name imports plan/planners.
//
// In: a profile, a cluster, limits. Out: a Plan with the value of that planner's own objective. Refused:
// plans that contradict themselves, batches that CheckBatch refuses, settings that a planner does not have,
// and what no plan fits (with the smallest memory that would). It knows neither the order of instructions nor
// the simulator: planners use closed forms, and comparing candidates by simulation is tune's.
package plan

import (
	"fmt"
	"math"
	"slices"

	"github.com/millrace-ml/millrace/internal/packing"
)

// Version of the JSON form.
const Version = 1

// Stage is a run of layers on one or more devices.
type Stage struct {
	FirstLayer int   `json:"first_layer"`
	LastLayer  int   `json:"last_layer"` // inclusive
	Devices    []int `json:"devices"`    // one a replica
	// Fractions of the first and last layer that this stage computes (BaPipe's
	// intra-layer partition); 0 means all of it. Executed, they are rounded to whole output features (model.Cut).
	FirstFraction float64   `json:"first_fraction,omitempty"`
	LastFraction  float64   `json:"last_fraction,omitempty"`
	Recompute     Recompute `json:"recompute"`
	Warmup        int       `json:"warmup"` // K_i: forwards before the first backward
}

// Objective is what a planner minimised, by its own formula.
type Objective struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
}

// Predicted is what the simulator says of the plan, written before the first step.
type Predicted struct {
	StepS            float64 `json:"step_s"`
	SamplesPerSecond float64 `json:"samples_per_s"`
	Bubble           float64 `json:"bubble"` // 1 - sum(busy) / (workers x step)
	// MemoryBytes is the peak of training by device, of the simulated timing.
	MemoryBytes []int64 `json:"memory_bytes"`
	// AtMostBytes bounds it from above for any timing of training; nil where that is not known.
	AtMostBytes []int64 `json:"at_most_bytes,omitempty"`
	// EvaluationBytes is such a bound of an evaluation; nil where that is not known.
	EvaluationBytes []int64   `json:"evaluation_bytes,omitempty"`
	BusyS           []float64 `json:"busy_s"` // computing, by device, in one step
	PeakActivations []int     `json:"peak_activations"`
}

// Needs is what each device must have, for training however it comes and for evaluations.
func (p *Predicted) Needs() []int64 {
	return fullest(p.MemoryBytes, p.AtMostBytes, p.EvaluationBytes)
}

// Evaluated is the peak memory of each device in a training that evaluates: the greater of MemoryBytes and
// EvaluationBytes. Unlike Needs it does not allow for other timings.
func (p *Predicted) Evaluated() []int64 { return fullest(p.MemoryBytes, p.EvaluationBytes) }

// fullest is the most of each device; lists that are not known count for nothing.
func fullest(first []int64, others ...[]int64) []int64 {
	most := slices.Clone(first)
	for _, bytes := range others {
		if len(bytes) == len(most) {
			for i, b := range bytes {
				most[i] = max(most[i], b)
			}
		}
	}
	return most
}

// LowerBound is a step time that no plan of the same kind can beat.
type LowerBound struct {
	StepS float64 `json:"step_s"`
	Gap   float64 `json:"gap"` // predicted step over the bound, minus one
}

// Above is the gap in words: "5.8 % above", or from twice the bound on "3.1 times that".
func (b *LowerBound) Above() string {
	switch shown := math.Round(1000*b.Gap) / 10; {
	case b.Gap >= 1:
		return fmt.Sprintf("%.1f times that", 1+b.Gap)
	case shown < 0: // the plan's costs contradict those that the bound goes by
		return fmt.Sprintf("%.1f %% below", -shown)
	default:
		return fmt.Sprintf("%.1f %% above", max(0, shown)) // rounding can leave a gap of -0
	}
}

// Plan is how a model is spread over devices. Its fields are those of a plan's file, and its methods questions about
// them or other forms of it.
type Plan struct {
	Version int    `json:"version"`
	Model   string `json:"model"`
	ModelID string `json:"model_id"`
	// Asked is how to make that model again; nil where its name is enough.
	Asked   *Asked `json:"asked,omitempty"`
	Cluster string `json:"cluster"`
	// Precision is the format that it is predicted in, of cluster.Precisions; "" is f32, which alone is trained.
	Precision string `json:"precision,omitempty"`
	// Tensor says that each device of the plan is a tensor-parallel group; such plans are not trained here.
	Tensor *Tensor `json:"tensor,omitempty"`
	// Hardware is that cluster as its file has it, line by line; absent of a machine whose workers are threads.
	Hardware []string `json:"hardware,omitempty"`
	// Order is a topological order of the profile's layers in which every stage is a
	// run: stages count positions in it. Absent: the profile's own order.
	Order        []int   `json:"order,omitempty"`
	Stages       []Stage `json:"stages"`
	Replication  string  `json:"replication"` // "split" or "round_robin"
	MicroBatch   int     `json:"micro_batch"` // samples
	MicroBatches int     `json:"micro_batches"`
	Schedule     string  `json:"schedule"` // a family in package schedule: "1f1b", "afab", "dp", ...
	Weights      string  `json:"weights"`  // the weight policy: "sync"
	// Elastic is the pipelines side by side of the weight policy elastic; each has a step of
	// MicroBatches of its own.
	Elastic *Elastic `json:"elastic,omitempty"`
	// Staleness, of the weight policy asp, is how many minibatches a worker may be ahead of the slowest; absent: any
	// number.
	Staleness *int `json:"staleness,omitempty"`
	// Boundary is how stages on different workers write the activations and gradients that they send each other;
	// absent: as they are.
	Boundary packing.Format `json:"boundary,omitempty"`
	// Shard is what the replicas of a stage divide among them; absent: nothing, each has all.
	Shard Shard `json:"shard,omitempty"`
	// Gradients is when replicas sum them; absent: beside the last backward, as they are made.
	Gradients Gradients `json:"gradients,omitempty"`
	// PostValidate: where gradients are clipped, updates do not wait for their norm and are validated in
	// the next step (Qi et al., Zero Bubble, ICLR 2024, §4). It changes no weight.
	PostValidate bool   `json:"post_validate,omitempty"`
	Planner      string `json:"planner"`

	Objective  Objective   `json:"objective"`
	Predicted  *Predicted  `json:"predicted,omitempty"`
	LowerBound *LowerBound `json:"lower_bound,omitempty"`
	Why        []string    `json:"why,omitempty"` // what was compared and what decided, one sentence each
	// Rivals are what it was preferred to, the best first.
	Rivals []Rival `json:"rivals,omitempty"`
}

// Tensor is the groups that are a plan's devices (Shoeybi et al., Megatron-LM, 2019).
type Tensor struct {
	Devices          int  `json:"devices"`
	SequenceParallel bool `json:"sequence_parallel,omitempty"`
}

// Asked is how the model of a Plan was asked for: a file of it, settings of a built-in one, what is frozen.
type Asked struct {
	File     string         `json:"file,omitempty"`
	Settings map[string]any `json:"settings,omitempty"`
	Freeze   []string       `json:"freeze,omitempty"`
}

// Batch is the samples of one step of one pipeline.
func (p *Plan) Batch() int { return p.MicroBatch * p.MicroBatches }

// Sizes is the samples that its stages compute at once, ascending: a micro-batch, or where replicas split
// those the slices that they take.
func (p *Plan) Sizes() []int {
	var sizes []int
	for _, s := range p.Stages {
		n := 1
		if p.Replication == "split" {
			n = max(1, len(s.Devices))
		}
		sizes = append(sizes, p.MicroBatch/n, (p.MicroBatch+n-1)/n)
	}
	slices.Sort(sizes)
	sizes = slices.Compact(sizes)
	return slices.DeleteFunc(sizes, func(n int) bool { return n < 1 })
}
