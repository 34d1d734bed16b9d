package lower

import (
	"slices"

	"github.com/millrace-ml/millrace/schedule"
)

// addFlush ends a synchronous step on one worker. A stage's first collective comes right after its last gradient, where
// no instruction waits for it. On a replica without a micro-batch it comes at the beginning of the list. The other
// collectives come at the end of the list, before the updates. They are ordered by kind over all stages of the worker.
// Otherwise a worker with several stages could wait in one collective, and so delay another collective that other
// workers wait for.
func addFlush(p *schedule.Program, worker int, list schedule.List) schedule.List {
	var idle, sums, norms, updates schedule.List
	last := lastGradients(list)
	behind := make(map[int]schedule.Instruction, len(last)) // by position: a stage's first collective, which goes there
	for _, h := range p.StagesOf(worker) {
		u := schedule.Instruction{Pipeline: int16(h[0]), Stage: int32(h[1]), Replica: int16(h[2]), Kind: schedule.U}
		updates = append(updates, u)
		chain := collectives(p, u)
		if len(chain) == 0 {
			continue
		}
		if at, trains := last[stageOf(u)]; trains {
			behind[at] = chain[0]
		} else {
			idle = append(idle, chain[0])
		}
		for _, in := range chain[1:] {
			if in.Kind == schedule.TG {
				sums = append(sums, in)
			} else {
				norms = append(norms, in)
			}
		}
	}
	slices.Reverse(idle)
	out := idle
	for i, in := range list {
		out = append(out, in)
		if first, ok := behind[i+1]; ok {
			out = append(out, first)
		}
	}
	return slices.Concat(out, sums, norms, updates)
}

// stageOf returns an instruction's stage and replica, as a key.
func stageOf(in schedule.Instruction) schedule.Instruction {
	in.Kind, in.Micro = 0, 0
	return in
}

// lastGradients returns the position after the last gradient of each stage and after its sends.
func lastGradients(list schedule.List) map[schedule.Instruction]int {
	last := map[schedule.Instruction]int{}
	for i, in := range list {
		if isGradient(in) {
			last[stageOf(in)] = i + 1
		}
	}
	for stage, at := range last {
		for at < len(list) && list[at].Kind == schedule.SB {
			at++ // the send comes first, since the neighbour waits for the gradient
		}
		last[stage] = at
	}
	return last
}
