package family

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/millrace-ml/millrace/schedule"
)

// listing is a list scheduler for orders with split backwards. Forwards and input gradients of each worker have a fixed
// order. If the next of these cannot start in a slot, a weight gradient fills the slot. No instruction can start before
// its input exists. A forward also cannot start if the worker already holds as many chunks' activations as it may.
// Every instruction takes one slot, and messages take none.
type listing struct {
	p     *schedule.Program
	order []schedule.List // by worker: F and I
	most  int             // how many chunks a worker may hold from F to W
}

// run writes the lists and returns how many slots they take. It returns an error if no worker can go on.
func (l listing) run() (schedule.Part, int, error) {
	ended := map[schedule.Instruction]int{} // first slot after each F and I
	out := make(schedule.Part, l.p.Workers)
	at, held := make([]int, l.p.Workers), make([]int, l.p.Workers)
	late := make([]schedule.List, l.p.Workers) // weight gradients that can be computed
	left := 0
	for _, list := range l.order {
		left += len(list)
		for _, in := range list {
			if in.Kind == schedule.I {
				left++
			}
		}
	}
	slot := 0
	for ; left > 0; slot++ {
		var now []schedule.Instruction
		for w := range l.p.Workers {
			if in, ok := l.pick(w, at, held, late, ended, slot); ok {
				out[w] = append(out[w], in)
				now = append(now, in)
			}
		}
		if len(now) == 0 {
			return nil, 0, fmt.Errorf("with %d chunks on a worker nobody can go on in slot %d", l.most, slot)
		}
		for _, in := range now {
			left--
			if in.Kind != schedule.W {
				ended[in] = slot + 1
			}
		}
	}
	return out, slot, nil
}

// pick returns what a worker computes in a slot.
func (l listing) pick(w int, at, held []int, late []schedule.List, ended map[schedule.Instruction]int,
	slot int) (schedule.Instruction, bool) {
	if at[w] < len(l.order[w]) {
		in := l.order[w][at[w]]
		if l.ready(in, ended, slot) && (in.Kind != schedule.F || held[w] < l.most) {
			at[w]++
			if in.Kind == schedule.F {
				held[w]++
			} else {
				late[w] = append(late[w], in.As(schedule.W))
			}
			return in, true
		}
	}
	if len(late[w]) == 0 {
		return schedule.Instruction{}, false
	}
	in := late[w][0]
	late[w] = late[w][1:]
	held[w]--
	return in, true
}

// ready reports whether everything that an instruction needs from its neighbour stage has ended. On the last stage, an
// input gradient needs its forward.
func (l listing) ready(in schedule.Instruction, ended map[schedule.Instruction]int, slot int) bool {
	before := in
	if in.Kind == schedule.F {
		before.Stage--
	} else if before.Stage++; int(before.Stage) == l.p.Stages {
		before = in.As(schedule.F)
	}
	if before.Stage < 0 {
		return true
	}
	end, done := ended[before]
	return done && end <= slot
}

// block returns the start slots of one micro-batch's forwards and input gradients over a V of p workers. The block
// repeats every six slots: F, I and W of two chunks (Qi et al., Pipeline Parallelism with Controllable Memory, 2024).
// F0 moves down the workers by step[0] slots each, F1 up by step[1], I1 down by step[2], I0 up by step[3]. A worker
// must not have two instructions in the same slot of the six. block chooses the shortest waits between F0, F1, I1 and
// I0 for which this holds. ok is false if there are no such waits.
func block(p int, step [4]int) (offset [][4]int, ok bool) {
	least := -1
	for wait := range 6 * 6 * 6 {
		x, y, z := wait/36, wait/6%6, wait%6
		if least >= 0 && x+y+z >= least {
			continue
		}
		turn := step[0]*(p-1) + 1 + x + step[1]*(p-1)
		loss := turn + 1 + y
		back := loss + step[2]*(p-1) + 1 + z + step[3]*(p-1)
		try := make([][4]int, p)
		clash := false
		for i := range try {
			try[i] = [4]int{step[0] * i, turn - step[1]*i, loss + step[2]*i, back - step[3]*i}
			seen := 0
			for _, at := range try[i] {
				clash = clash || seen&(1<<(at%6)) != 0
				seen |= 1 << (at % 6)
			}
		}
		if !clash {
			offset, least = try, x+y+z
		}
	}
	return offset, least >= 0
}

// repeated returns the order in which the workers of a V run this many micro-batches of a block.
func repeated(offset [][4]int, micros int) []schedule.List {
	p := len(offset)
	out := make([]schedule.List, p)
	type timed struct {
		at int
		in schedule.Instruction
	}
	for w := range out {
		var all []timed
		for m := range micros {
			for k, kind := range []schedule.Kind{schedule.F, schedule.F, schedule.I, schedule.I} {
				stage := w
				if k == 1 || k == 2 {
					stage = 2*p - 1 - w
				}
				all = append(all, timed{offset[w][k] + 6*m, schedule.Instruction{Stage: int32(stage), Kind: kind,
					Micro: int32(m)}})
			}
		}
		slices.SortFunc(all, func(a, b timed) int { return cmp.Compare(a.at, b.at) })
		for _, x := range all {
			out[w] = append(out[w], x.in)
		}
	}
	return out
}
