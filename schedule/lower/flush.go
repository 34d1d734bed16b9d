package lower

import (
	"slices"

	"github.com/millrace-ml/millrace/schedule"
)

// addFlush ends a synchronous step on one worker, also on a replica that had no micro-batch
// to work on. A stage's first collective goes right behind its last gradient, where nothing waits for
// it; the others end the list before the updates, those of all stages kind by kind. Where
// a worker holds several stages, one that waited sooner could keep back a collective that the
// others wait for.
func addFlush(p *schedule.Program, worker int, list schedule.List) schedule.List {
	var sums, norms, updates schedule.List
	for _, h := range p.StagesOf(worker) {
		u := schedule.Instruction{Pipeline: int16(h[0]), Stage: int32(h[1]), Replica: int16(h[2]), Kind: schedule.U}
		updates = append(updates, u)
		chain := collectives(p, u)
		if len(chain) == 0 {
			continue
		}
		list = slices.Insert(list, behindLast(list, u), chain[0])
		for _, in := range chain[1:] {
			if in.Kind == schedule.TG {
				sums = append(sums, in)
			} else {
				norms = append(norms, in)
			}
		}
	}
	return slices.Concat(list, sums, norms, updates)
}

// behindLast is the place behind the last gradient of an update's stage, and behind its sends.
func behindLast(list schedule.List, u schedule.Instruction) int {
	at := 0
	for i, in := range list {
		if isGradient(in) && in.Stage == u.Stage && in.Pipeline == u.Pipeline {
			at = i + 1
		}
	}
	for at < len(list) && list[at].Kind == schedule.SB {
		at++ // the neighbour waits for the gradient; nobody waits for the collective yet
	}
	return at
}
