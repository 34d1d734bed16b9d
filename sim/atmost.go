package sim

import (
	"fmt"

	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/programs"
)

// AtMostBytes is, by worker, more than which no timing of the Program makes it hold, whoever is
// delayed for however long, where what one worker sends another is the receiver's at once
// (Costs.OneMemory); nil where some message is not.
//
// A worker runs its list in order, so what it holds of its own at an instruction is the same in
// every run. What differs is the messages that lie there before their turn. None can come before the
// instructions of this worker that it depends on, and it comes with the last of these if no
// other worker and no link takes any time. So the most is what the worker holds in a simulation in
// which only its own computations take time, and what they hold for a moment they hold to their end.
func AtMostBytes(p *schedule.Program, costs Costs) ([]int64, error) {
	for from := range p.Workers {
		for to := range p.Workers {
			if from != to && !costs.oneMemory(from, to) {
				return nil, nil
			}
		}
	}
	peaks := make([]int64, p.Workers)
	for w := range p.Workers {
		_, sum, err := Run(p, costs.onlyOn(p, w), Options{Cores: p.Workers, lasting: true})
		if err != nil {
			return nil, fmt.Errorf("sim: worker %d behind all others: %w", w, err)
		}
		peaks[w] = sum.PeakBytes[w]
	}
	return peaks, nil
}

// EvaluationBytes is AtMostBytes of an evaluation between two steps of a Program that trains: by worker, more than
// which no timing makes it hold. Every replica of every stage keeps its parameters, buffers and optimizer states, those of
// all pipelines; gradients there are none. It is of the pipeline that evaluations show, the reference of several.
func EvaluationBytes(p *schedule.Program, costs Costs) ([]int64, error) {
	shown, widest := 0, 1
	for pl, stages := range p.Placement {
		if p.IsReference(pl) {
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
	peaks, err := AtMostBytes(e, costs)
	if peaks == nil || err != nil {
		return nil, err
	}
	for pl, stages := range p.Placement {
		for s, on := range stages {
			for r, w := range on {
				c := costs.of(s, r)
				peaks[w] += fixedBytes(p, pl, c)
				if pl == shown {
					peaks[w] -= c.FixedBytes // e takes every model for one that trains
				}
			}
		}
	}
	return peaks, nil
}

// onlyOn is the costs with no time for what workers other than w compute, nor for what is on its way.
func (c *Costs) onlyOn(p *schedule.Program, w int) Costs {
	out := *c
	out.Transfer, out.SendS, out.ReceiveS, out.IssueS = nil, 0, 0, 0
	out.Stages = make([][]StageCost, p.Stages)
	for _, stages := range p.Placement {
		for s, on := range stages {
			for r, at := range on {
				if r == len(out.Stages[s]) {
					out.Stages[s] = append(out.Stages[s], c.of(s, r).untimed())
				}
				if at == w {
					k := &out.Stages[s][r]
					k.ForwardS, k.BackwardS, k.InputS, k.WeightS, k.UpdateS, k.EvaluateS = 1, 1, 1, 1, 1, 1
				}
			}
		}
	}
	return out
}

// untimed is a cost in bytes alone.
func (c *StageCost) untimed() StageCost {
	out := *c
	out.ForwardS, out.BackwardS, out.InputS, out.WeightS = 0, 0, 0, 0
	out.UpdateTimes, out.EvaluateS, out.SaveS = profile.UpdateTimes{}, 0, 0
	out.AllReduceS, out.TiedS, out.NormS = 0, 0, 0
	out.Shares, out.WeightShares, out.whole, out.halves = nil, nil, layerwise{}, layerwise{}
	return out
}
