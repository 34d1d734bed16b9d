// Package plan says what runs where: stages, replicas, devices, micro-batches.
//
// It holds the types Plan and Request with their checks and file format, and the registry of planners. It also has the
// settings and errors that planners share. A planner is a package below this one that registers itself. Code that looks
// up planners by name imports plan/planners.
//
// Input: a profile, a cluster, limits. Output: a Plan with the value of the planner's own objective. Errors: plans that
// contradict themselves, batches that CheckBatch refuses, settings that a planner does not have, and requests for which
// no plan fits the memory (with the least memory with which one fits). The package knows neither the order of
// instructions nor the simulator. Planners use closed forms; package tune compares candidates by simulation.
package plan

import (
	"fmt"
	"math"
	"slices"

	"github.com/millrace-ml/millrace/internal/packing"
)

// Version is the version of the JSON form.
const Version = 1

// Stage is a run of layers on one or more devices.
type Stage struct {
	FirstLayer int   `json:"first_layer"`
	LastLayer  int   `json:"last_layer"` // inclusive
	Devices    []int `json:"devices"`    // one per replica
	// FirstFraction and LastFraction say how much of its first and last layer the stage computes (BaPipe's intra-layer
	// partition); 0 means the whole layer. For execution both are rounded to whole output features (model.Cut).
	FirstFraction float64   `json:"first_fraction,omitempty"`
	LastFraction  float64   `json:"last_fraction,omitempty"`
	Recompute     Recompute `json:"recompute"`
	Warmup        int       `json:"warmup"` // K_i: forwards before the first backward
}

// Objective is the value that a planner minimised, by its own formula.
type Objective struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
}

// Predicted is the simulator's prediction for the plan, written before the first step.
type Predicted struct {
	StepS            float64 `json:"step_s"`
	SamplesPerSecond float64 `json:"samples_per_s"`
	Bubble           float64 `json:"bubble"` // 1 - sum(busy) / (workers x step)
	// MemoryBytes is each device's peak memory in training, with the simulated timing.
	MemoryBytes []int64 `json:"memory_bytes"`
	// AtMostBytes is an upper bound on each device's peak memory in training, for any timing; nil means unknown. Between
	// processes a slow link adds the messages that have not left their sender.
	AtMostBytes []int64 `json:"at_most_bytes,omitempty"`
	// EvaluationBytes is an upper bound on each device's peak memory in an evaluation; nil means unknown.
	EvaluationBytes []int64   `json:"evaluation_bytes,omitempty"`
	BusyS           []float64 `json:"busy_s"` // seconds of computing in one step, by device
	PeakActivations []int     `json:"peak_activations"`
	// PeakGradients is the gradients that each device holds at its peak, if updates are at the flush. Files do not have
	// it.
	PeakGradients []int64 `json:"-"`
}

// Needs returns the memory that each device must have for training with any timing, and for evaluations.
func (p *Predicted) Needs() []int64 {
	return fullest(p.MemoryBytes, p.AtMostBytes, p.EvaluationBytes)
}

// Evaluated returns the peak memory of each device in a training with evaluations: the greater of MemoryBytes and
// EvaluationBytes. Unlike Needs it does not cover other timings.
func (p *Predicted) Evaluated() []int64 { return fullest(p.MemoryBytes, p.EvaluationBytes) }

// fullest returns the maximum for each device. It skips lists that are unknown.
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
	Gap   float64 `json:"gap"` // predicted step / bound - 1
}

// Above returns the gap in words: "5.8 % above". If the step is at least twice the bound, it returns "3.1 times that".
func (b *LowerBound) Above() string {
	switch shown := math.Round(1000*b.Gap) / 10; {
	case b.Gap >= 1:
		return fmt.Sprintf("%.1f times that", 1+b.Gap)
	case shown < 0: // the plan's costs contradict those of the bound
		return fmt.Sprintf("%.1f %% below", -shown)
	default:
		return fmt.Sprintf("%.1f %% above", max(0, shown)) // rounding can leave a gap of -0
	}
}

// Plan says how a model is spread over devices. Its fields are those of a plan file. Its methods answer questions about
// the plan, or return it in other forms.
type Plan struct {
	Version int    `json:"version"`
	Model   string `json:"model"`
	ModelID string `json:"model_id"`
	// Asked says how to build and update the model again; nil if its name is enough.
	Asked   *Asked `json:"asked,omitempty"`
	Cluster string `json:"cluster"`
	// Precision is the number format of the prediction, one of cluster.Precisions; "" means f32. Package run executes
	// only f32.
	Precision string `json:"precision,omitempty"`
	// Tensor makes each device of the plan a tensor-parallel group; such plans are not trained here.
	Tensor *Tensor `json:"tensor,omitempty"`
	// Hardware holds the text of the cluster's file, line by line; absent for a machine whose workers are threads.
	Hardware []string `json:"hardware,omitempty"`
	// Order is a topological order of the profile's layers. Stages are runs of positions in it. Absent means the
	// profile's own order.
	Order        []int   `json:"order,omitempty"`
	Stages       []Stage `json:"stages"`
	Replication  string  `json:"replication"` // "split" or "round_robin"
	MicroBatch   int     `json:"micro_batch"` // samples
	MicroBatches int     `json:"micro_batches"`
	Schedule     string  `json:"schedule"` // a family in package schedule: "1f1b", "afab", "dp", ...
	Weights      string  `json:"weights"`  // the weight policy: "sync", "stash", "asp", ...
	// Elastic describes the pipelines that train side by side under the weight policy elastic. Each pipeline's step has
	// MicroBatches micro-batches.
	Elastic *Elastic `json:"elastic,omitempty"`
	// Staleness, for the weight policy asp, is how many minibatches a worker may be ahead of the slowest; absent means
	// any number.
	Staleness *int `json:"staleness,omitempty"`
	// Boundary is the format of activations and gradients sent between stages on different workers; absent means
	// unchanged.
	Boundary packing.Format `json:"boundary,omitempty"`
	// Shard says what the replicas of a stage shard; absent means that each keeps everything.
	Shard Shard `json:"shard,omitempty"`
	// Gradients says when replicas sum gradients; absent means during the last backward, as layers make them.
	Gradients Gradients `json:"gradients,omitempty"`
	// PostValidate lets updates begin before the gradient norm is known when gradients are clipped. The next step
	// validates the updates (Qi et al., Zero Bubble, ICLR 2024, §4). The resulting weights are the same as without it.
	PostValidate bool   `json:"post_validate,omitempty"`
	Planner      string `json:"planner"`

	Objective  Objective   `json:"objective"`
	Predicted  *Predicted  `json:"predicted,omitempty"`
	LowerBound *LowerBound `json:"lower_bound,omitempty"`
	Why        []string    `json:"why,omitempty"` // sentences that say what was compared and what decided
	// Rivals are the plans that lost to this one, the best first.
	Rivals []Rival `json:"rivals,omitempty"`
}

// Tensor describes the tensor-parallel groups that are a plan's devices (Shoeybi et al., Megatron-LM, 2019).
type Tensor struct {
	Devices          int  `json:"devices"`
	SequenceParallel bool `json:"sequence_parallel,omitempty"`
}

// Asked says how a Plan was requested: its model's file, or settings of a built-in one, what is frozen, and updates.
type Asked struct {
	File     string         `json:"file,omitempty"`
	Settings map[string]any `json:"settings,omitempty"`
	Freeze   []string       `json:"freeze,omitempty"`
	Updates  *Updates       `json:"updates,omitempty"` // nil: the model's own optimizer, without clipping
}

// Updates says with which optimizer and clipping a Plan was predicted. Its names and units are those of a job.
type Updates struct {
	Optimizer   string  `json:"optimizer"`
	Momentum    float64 `json:"momentum,omitempty"`
	Nesterov    bool    `json:"nesterov,omitempty"`
	WeightDecay float64 `json:"weight_decay,omitempty"`
	Clip        float64 `json:"clip,omitempty"`
}

// Batch returns the samples of one step of one pipeline.
func (p *Plan) Batch() int { return p.MicroBatch * p.MicroBatches }

// Sizes returns the numbers of samples that stages compute at once, ascending. A stage computes a micro-batch at once
// or, if its replicas split micro-batches, a slice.
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
