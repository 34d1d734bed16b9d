package family

import (
	"fmt"
	"slices"

	"github.com/millrace-ml/millrace/schedule"
)

// zb-auto is the greedy heuristic of Zero Bubble Pipeline Parallelism (Qi et al., ICLR 2024, §3.1) as a list scheduler.
// A free worker runs an input gradient if one is ready, else a forward if it has room, else a weight gradient.
// Settings.Warmup is its room by stage: K_i micro-batches held from their forward to their weight gradient. With S
// workers, the default is 2S-1 on each, which leaves no bubble in a steady step if all times are equal. A room of S is
// the memory of ZB-H1. A room between S and 2S-1 is a trade-off that neither handcrafted order offers.
//
// Stages may lie anywhere, also several on a worker (Wrap, Vee). A worker's room is then the greatest K_i of its
// stages, times its number of chunks. F, I and W count as equal here; the paper's search uses measured times.
func init() {
	Register(Family{
		Name: "zb-auto", Doc: "a list scheduler that fills bubbles with weight gradients (arXiv 2401.10241 §3.1)",
		General: "zb-auto", Halves: true,
		Own: func(stages, _ int) []int { return slices.Repeat([]int{2*stages - 1}, stages) },
		Admits: func(s schedule.Settings) error {
			for i, on := range s.Placement {
				if len(on) != 1 {
					return fmt.Errorf("stage %d is on workers %v; this order has one for each", i, on)
				}
			}
			for i, k := range s.Warmup {
				if k < 1 {
					return fmt.Errorf("depth K_%d is %d micro-batches held; it must be 1 at least", i, k)
				}
			}
			return nil
		},
		Generate: func(s schedule.Settings) (*schedule.Program, error) {
			g := greedy{p: s.Program(), prefer: []schedule.Kind{schedule.I, schedule.F, schedule.W}}
			g.queued(s)
			g.room = make([]int, g.p.Workers)
			for stage, on := range s.Placement {
				k := 2*g.p.Workers - 1
				if s.Warmup != nil {
					k = s.Warmup[stage]
				}
				w := on[0]
				g.room[w] = max(g.room[w], k*len(g.p.StagesOf(w)))
			}
			lists, _, err := g.run()
			if err != nil {
				return nil, err
			}
			g.p.Body = lists
			return g.p, nil
		},
	})
}
