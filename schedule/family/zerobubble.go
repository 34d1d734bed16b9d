package family

import (
	"fmt"

	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/check"
)

// These orders delay weight gradients to fill bubbles (Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024). Stages
// are 0..S-1. F, I and W are the times of a forward, an input gradient and a weight gradient. If the bubble is not
// negative:
//
//	zb-h1   K_i = S-i: bubble (S-1)(F+I-W), S held on every stage
//	zb-h2   K_i = 2(S-i)-1: bubble (S-1)(F+I-2W), 2S-1 held on every stage; 0 if the
//	        three times are equal
//
// Stage i runs K_i forwards first and delays weight gradients by K_0-K_i micro-batches, so that every stage holds K_0.
// Settings.Warmup may choose other depths. The paper's H2 lets stages update before they know the gradient norm and
// takes the update back if necessary. Here an update without clipping does not wait. One with clipping waits for the
// norm, unless it is validated later (lower.Options.PostValidate).
func init() {
	for _, d := range []struct {
		name, doc, depths, general string
	}{
		{"zb-h1", "weight gradients put off within 1F1B's memory (ZB-H1, arXiv 2401.10241)", "1f1b", "zb-h1"},
		{"zb-h2", "weight gradients put off within twice 1F1B's memory (ZB-H2, arXiv 2401.10241)", "pb", ""},
	} {
		warmup := func(stages, microBatches int) []int { return depthsOf(d.depths, stages, microBatches) }
		Register(Family{
			Name: d.name, Doc: d.doc, Own: warmup, General: d.general, Halves: true, Admits: admitOneF1B,
			Generate: func(s schedule.Settings) (*schedule.Program, error) {
				if s.Warmup == nil {
					s.Warmup = warmup(len(s.Placement), s.MicroBatches)
				}
				return zeroBubble(s)
			},
		})
	}
}

func zeroBubble(s schedule.Settings) (*schedule.Program, error) {
	p := list(s, listRule{ahead: depth, late: func(at listPlace) int { return at.s.Warmup[0] - at.s.Warmup[at.stage] }})
	if s.Replication == schedule.RoundRobin && unequal(s.Placement) {
		if _, err := check.Check(p); err != nil {
			return nil, fmt.Errorf("these depths do not suit stages of unequal replicas: %w", err)
		}
	}
	return p, nil
}
