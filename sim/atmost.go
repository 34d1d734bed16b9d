package sim

import (
	"fmt"
	"slices"

	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/programs"
)

// AtMostBytes is, by worker, an upper bound on the bytes it holds in any timing of the Program. Workers may be
// delayed for any time; a message between them is the receiver's at once (Costs.OneMemory). nil where some message
// is not.
//
// A worker runs its list in order, so what it holds of its own at an instruction is the same in
// every run. What differs is the messages that lie there before their turn. None can come before the
// instructions of this worker that it depends on, and it comes with the last of these if nothing else
// takes any time. A worker may stand still anywhere in its list, at a send or a validation too. So the most
// is what it holds in a simulation in which each of its own instructions takes a second and nothing else takes
// any time, and what they hold for a moment they hold to their end.
func AtMostBytes(p *schedule.Program, costs Costs) ([]int64, error) {
	for from := range p.Workers {
		for to := range p.Workers {
			if from != to && !costs.oneMemory(from, to) {
				return nil, nil
			}
		}
	}
	costs = costs.untimed()
	peaks := make([]int64, p.Workers)
	for w := range p.Workers {
		late := func(worker int, _ schedule.Instruction) float64 {
			if worker == w {
				return 1
			}
			return 0
		}
		_, sum, err := Run(p, costs, Options{takes: late})
		if err != nil {
			return nil, fmt.Errorf("sim: worker %d behind all others: %w", w, err)
		}
		peaks[w] = sum.PeakBytes[w]
	}
	return peaks, nil
}

// EvaluationBytes is AtMostBytes of an evaluation between two steps of a Program that trains: by worker, more
// than which no timing makes it hold. Every replica of every stage keeps its parameters, buffers and optimizer
// states, those of all pipelines; gradients there are none. It is of the pipeline that evaluations show, the
// reference of several, or what a server has.
func EvaluationBytes(p *schedule.Program, costs Costs) ([]int64, error) {
	shown, widest := 0, 1
	for pl, stages := range p.Placement {
		if p.IsReference(pl) || p.IsServer(pl) {
			shown = pl
		}
		for _, on := range stages {
			widest = max(widest, len(on))
		}
	}
	// Every worker drains before a micro-batch more than so many is begun.
	e, err := programs.Evaluation(p.Placement[shown], programs.EvaluationWindow*widest)
	if err != nil {
		return nil, fmt.Errorf("sim: %w", err)
	}
	if e.Workers != p.Workers { // some take no part in it
		return nil, nil
	}
	peaks, err := AtMostBytes(e, costs.unpacked())
	if peaks == nil || err != nil {
		return nil, err
	}
	for pl, stages := range p.Placement {
		for s, on := range stages {
			for r, w := range on {
				c := costs.on(p, schedule.Instruction{Pipeline: int16(pl), Stage: int32(s), Replica: int16(r)})
				peaks[w] += fixedBytes(p, pl, c)
				if pl == shown {
					peaks[w] -= c.FixedBytes // e takes every model for one that trains
				}
			}
		}
	}
	return peaks, nil
}

// unpacked is costs of sending tensors as they are, as evaluations do.
func (c *Costs) unpacked() Costs {
	out := *c
	out.Stages = slices.Clone(out.Stages)
	for s := range out.Stages {
		out.Stages[s] = slices.Clone(out.Stages[s])
		for r := range out.Stages[s] {
			out.Stages[s][r].Packed = Packed{}
		}
	}
	return out
}

func (k Packed) untimed() Packed {
	k.ActivationS, k.GradientS, k.InputS, k.BackS = 0, 0, 0, 0
	return k
}

// untimed is costs in bytes alone.
func (c *Costs) untimed() Costs {
	out := Costs{OneMemory: c.OneMemory, Stages: slices.Clone(c.Stages)}
	for s := range out.Stages {
		out.Stages[s] = slices.Clone(out.Stages[s])
		for r := range out.Stages[s] {
			k := &out.Stages[s][r]
			*k = StageCost{Held: k.Held, GradientBytes: k.GradientBytes, Packed: k.Packed.untimed()}
		}
	}
	return out
}
