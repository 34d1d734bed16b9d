package family

import (
	"fmt"

	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/check"
)

// The 1F1B(K_i) family. Stage i runs K_i forwards before its first backward, then one backward and one forward in turn,
// then the remaining backwards. All synchronous schedules of the four papers are choices of K_i. Stages are 0..S-1, and
// M is the number of micro-batches:
//
//	afab   K_i = M                 GPipe; AvgPipe's advance forward at its deepest
//	1f1b   K_i = S-i               DAPPLE P_A (§5.3), BaPipe 1F1B-SNO
//	pb     K_i = 2(S-i)-1          DAPPLE P_B (§5.3)
//	so     K_i = 2(S-i)            BaPipe 1F1B-SO (Table II)
//
// K_i is at most M. Settings.Warmup may give any other valid K_i.
func init() {
	for _, d := range []struct {
		name, doc string
		depth     func(stages, i, microBatches int) int
	}{
		{"afab", "all forwards, then all backwards (GPipe)", func(_, _, m int) int { return m }},
		{"1f1b", "one forward, one backward, K_i = S-i (DAPPLE P_A, BaPipe 1F1B-SNO)",
			func(s, i, _ int) int { return s - i }},
		{"pb", "1F1B with K_i = 2(S-i)-1, which hides transfers (DAPPLE P_B)",
			func(s, i, _ int) int { return 2*(s-i) - 1 }},
		{"so", "1F1B with K_i = 2(S-i) (BaPipe 1F1B-SO)", func(s, i, _ int) int { return 2 * (s - i) }},
	} {
		warmup := func(stages, microBatches int) []int {
			k := make([]int, stages)
			for i := range k {
				k[i] = d.depth(stages, i, microBatches)
			}
			return k
		}
		Register(Family{
			Name: d.name, Doc: d.doc, Warmup: warmup, General: "1f1b", Deepest: d.name == "afab", Admits: admitOneF1B,
			Generate: func(s schedule.Settings) (*schedule.Program, error) {
				if s.Warmup == nil {
					s.Warmup = warmup(len(s.Placement), s.MicroBatches)
				}
				return oneF1B(s)
			},
		})
	}
}

// admitOneF1B refuses a worker with two stages, and depths that are out of range or deadlock. Depths with K_i < K_(i+1)
// deadlock: after K_i forwards stage i waits for a backward, while stage i+1 waits for a further forward.
func admitOneF1B(s schedule.Settings) error {
	owner := map[int]int{}
	for i, on := range s.Placement {
		for _, w := range on {
			if before, taken := owner[w]; taken {
				return fmt.Errorf("worker %d holds stages %d and %d; this order gives a worker one", w, before, i)
			}
			owner[w] = i
		}
	}
	m := s.MicroBatches
	for i, k := range s.Warmup {
		if k < 1 || k > m {
			return fmt.Errorf("warm-up K_%d is %d; it must be 1 to M = %d", i, k, m)
		}
		if i > 0 && min(k, m) > min(s.Warmup[i-1], m) {
			return fmt.Errorf("warm-up K_%d = %d is over K_%d = %d: stage %d would wait for a forward that stage "+
				"%d does only after a backward; depths must not grow",
				i, k, i-1, s.Warmup[i-1], i, i-1)
		}
	}
	return nil
}

func oneF1B(s schedule.Settings) (*schedule.Program, error) {
	p := list(s, listRule{ahead: depth})
	if s.Replication == schedule.RoundRobin && unequal(s.Placement) {
		// A depth counts the micro-batches of one replica. On stages with different numbers of replicas, equal depths
		// cover different micro-batches, and the rule on K_i is not enough. So Check simulates the order itself.
		p.Name = "1f1b"
		if _, err := check.Check(p); err != nil {
			return nil, fmt.Errorf("these depths do not suit stages of unequal replicas: %w", err)
		}
	}
	return p, nil
}

func unequal(placement [][]int) bool {
	for _, on := range placement {
		if len(on) != len(placement[0]) {
			return true
		}
	}
	return false
}

// microsOf returns the micro-batches of a step that replica r of n computes, ascending.
func microsOf(s schedule.Settings, n, r int) []int {
	if s.Replication == schedule.Split {
		n, r = 1, 0
	}
	var mine []int
	for m := r; m < s.MicroBatches; m += n {
		mine = append(mine, m)
	}
	return mine
}
