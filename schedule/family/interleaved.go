package family

import (
	"fmt"

	"github.com/millrace-ml/millrace/schedule"
)

// Orders with v chunks on each of p workers, placed round robin (Wrap). F and B are the times of a forward and a
// backward through all chunks of a worker, and M is the number of micro-batches:
//
//	interleaved   1F1B over chunks (Narayanan et al., SC 2021): worker i runs
//	              2(p-i-1) + (v-1)p forwards before its first pair of a forward and a backward;
//	              bubble (p-1)(F+B)/v; the first worker holds pv + p-1 chunks' activations
//	bfs           all micro-batches of one chunk, then of the next (Lamy-Poirier, 2022):
//	              the same bubble, all M v activations held, the messages of a chunk one after another
//
// Micro-batches go through a worker's chunks in groups of p, so interleaved needs a multiple of p.
func init() {
	admit := func(s schedule.Settings) error {
		p := s.Workers()
		if len(s.Placement)%p != 0 || len(s.Placement) < 2*p && p > 1 {
			return fmt.Errorf("%d virtual stages on %d workers; give each worker as many, two at least",
				len(s.Placement), p)
		}
		return placed(s, schedule.Wrap(p, len(s.Placement)/p), "stage s lies on worker s mod workers")
	}
	Register(Family{
		Name: "interleaved", Doc: "1F1B over several chunks a worker (Megatron-LM, arXiv 2104.04473)", Chunks: -1,
		Place: schedule.Wrap,
		Admits: func(s schedule.Settings) error {
			if err := admit(s); err != nil {
				return err
			}
			if p := s.Workers(); s.MicroBatches%p != 0 {
				return fmt.Errorf("%d micro-batches on %d workers; give a multiple", s.MicroBatches, p)
			}
			return nil
		},
		Generate: func(s schedule.Settings) (*schedule.Program, error) {
			return list(s, listRule{ahead: func(at listPlace) int {
				return 2*(at.workers-at.worker-1) +
					(at.chunks-1)*at.workers + 1
			}}), nil
		},
	})
	Register(Family{
		Name: "bfs", Doc: "looped, breadth first: all micro-batches of a chunk, then the next chunk (arXiv " +
			"2211.05953)", Chunks: -1, Place: schedule.Wrap,
		Admits: admit,
		Generate: func(s schedule.Settings) (*schedule.Program, error) {
			return list(s, listRule{breadth: true, ahead: func(at listPlace) int { return at.chunks * at.micros }}), nil
		},
	})
}
