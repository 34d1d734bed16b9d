package schedule

// Updater names what changes the weights at an update (package stage/update).
type Updater string

// The Updaters.
const (
	PlainUpdate     Updater = "plain"     // steps by the gradients at hand
	DeferredUpdate  Updater = "deferred"  // by gradients that replicas sum beside the next minibatch
	TentativeUpdate Updater = "tentative" // before the norm is known: a PV confirms it or takes it back
	ElasticUpdate   Updater = "elastic"   // pulled towards a reference, which moves by the mean of the steps
)

// Updater is what a Program's updates change the weights with: its policy's, unless it defers them or has
// them validated later.
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

// ValidatesLater says whether updates go before their gradients' norm is known. A PV in the next step confirms them
// or rolls them back.
func (p *Program) ValidatesLater() bool { return p.Updater() == TentativeUpdate }

// Defers says whether updates stand behind backwards of the next minibatch, whose gradients gather apart from
// theirs.
func (p *Program) Defers() bool { return p.Updater() == DeferredUpdate }

// Settles is the kind of instruction behind which a stage's part of a minibatch stands for good: its
// update, or what validates it.
func (p *Program) Settles() Kind {
	if p.ValidatesLater() {
		return PV
	}
	return U
}

// UpdateWork is what an update computes, which a profile has times of.
type UpdateWork uint8

const (
	StepWork UpdateWork = iota // the optimizer's
	PullWork                   // the optimizer's, and a pipeline pulled towards its reference
	TakeWork                   // a reference takes the step of one pipeline
)

// UpdateCost is the memory that a U or a PV takes and leaves, in copies of what its stage has. "Whole" is everything
// that training changes: parameters, buffers, optimizer states.
type UpdateCost struct {
	Work  UpdateWork
	Times int // 0: it computes nothing

	// Held for a moment, above what was held before: so many times the whole stage, the parameters of its
	// largest layer, and what its optimizer holds in a step.
	PeakWhole, PeakLayer, PeakStep int64
	// Held from now on: so many times more the whole stage, or a model without optimizer states.
	Whole, Models int64
	// KeepsGradients: those gathered stay, for the update to be made again. SetAside: it goes by gradients that
	// were set aside, and those gathered since stay.
	KeepsGradients, SetAside bool
}

// UpdateCost is what an update or a validation costs.
func (p *Program) UpdateCost(in Instruction) UpdateCost {
	plain := UpdateCost{Work: StepWork, Times: 1, PeakStep: 1}
	switch p.Updater() {
	case TentativeUpdate:
		if in.Kind == PV {
			return UpdateCost{Whole: -1}
		}
		// copies of all that it changes, and of a layer's gradients, which a step uses up
		return UpdateCost{Work: StepWork, Times: 1, PeakWhole: 1, PeakLayer: 1, PeakStep: 1, Whole: 1, KeepsGradients: true}
	case DeferredUpdate:
		plain.SetAside = true
	case ElasticUpdate:
		n := p.Pipelines()
		if p.IsReference(int(in.Pipeline)) { // beside the worker it is the same work
			return UpdateCost{Work: TakeWork, Times: n, Models: -int64(n)}
		}
		// a copy of the layer before the step, and the step, left in the queue with the buffers
		return UpdateCost{Work: PullWork, Times: 1, PeakLayer: 1, PeakStep: 1, Models: 1}
	}
	return plain
}
