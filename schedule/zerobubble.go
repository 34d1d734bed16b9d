package schedule

import "fmt"

// Orders that put weight gradients off to fill bubbles (Qi et al., Zero Bubble Pipeline
// Parallelism, ICLR 2024), for stages 0..S-1 and B = I + W:
//
//	zb-h1   S-i forwards first, W put off by i micro-batches: bubble (S-1)(F+I-W), S held on
//	        every stage
//	zb-h2   2(S-i)-1 forwards first, W put off by 2i: bubble (S-1)(F+I-2W), 2S-1 held on every
//	        stage; 0 where the three are equal
//
// while neither is negative. The paper's H2 lets stages update before they know the
// gradient norm and takes the update back if need be; here an update without clipping
// waits for nobody, and one with clipping waits for the norm.
func init() {
	for _, d := range []struct {
		name, doc    string
		warm, putOff func(stages, i int) int
	}{
		{"zb-h1", "weight gradients put off within 1F1B's memory (ZB-H1, arXiv 2401.10241)",
			func(s, i int) int { return s - i }, func(_, i int) int { return i }},
		{"zb-h2", "weight gradients put off within twice 1F1B's memory (ZB-H2, arXiv 2401.10241)",
			func(s, i int) int { return 2*(s-i) - 1 }, func(_, i int) int { return 2 * i }},
	} {
		Register(Family{
			Name: d.name, Doc: d.doc,
			Admits: func(s Settings) error {
				if s.Warmup != nil {
					return fmt.Errorf("warm-up depths %v; this order has its own", s.Warmup)
				}
				return admitOneF1B(s)
			},
			Generate: func(s Settings) (*Program, error) { return zeroBubble(s, d.warm, d.putOff) },
		})
	}
}

func zeroBubble(s Settings, warm, putOff func(stages, i int) int) (*Program, error) {
	p := s.program()
	for stage, on := range s.Placement {
		for r, w := range on {
			mine := microsOf(s, len(on), r)
			k := min(warm(len(s.Placement), stage), len(mine))
			late := putOff(len(s.Placement), stage)
			list := make(List, 0, 3*len(mine))
			add := func(kind Kind, j int) {
				list = append(list, Instruction{Stage: int32(stage), Kind: kind, Micro: int32(mine[j]), Replica: int16(r)})
			}
			for j := range k {
				add(F, j)
			}
			for j := range mine {
				add(I, j)
				if j >= late {
					add(W, j-late)
				}
				if k+j < len(mine) {
					add(F, k+j)
				}
			}
			for j := max(0, len(mine)-late); j < len(mine); j++ {
				add(W, j)
			}
			p.Body[w] = list
		}
	}
	if s.Replication == RoundRobin && unequal(s.Placement) {
		if _, err := Check(p); err != nil {
			return nil, fmt.Errorf("these depths do not suit stages of unequal replicas: %w", err)
		}
	}
	return p, nil
}
