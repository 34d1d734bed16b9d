package family

import (
	"fmt"

	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/check"
)

// BaPipe's orders for devices that transfer while they compute (§3.2.1, Table I). F and B are the times of a forward
// and a backward, and a is the size of the activations of a micro-batch. S is the number of stages, and M is the number
// of micro-batches:
//
//	1f1b-as   K_i = S-i, peak K_i; needs bandwidth a/F
//	fbp-as    K_i = 2(S-i)-1 forwards, then each backward together with the next forward,
//	          so that 2(S-i) micro-batches are held; needs bandwidth 2a/(F+B)
//
// Both take (M+S-1)(F+B) on uniform stages. A pair takes F+B; F or B without a partner takes only its own time
// (FPDeep). On a device that computes one thing at a time, the two computations of a pair run one after the other, and
// both outputs are sent at the end.
func init() {
	Register(Family{
		Name: "1f1b-as", Doc: "one forward, one backward on devices that transfer while they compute (BaPipe 1F1B-AS)",
		Streaming: true, Admits: admitOneF1B,
		Generate: func(s schedule.Settings) (*schedule.Program, error) {
			if s.Warmup == nil {
				s.Warmup = depthsOf("1f1b", len(s.Placement), s.MicroBatches)
			}
			return oneF1B(s)
		},
	})
	Register(Family{
		Name: "fbp-as", Doc: "forward and backward together on devices that transfer while they compute (BaPipe " +
			"FBP-AS, FPDeep)",
		Streaming: true, Admits: admitOneF1B,
		Generate: func(s schedule.Settings) (*schedule.Program, error) {
			own := s.Warmup != nil
			if !own {
				s.Warmup = depthsOf("pb", len(s.Placement), s.MicroBatches)
			}
			p, err := oneF1B(s)
			if err != nil {
				return nil, err
			}
			p.Paired = true
			if own || unequal(s.Placement) {
				p.Name = "fbp-as"
				if _, err := check.Check(p); err != nil {
					return nil, fmt.Errorf("a backward waits for what the forward beside it needs, so depths must fall from "+
						"stage to stage: %w", err)
				}
			}
			return p, nil
		},
	})
}
