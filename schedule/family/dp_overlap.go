package family

import (
	"fmt"
	"slices"

	"github.com/millrace-ml/millrace/schedule"
)

// Data parallelism that sums gradients during the backward (Li et al., PyTorch Distributed, VLDB 2020). The model is
// cut into groups of layers. Each group is a stage that lies on every worker, so nothing is sent between stages. In the
// last backward of a step each group's all-reduce starts as soon as its gradients are complete, while earlier groups
// still compute. The step waits only for the first group's all-reduce and for those still queued for the link. With one
// group it is plain data parallelism.
//
// Let there be G equal groups and M micro-batches on r workers. Let F and B be the times of a forward and a backward of
// the model, and R that of all groups' all-reduces. A step takes
//
//	ceil(M/r)(F+B) + R/G                 if R <= B: all all-reduces but the first group's are hidden
//	ceil(M/r)(F+B) - B(1-1/G) + R        otherwise: the link is always busy
func init() {
	Register(Family{
		Name: "dp-overlap", Doc: "data parallelism whose groups of layers are summed while the backward goes on " +
			"(PyTorch DDP)",
		Chunks: -1, Beside: true,
		Place: func(workers, groups int) [][]int {
			on := make([][]int, groups)
			for g := range on {
				on[g] = schedule.Replicated(1, workers)[0]
			}
			return on
		},
		Admits: func(s schedule.Settings) error {
			for i, on := range s.Placement {
				if !slices.Equal(on, s.Placement[0]) {
					return fmt.Errorf("stage %d is on workers %v and stage 0 on %v; every group of layers is on "+
						"every worker", i, on, s.Placement[0])
				}
			}
			if s.Warmup != nil {
				return fmt.Errorf("warm-up depths %v; data parallelism keeps one micro-batch at a time", s.Warmup)
			}
			return nil
		},
		Generate: func(s schedule.Settings) (*schedule.Program, error) {
			p := s.Program()
			for r, w := range s.Placement[0] {
				for _, m := range microsOf(s, len(s.Placement[0]), r) {
					for g := range s.Placement {
						p.Body[w] = append(p.Body[w], schedule.Instruction{Stage: int32(g), Kind: schedule.F,
							Micro: int32(m), Replica: int16(r)})
					}
					for g := len(s.Placement) - 1; g >= 0; g-- {
						p.Body[w] = append(p.Body[w], schedule.Instruction{Stage: int32(g), Kind: schedule.B,
							Micro: int32(m), Replica: int16(r)})
					}
				}
			}
			return p, nil
		},
	})
}
