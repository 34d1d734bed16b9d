package family

import (
	"fmt"

	"github.com/millrace-ml/millrace/schedule"
)

// Plain data parallelism is one stage with replicas. Either the replicas take micro-batches in turn, so that batch-norm
// statistics cover whole micro-batches, or they split each micro-batch (Settings.Replication). Each forward is followed
// by its backward, and gradients accumulate. With one worker it is training without parallelism, the reference with
// which pipelines are compared bit by bit.
func init() {
	Register(Family{
		Name: "dp", Doc: "data parallelism: every worker holds the whole model; one worker is plain training",
		General: "dp", Undivided: true,
		Place: func(workers, _ int) [][]int { return schedule.Replicated(1, workers) },
		Admits: func(s schedule.Settings) error {
			if len(s.Placement) != 1 {
				return fmt.Errorf("%d stages; data parallelism has one, replicated", len(s.Placement))
			}
			if s.Warmup != nil && s.Warmup[0] != 1 {
				return fmt.Errorf("warm-up %d; data parallelism keeps one micro-batch at a time", s.Warmup[0])
			}
			return admitOneF1B(s)
		},
		Generate: func(s schedule.Settings) (*schedule.Program, error) {
			s.Warmup = []int{1}
			return oneF1B(s)
		},
	})
	Register(Family{
		Name: "single", Doc: "one worker, no parallelism: gradient accumulation",
		General: "dp", Undivided: true,
		Place: func(int, int) [][]int { return schedule.Replicated(1, 1) },
		Admits: func(s schedule.Settings) error {
			if len(s.Placement) != 1 || len(s.Placement[0]) != 1 {
				return fmt.Errorf("%d stages; it has one, on one worker", len(s.Placement))
			}
			return admitOneF1B(s)
		},
		Generate: func(s schedule.Settings) (*schedule.Program, error) {
			if s.Warmup == nil {
				s.Warmup = []int{1}
			}
			return oneF1B(s)
		},
	})
}
