package family

import (
	"fmt"

	"github.com/millrace-ml/millrace/schedule"
)

// zb-auto is the greedy heuristic of Zero Bubble Pipeline Parallelism (Qi et al., ICLR 2024, §3.1) as
// a list scheduler: a free worker runs an input gradient if one is ready, else a forward if it has
// room, else a weight gradient. Settings.Warmup is its room by stage, K_i micro-batches held from
// their forward to their weight gradient; without, 2S-1 on each, with which equal times
// leave no bubble in a steady step. S is ZB-H1's memory, and anything between is a trade that neither
// of the two handcrafted orders offers.
//
// Stages lie anywhere, several on a worker too (Wrap, Vee); a worker's room is then the greatest of
// its stages' K_i, times as many chunks. F, I and W count as equal here, where the paper's
// search has measured times.
func init() {
	Register(Family{
		Name: "zb-auto", Doc: "a list scheduler that fills bubbles with weight gradients (arXiv 2401.10241 §3.1)",
		General: "zb-auto", Halves: true,
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
