package schedule

// Micro-batches form minibatches, and each update uses the gradients of certain minibatches. A minibatch is what one
// update of an unreplicated stage uses: PerMinibatch consecutive micro-batches. Micro-batches and minibatches count
// from 0 over the whole Program (absolute ids). An update has the number of the last minibatch that it uses.

// Streams reports whether updates are made without a flush, so that minibatches of a pipeline overlap.
func (p *Program) Streams() bool { return !p.Weights.Flushes() }

// Overlaps reports whether a minibatch begins before the one before it has ended. It does in a stream, and in
// pipelines that fill each other's bubbles.
func (p *Program) Overlaps() bool { return p.Streams() || p.HasReference() }

// PerMinibatch returns the number of micro-batches in a minibatch.
func (p *Program) PerMinibatch() int { return max(1, p.MicroBatches/max(1, p.Period)) }

// Minibatches returns the number of minibatches of the Program. The last one may be shorter.
func (p *Program) Minibatches() int {
	per := p.PerMinibatch()
	return (int(p.StreamEnd()) + per - 1) / per
}

// UpdateSpan returns how many consecutive micro-batches one update of a stage uses. Usually they are those of one
// minibatch. The exception is a stream with one micro-batch per minibatch. There a stage of r round-robin replicas
// updates once for r minibatches, with the mean of their gradients (PipeDream §3.2). ASP still updates for each
// minibatch.
func (p *Program) UpdateSpan(pipeline, stage int) int {
	per := p.PerMinibatch()
	if r := len(p.Placement[pipeline][stage]); p.Streams() && per == 1 && p.Replication == RoundRobin && !p.Served() {
		return r
	}
	return per
}

// UpdateOf returns the number of the update that uses a micro-batch's gradient. It is the number of the last minibatch
// that the update uses. At the end of a stream that minibatch may not exist.
func (p *Program) UpdateOf(pipeline, stage int, micro int32) int32 {
	g := int32(p.UpdateSpan(pipeline, stage))
	return ((micro/g+1)*g - 1) / int32(p.PerMinibatch())
}

// Covers returns the minibatches whose gradients an update, or a collective before it, uses: `first` to `end`-1. At the
// end of a stream they are the remaining minibatches. `minibatches` is the number of minibatches of the Program.
func (p *Program) Covers(update Instruction, minibatches int) (first, end int) {
	per := p.PerMinibatch()
	first = max(0, (int(update.Micro)+1)*per-p.UpdateSpan(int(update.Pipeline), int(update.Stage))) / per
	return first, min(int(update.Micro)+1, minibatches)
}

// StopUnit returns a number of minibatches. A Program may be cut short after any multiple of this number. It then ends
// with a whole body, and no update of any stage lacks gradients.
func (p *Program) StopUnit() int {
	per, unit := p.PerMinibatch(), max(1, p.Period)
	for pl, stages := range p.Placement {
		for s := range stages {
			unit = LeastCommonMultiple(unit, max(1, p.UpdateSpan(pl, s)/per))
			if unit > MaxMicro {
				return MaxMicro // no Program has that many minibatches, so this Program is never cut short
			}
		}
	}
	return unit
}

// LeastCommonMultiple returns the least common multiple of two positive numbers.
func LeastCommonMultiple(a, b int) int {
	g, rest := a, b
	for rest != 0 {
		g, rest = rest, g%rest
	}
	return a / g * b
}

// StreamEnd returns 1 + the last micro-batch on which the Program trains.
func (p *Program) StreamEnd() int32 {
	end := int32(0)
	// Ids in a part are relative to a repetition of the body. Those of the epilogue are relative to the end of the last
	// repetition, so the epilogue counts as repetition Repeat.
	trains := func(part Part, repetition int) {
		for _, list := range part {
			for _, in := range list {
				if in.Kind == F {
					end = max(end, in.Micro+1+int32(repetition*p.MicroBatches))
				}
			}
		}
	}
	trains(p.Prologue, 0)
	if p.Repeat > 0 {
		trains(p.Body, p.Repeat-1)
	}
	trains(p.Epilogue, p.Repeat)
	return end
}
