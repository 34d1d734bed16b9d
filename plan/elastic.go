package plan

import (
	"fmt"
	"math"
	"slices"
)

// AveragingOrder says whether a pipeline is pulled towards the reference before or after its own step. x is the
// pipeline's weights, z the reference that the pipeline sees, and u the optimizer's step from the gradient at x.
type AveragingOrder string

const (
	// DiluteFirst is x = (1-alpha) x + alpha z + u. With z += sum(u)/N the reference stays exactly the average of the
	// pipelines, except for rounding (AvgPipe §3.2 requires that).
	DiluteFirst AveragingOrder = "dilute_first"
	// UpdateFirst is x = (1-alpha)(x + u) + alpha z, as AvgPipe §3.2 lists its steps. In each iteration the average
	// falls behind the reference by alpha sum(u)/N. With one pipeline and alpha = 1 nothing would be learned.
	UpdateFirst AveragingOrder = "printed"
)

// Reference says where the reference model of elastic averaging is updated.
type Reference string

const (
	// Inline makes each worker update the reference itself, at a fixed point in its list of instructions. Repeated runs
	// are bit-equal.
	Inline Reference = "inline"
	// Beside updates the reference on a separate thread of each worker, which takes steps from a queue. Pipelines never
	// wait (AvgPipe §3.2). A pipeline is pulled towards the newest reference, and a run records which version that was.
	Beside Reference = "beside"
)

// Elastic is AvgPipe's elastic averaging (PPoPP 2023, §3.2): several pipelines over the same devices. Each has its
// own weights, optimizer and batches; a reference model is their average. One pipeline is plain training without a
// reference.
//
// The reference moves by the mean of N steps made from N batches. To learn as much from the same samples as one
// pipeline does, the learning rate must grow with N, as it does with the batch in data parallelism.
type Elastic struct {
	Pipelines int            `json:"pipelines"` // N
	Alpha     float64        `json:"alpha"`     // weight of the reference when a pipeline is pulled towards it
	Order     AveragingOrder `json:"order"`
	Reference Reference      `json:"reference,omitempty"` // empty means Inline
}

// MaxPipelines is the largest number of pipelines that may share devices.
const MaxPipelines = 62

// NewElastic returns elastic averaging of n pipelines with the paper's alpha, 1/n, and with DiluteFirst.
func NewElastic(n int) *Elastic {
	return &Elastic{Pipelines: n, Alpha: 1 / float64(max(1, n)), Order: DiluteFirst}
}

// Same says whether two settings are equal; nil means no averaging.
func (e *Elastic) Same(other *Elastic) bool {
	if e == nil || other == nil {
		return e == other
	}
	return *e == *other
}

// Check refuses numbers outside their ranges and unknown words.
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

// Besides says whether the reference is updated on separate threads (Beside). That needs several pipelines.
func (e *Elastic) Besides() bool { return e != nil && e.Pipelines > 1 && e.Reference == Beside }

// StepSamples returns the samples of one step: the batches of all pipelines that train side by side.
func (p *Plan) StepSamples() int { return p.Batch() * p.Together() }

// Together returns how many pipelines train side by side: 1 without elastic averaging.
func (p *Plan) Together() int {
	if p.Elastic == nil {
		return 1
	}
	return p.Elastic.Pipelines
}

// Overlaps reports whether a step begins before the one before it has ended, as schedule.Program.Overlaps does. It does
// in a stream, and in pipelines that fill each other's bubbles.
func (p *Plan) Overlaps() bool {
	return p.Together() > 1 || !slices.Contains([]string{"", "sync", "elastic"}, p.Weights)
}
