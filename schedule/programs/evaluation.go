package programs

import (
	"fmt"
	"slices"

	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/lower"
)

// EvaluationWindow is how many micro-batches of an evaluation a replica may be ahead of later stages. Without backward
// passes nothing else slows the first stage down, and all that it has sent would fill memory. A drain costs the time to
// fill the pipeline: (stages - 1) micro-batches.
const EvaluationWindow = 4

// Evaluation returns a lowered Program that passes n micro-batches forward through the stages and updates nothing.
// Replicas take them in turn. All workers drain at both ends, and whenever each replica of the widest stage has had
// EvaluationWindow more micro-batches.
func Evaluation(placement [][]int, n int) (*schedule.Program, error) {
	s, err := schedule.Settings{Placement: placement, MicroBatches: n, Idle: true}.Checked()
	if err != nil {
		return nil, fmt.Errorf("schedule: evaluation: %w", err)
	}
	p := s.Program()
	p.Name = "evaluation"
	widest := 1
	for _, on := range placement {
		widest = max(widest, len(on))
	}
	window := EvaluationWindow * widest
	for from := 0; from < n; from += window {
		if from > 0 {
			drain(p, from/window)
		}
		for stage, on := range placement {
			for r, w := range on {
				first := from + ((r-from)%len(on)+len(on))%len(on) // replicas take micro-batches in turn
				for m := first; m < min(n, from+window); m += len(on) {
					p.Body[w] = append(p.Body[w], schedule.Instruction{Stage: int32(stage), Kind: schedule.EV,
						Micro: int32(m), Replica: int16(r)})
				}
			}
		}
	}
	return bracketed(p, (n-1)/window+1)
}

// drain appends a drain of this number to every worker's list.
func drain(p *schedule.Program, number int) {
	for w := range p.Body {
		p.Body[w] = append(p.Body[w], schedule.Instruction{Kind: schedule.DR, Micro: int32(number)})
	}
}

// Checkpoint returns a lowered Program that saves every stage of the placement once nothing is in flight. The first
// replica of each stage saves.
func Checkpoint(placement [][]int) (*schedule.Program, error) {
	s, err := schedule.Settings{Placement: placement, MicroBatches: 1, Idle: true}.Checked()
	if err != nil {
		return nil, fmt.Errorf("schedule: checkpoint: %w", err)
	}
	p := s.Program()
	p.Name = "checkpoint"
	for stage, on := range placement {
		p.Body[on[0]] = append(p.Body[on[0]], schedule.Instruction{Stage: int32(stage), Kind: schedule.CK})
	}
	return bracketed(p, 1)
}

// bracketed lowers p and puts a drain before and after it on every worker. `last` is the number of the final drain.
func bracketed(p *schedule.Program, last int) (*schedule.Program, error) {
	out, err := lower.Lower(p, lower.Options{})
	if err != nil {
		return nil, err
	}
	for w := range out.Body {
		out.Body[w] = slices.Concat(schedule.List{{Kind: schedule.DR}}, out.Body[w],
			schedule.List{{Kind: schedule.DR, Micro: int32(last)}})
	}
	return out, nil
}
