package sim

import (
	"fmt"
	"slices"

	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/programs"
)

// AtMostBytes returns for each worker an upper bound on the bytes it holds, whatever the timing. Every message between
// workers must take up the receiver's memory at once (Costs.OneMemory). Otherwise the result is nil.
//
// A worker runs its list in order. So at a given instruction it holds the same in every run, except for messages that
// arrive before their turn. A message cannot arrive before the worker has done the instructions that the message
// depends on. If nothing else takes any time, the message arrives right after the last of these instructions. A worker
// may stop anywhere in its list, also at a send or a validation. So the upper bound comes from a simulation in which
// each of the worker's own instructions takes a second and everything else takes no time. In that simulation, an
// instruction holds its peak until it ends.
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

// EvaluationBytes returns for each worker an upper bound on the bytes it holds during an evaluation between two steps.
// p is the Program that trains. The bound holds for any timing, as with AtMostBytes. Parameters, buffers and optimizer
// states of every replica, stage and pipeline stay in memory; gradients do not. If there is a reference, it is
// evaluated. Under asp the server's weights are evaluated, and otherwise the first pipeline. The result is nil if
// AtMostBytes returns nil, or if some worker takes no part in the evaluation.
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
	// All workers drain after each window of micro-batches, so no more of them are in flight.
	e, err := programs.Evaluation(p.Placement[shown], programs.EvaluationWindow*widest)
	if err != nil {
		return nil, fmt.Errorf("sim: %w", err)
	}
	if e.Workers != p.Workers { // some workers take no part in the evaluation
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
					peaks[w] -= c.FixedBytes // e counts every model as one that trains
				}
			}
		}
	}
	return peaks, nil
}

// unpacked returns the costs without packing, since evaluations send tensors as they are.
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

// untimed returns only the byte counts of the costs, without times.
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
