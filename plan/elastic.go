package plan

import (
	"fmt"
	"math"
)

// AveragingOrder is the order of a pipeline's own step and its pull towards the reference. x is the pipeline's weights,
// z the reference it sees, u the step that its optimizer makes from the gradient at x.
type AveragingOrder string

const (
	// DiluteFirst is x = (1-alpha) x + alpha z + u. With z += sum(u)/N the reference stays the
	// average of the pipelines exactly, but for rounding (AvgPipe §3.2 asks for that).
	DiluteFirst AveragingOrder = "dilute_first"
	// UpdateFirst is x = (1-alpha)(x + u) + alpha z, as AvgPipe §3.2 lists its steps. Each
	// iteration the average falls behind the reference by alpha sum(u)/N; with one pipeline
	// and alpha = 1 nothing would be learnt at all.
	UpdateFirst AveragingOrder = "printed"
)

// Reference is where the reference model of elastic averaging is updated.
type Reference string

const (
	// Inline has each worker update the reference itself, where its list says: runs are bit-equal.
	Inline Reference = "inline"
	// Beside updates the reference on a thread of its own on each worker, behind a queue of steps. No pipeline ever
	// waits (AvgPipe §3.2). A pipeline is pulled towards the newest reference that there is, and a run records which
	// that was.
	Beside Reference = "beside"
)

// Elastic is AvgPipe's elastic averaging (PPoPP 2023, §3.2): so many pipelines over the same
// devices, each with weights, optimizer and batches of its own, and a reference model that is
// their average. One pipeline is plain training without a reference.
//
// The reference moves by the mean of N steps made from N batches. To learn as much from as many
// samples as one pipeline does, the learning rate goes up with N, as it does with the batch in data
// parallelism.
type Elastic struct {
	Pipelines int            `json:"pipelines"` // N
	Alpha     float64        `json:"alpha"`     // weight of the reference when a pipeline is diluted with it
	Order     AveragingOrder `json:"order"`
	Reference Reference      `json:"reference,omitempty"` // empty: Inline
}

// MaxPipelines is how many pipelines may share devices.
const MaxPipelines = 62

// NewElastic is elastic averaging of n pipelines with the paper's alpha, 1/n, in the order
// that keeps the average.
func NewElastic(n int) *Elastic {
	return &Elastic{Pipelines: n, Alpha: 1 / float64(max(1, n)), Order: DiluteFirst}
}

// Same says whether two settings, nil for none, are the same.
func (e *Elastic) Same(other *Elastic) bool {
	if e == nil || other == nil {
		return e == other
	}
	return *e == *other
}

// Check refuses numbers that mean nothing.
func (e *Elastic) Check() error {
	switch {
	case e.Pipelines < 1 || e.Pipelines > MaxPipelines:
		return fmt.Errorf("%d pipelines; elastic averaging has 1 to %d", e.Pipelines, MaxPipelines)
	case math.IsNaN(e.Alpha) || e.Alpha < 0 || e.Alpha > 1:
		return fmt.Errorf("alpha %v; it is the part of the reference in a pipeline's weights, from 0 to 1", e.Alpha)
	case e.Order != DiluteFirst && e.Order != UpdateFirst:
		return fmt.Errorf("averaging order %q; it is %q or %q", e.Order, DiluteFirst, UpdateFirst)
	case e.Reference != "" && e.Reference != Inline && e.Reference != Beside:
		return fmt.Errorf("reference %q; it is %q or %q", e.Reference, Inline, Beside)
	}
	return nil
}

// Besides says whether the reference is updated beside the pipelines: there is one, and it is asked for.
func (e *Elastic) Besides() bool { return e != nil && e.Pipelines > 1 && e.Reference == Beside }

// StepSamples is the samples of one step: a batch of every pipeline that trains side by side.
func (p *Plan) StepSamples() int { return p.Batch() * p.Together() }

// Together is how many pipelines train side by side under a plan: 1 but for elastic averaging.
func (p *Plan) Together() int {
	if p.Elastic == nil {
		return 1
	}
	return p.Elastic.Pipelines
}
