package family

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/millrace-ml/millrace/schedule"
)

// Chimera (Li and Hoefler, SC 2021, f = 1) runs two pipelines over p workers in opposite directions. Stage s is on
// workers s and p-1-s. Even micro-batches go down and odd ones up, and the two copies of each stage sum their
// gradients. A unit has p micro-batches, half of them in each direction, and a unit starts every 2p slots. Let forward
// and backward take one slot each. Then the j-th micro-batch of either direction in a unit runs forward on stage s in
// slot s + 2j of the unit, and backward in slot 2p-1-s + 2j. p is even, so the two directions never need the same slot.
// If the times F and B of a forward and a backward are equal, and the M micro-batches are a multiple of p, the bubble
// ratio is (p-2)/(2M+p-2). Workers hold p/2+1 to p micro-batches.
func init() {
	Register(Family{
		Name: "chimera", Doc: "two directions over the same workers, two copies of the weights (Chimera, arXiv " +
			"2107.06925)",
		Chunks: 2, Place: func(workers, _ int) [][]int { return schedule.Bidirectional(workers) },
		Replications: []schedule.Replication{schedule.RoundRobin},
		Admits: func(s schedule.Settings) error {
			p := len(s.Placement)
			if p%2 != 0 {
				return fmt.Errorf("%d stages; two directions meet only on an even number", p)
			}
			if s.MicroBatches%2 != 0 {
				return fmt.Errorf("%d micro-batches; each direction takes every second one, so give an even number",
					s.MicroBatches)
			}
			return placed(s, schedule.Bidirectional(p), fmt.Sprintf("stage s lies on workers s and %d-s", p-1))
		},
		Generate: chimera,
	})
}

func chimera(s schedule.Settings) (*schedule.Program, error) {
	prog := s.Program()
	p := len(s.Placement)
	type slot struct {
		at int
		in schedule.Instruction
	}
	slots := make([][]slot, prog.Workers)
	for m := range s.MicroBatches {
		r, j := m%2, m/2
		unit, inside := j/(p/2), j%(p/2)
		for stage, on := range s.Placement {
			start := unit*2*p + 2*inside
			at := schedule.Instruction{Stage: int32(stage), Micro: int32(m), Replica: int16(r)}
			slots[on[r]] = append(slots[on[r]], slot{start + stage, at.As(schedule.F)},
				slot{start + 2*p - 1 - stage, at.As(schedule.B)})
		}
	}
	for w, list := range slots {
		slices.SortFunc(list, func(a, b slot) int { return cmp.Compare(a.at, b.at) })
		for _, x := range list {
			prog.Body[w] = append(prog.Body[w], x.in)
		}
	}
	return prog, nil
}
