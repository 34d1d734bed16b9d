package schedule

// Updater names what changes the weights at an update (package stage/update).
type Updater string

// The Updaters.
const (
	PlainUpdate     Updater = "plain"     // makes an optimizer step with the gathered gradients
	DeferredUpdate  Updater = "deferred"  // uses gradients that replicas sum during the next minibatch
	TentativeUpdate Updater = "tentative" // updates before the norm is known; a PV confirms the update or takes it back
	ElasticUpdate   Updater = "elastic"   // pulls a pipeline towards a reference, which moves by the mean of the steps
)

// Updater returns how a Program's updates change the weights. The policy decides it, unless updates are deferred or
// validated later.
func (p *Program) Updater() Updater {
	switch {
	case p.DeferUpdates:
		return DeferredUpdate
	case p.PostValidate:
		return TentativeUpdate
	case p.Weights.Averages() && !p.HasReference():
		return PlainUpdate
	}
	return p.Weights.Updater()
}

// ValidatesLater reports whether updates are made before their gradients' norm is known. A PV in the next step
// confirms them or rolls them back.
func (p *Program) ValidatesLater() bool { return p.Updater() == TentativeUpdate }

// Defers reports whether updates come after backwards of the next minibatch, whose gradients gather separately.
func (p *Program) Defers() bool { return p.Updater() == DeferredUpdate }

// Settles returns the kind of instruction that makes a stage's part of a minibatch final: its update, or the update's
// validation.
func (p *Program) Settles() Kind {
	if p.ValidatesLater() {
		return PV
	}
	return U
}

// UpdateWork is a kind of computation in an update, for which a profile has a time.
type UpdateWork uint8

const (
	StepWork UpdateWork = iota // the optimizer's step
	PullWork                   // the optimizer's step, and the pull of a pipeline towards its reference
	TakeWork                   // the addition of one pipeline's step to a reference
)

// UpdateCost says what a U or a PV computes, and how much memory it needs and leaves. Memory is counted in copies of
// what the stage has. "Whole" means everything that training changes: parameters, buffers, optimizer states.
type UpdateCost struct {
	Work  UpdateWork
	Times int // how often Work is done; 0 means no computation

	// PeakWhole, PeakLayer and PeakStep are needed only during the update. PeakWhole is a number of copies of the whole
	// stage. PeakLayer is a number of copies of the parameters of its largest layer. PeakStep is a number of copies of
	// what its optimizer needs in a step.
	PeakWhole, PeakLayer, PeakStep int64
	// Whole and Models say how much more the worker holds after the update than before. Whole is a number of copies of
	// the whole stage. Models is a number of copies of the model without optimizer states. If a number is negative,
	// copies are freed.
	Whole, Models int64
	// KeepsGradients says that the gathered gradients stay, so that the update can be made again. SetAside says that
	// the update uses gradients that were set aside, and that those gathered since then stay.
	KeepsGradients, SetAside bool
}

// UpdateCost returns the cost of an update or a validation.
func (p *Program) UpdateCost(in Instruction) UpdateCost {
	plain := UpdateCost{Work: StepWork, Times: 1, PeakStep: 1}
	switch p.Updater() {
	case TentativeUpdate:
		if in.Kind == PV {
			return UpdateCost{Whole: -1}
		}
		// A tentative update needs copies of all that it changes, and of a layer's gradients, which a step uses up.
		return UpdateCost{Work: StepWork, Times: 1, PeakWhole: 1, PeakLayer: 1, PeakStep: 1, Whole: 1, KeepsGradients: true}
	case DeferredUpdate:
		plain.SetAside = true
	case ElasticUpdate:
		n := p.Pipelines()
		if p.IsReference(int(in.Pipeline)) { // the work is the same if it runs beside the worker
			return UpdateCost{Work: TakeWork, Times: n, Models: -int64(n)}
		}
		// A pipeline's update needs a copy of the layer before the step. It leaves the step in the queue, with the
		// buffers.
		return UpdateCost{Work: PullWork, Times: 1, PeakLayer: 1, PeakStep: 1, Models: 1}
	}
	return plain
}
