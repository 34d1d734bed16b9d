package schedule

// How a Program's micro-batches make minibatches, and which update takes whose gradients. A minibatch is what one
// update of an unreplicated stage takes: PerMinibatch micro-batches in a row. Micro-batches and minibatches count from
// 0 over the whole Program (absolute ids); an update has the number of the last minibatch that it takes.

// Streams says whether updates land without a flush, so that minibatches of a pipeline overlap.
func (p *Program) Streams() bool { return !p.Weights.Flushes() }

// Overlaps says whether a minibatch begins before the one before it has ended: in a stream, and in pipelines that fill
// each other's bubbles.
func (p *Program) Overlaps() bool { return p.Streams() || p.HasReference() }

// PerMinibatch is the number of micro-batches in a minibatch.
func (p *Program) PerMinibatch() int { return max(1, p.MicroBatches/max(1, p.Period)) }

// Minibatches is the number of minibatches that the Program trains on, the last of which may be cut short.
func (p *Program) Minibatches() int {
	per := p.PerMinibatch()
	return (int(p.StreamEnd()) + per - 1) / per
}

// UpdateSpan is how many micro-batches in a row one update of a stage takes: those of one minibatch. The exception is a
// stream of one micro-batch a minibatch, where a stage of r round-robin replicas updates once for r minibatches, with
// the mean of their gradients (PipeDream §3.2); not under ASP, which updates for each.
func (p *Program) UpdateSpan(pipeline, stage int) int {
	per := p.PerMinibatch()
	if r := len(p.Placement[pipeline][stage]); p.Streams() && per == 1 && p.Replication == RoundRobin && !p.Served() {
		return r
	}
	return per
}

// UpdateOf is the number of the update that takes a micro-batch's gradient: the last minibatch that the update takes.
// At the end of a stream that may be one that never comes.
func (p *Program) UpdateOf(pipeline, stage int, micro int32) int32 {
	g := int32(p.UpdateSpan(pipeline, stage))
	return ((micro/g+1)*g - 1) / int32(p.PerMinibatch())
}

// Covers returns the minibatches, first to end-1, whose gradients an update takes, or a collective before it. At the
// end of a stream they are those that are left: minibatches is how many the Program has.
func (p *Program) Covers(update Instruction, minibatches int) (first, end int) {
	per := p.PerMinibatch()
	first = max(0, (int(update.Micro)+1)*per-p.UpdateSpan(int(update.Pipeline), int(update.Stage))) / per
	return first, min(int(update.Micro)+1, minibatches)
}

// StopUnit is the number of minibatches by whose multiples a Program may be cut short. It then ends with a whole body,
// and no update of any stage lacks gradients.
func (p *Program) StopUnit() int {
	per, unit := p.PerMinibatch(), max(1, p.Period)
	for pl, stages := range p.Placement {
		for s := range stages {
			unit = LeastCommonMultiple(unit, max(1, p.UpdateSpan(pl, s)/per))
			if unit > MaxMicro {
				return MaxMicro // a Program has no more minibatches, so it is not cut short at all
			}
		}
	}
	return unit
}

// LeastCommonMultiple is that of two numbers above 0.
func LeastCommonMultiple(a, b int) int {
	g, rest := a, b
	for rest != 0 {
		g, rest = rest, g%rest
	}
	return a / g * b
}

// StreamEnd is one more than the last micro-batch that the Program trains on.
func (p *Program) StreamEnd() int32 {
	end := int32(0)
	// Ids in a part are relative to the repetition that it is in, or follows: the body's last is Repeat-1.
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
