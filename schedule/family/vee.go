package family

import (
	"fmt"

	"github.com/millrace-ml/millrace/schedule"
)

// Orders on a V, with split backwards: worker i of p holds virtual stages i and 2p-1-i (Qi et al., Pipeline Parallelism
// with Controllable Memory, 2024). Each needs memory for this many activations, where a is the activations of one
// micro-batch in both of a worker's chunks:
//
//	zb-v     p*a, the same on every worker; no bubble inside a worker's span if F, I and W take equally long
//	v-half   floor((p+2)/2)*a, at most half of 1F1B's bubble
//	v-min    floor((p+4)/3)*a, about two thirds of 1F1B's bubble
//
// zb-v follows the pattern of its authors. The first chunk's forwards go down the workers, the second chunk's go up.
// Worker i runs 2(p-i)-1 forwards down, i pairs of a forward up and a forward down, and p-i pairs of a forward up and
// its backward. Then it alternates between F and B of the first chunk, and F and B of the second. The other two orders
// repeat a building block every six slots, and fill gaps with weight gradients. The variable steps lists the blocks. Of
// those that fit in the memory, the one that takes the fewest slots is used.
func init() {
	onVee := func(workers, _ int) [][]int { return schedule.Vee(workers) }
	admit := func(s schedule.Settings) error {
		p := len(s.Placement) / 2
		if len(s.Placement)%2 != 0 {
			return fmt.Errorf("%d virtual stages; a V has two on each worker", len(s.Placement))
		}
		return placed(s, schedule.Vee(p), fmt.Sprintf("worker i holds stages i and %d-i", 2*p-1))
	}
	Register(Family{
		Name: "zb-v", Doc: "split backwards on a V, no bubble at equal times within 1F1B's memory (arXiv 2405.15362)",
		Chunks: 2, Halves: true, Place: onVee, Admits: admit, Generate: zeroBubbleV,
	})
	Register(Family{
		Name: "v-half", Doc: "split backwards on a V in half of 1F1B's memory (arXiv 2405.15362)",
		Chunks: 2, Halves: true, Place: onVee, Admits: admit,
		Generate: func(s schedule.Settings) (*schedule.Program, error) {
			return blocks(s, func(p int) int { return (p + 2) / 2 })
		},
	})
	Register(Family{
		Name: "v-min", Doc: "split backwards on a V in a third of 1F1B's memory (arXiv 2405.15362)",
		Chunks: 2, Halves: true, Place: onVee, Admits: admit,
		Generate: func(s schedule.Settings) (*schedule.Program, error) {
			return blocks(s, func(p int) int { return (p + 4) / 3 })
		},
	})
}

// steps lists the blocks to try. The four numbers of a block say how many slots later the next worker runs F0, F1, I1
// and I0. With greater numbers, activations live longer and workers wait less.
var steps = [][4]int{
	{1, 1, 1, 1}, {1, 2, 1, 1}, {1, 2, 1, 2}, {2, 1, 2, 1}, {2, 2, 1, 3}, {1, 3, 1, 3}, {1, 3, 3, 1},
	{1, 4, 1, 3}, {1, 4, 2, 3}, {2, 4, 2, 4}, {4, 2, 4, 2},
}

// blocks returns the Program that repeats one building block. It chooses the block that needs the fewest slots in a
// trial. `memory` returns the limit for a worker's activations, as a number of micro-batches.
func blocks(s schedule.Settings, memory func(workers int) int) (*schedule.Program, error) {
	prog := s.Program()
	p := prog.Workers
	// A trial with enough micro-batches for the steady state and both ends chooses the block.
	trial := min(s.MicroBatches, 4*p)
	var best [][4]int
	fewest := 0
	for _, step := range steps {
		offset, ok := block(p, step)
		if !ok {
			continue
		}
		_, slots, err := listing{prog, repeated(offset, trial), 2 * memory(p)}.run()
		if err == nil && (best == nil || slots < fewest) {
			best, fewest = offset, slots
		}
	}
	if best == nil {
		return nil, fmt.Errorf("no block of %d workers keeps to %d micro-batches' activations", p, memory(p))
	}
	lists, _, err := listing{prog, repeated(best, s.MicroBatches), 2 * memory(p)}.run()
	if err != nil {
		return nil, err
	}
	prog.Body = lists
	return prog, nil
}

// zeroBubbleV writes ZB-V for at least 2p micro-batches, and leaves out those beyond MicroBatches.
func zeroBubbleV(s schedule.Settings) (*schedule.Program, error) {
	prog := s.Program()
	p := prog.Workers
	total := max(2*p, s.MicroBatches)
	for i := range p {
		stages := [2]int32{int32(i), int32(2*p - 1 - i)}
		var list schedule.List
		var next [schedule.W + 1][2]int // by kind and chunk: the next micro-batch
		add := func(chunk int, kinds ...schedule.Kind) {
			for _, k := range kinds {
				m := next[k][chunk]
				next[k][chunk]++
				if m < s.MicroBatches {
					list = append(list, schedule.Instruction{Stage: stages[chunk], Kind: k, Micro: int32(m)})
				}
			}
		}
		for range 2*(p-i) - 1 {
			add(0, schedule.F)
		}
		for range i {
			add(1, schedule.F)
			add(0, schedule.F)
		}
		for range p - i {
			add(1, schedule.F, schedule.I, schedule.W)
		}
		for next[schedule.F][1] < next[schedule.F][0] || next[schedule.F][0] < total {
			if next[schedule.F][0] < total {
				add(0, schedule.F)
			}
			add(0, schedule.I, schedule.W)
			add(1, schedule.F, schedule.I, schedule.W)
		}
		for range i {
			add(0, schedule.I)
			add(1, schedule.I)
		}
		for range p - i {
			add(0, schedule.I, schedule.W)
		}
		for next[schedule.W][1] < next[schedule.I][1] {
			add(1, schedule.W)
		}
		for next[schedule.W][0] < next[schedule.I][0] {
			add(0, schedule.W)
		}
		prog.Body[i] = list
	}
	return prog, nil
}
