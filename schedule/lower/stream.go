package lower

import (
	"fmt"

	"github.com/millrace-ml/millrace/schedule"
)

// addStream lowers the updates of an order without a flush: after the last gradient of each group of micro-batches come
// the collectives and the update of that stage, and at the end of the stream the update by the rest. Forwards after an
// update may use its result, so nothing is put off.
func addStream(p *schedule.Program) error {
	if err := groupsMeet(p); err != nil {
		return err
	}
	for _, part := range []schedule.Part{p.Prologue, p.Body, p.Epilogue} {
		for w, list := range part {
			part[w] = behindGradients(p, list,
				func(u schedule.Instruction) schedule.List { return append(collectives(p, u), u) })
		}
	}
	lists, end := lastLists(p)
	for w := range lists {
		lists[w] = append(lists[w], leftOver(p, w, end)...)
	}
	return nil
}

// lastLists is the part that ends the Program, and one more than the last micro-batch, counted as its ids
// are.
func lastLists(p *schedule.Program) (lists schedule.Part, end int32) {
	if len(p.Epilogue) > 0 {
		return p.Epilogue, p.StreamEnd() - int32(p.Repeat*p.MicroBatches)
	}
	return p.Body, p.StreamEnd()
}

// leftOver is the updates at the end of a worker's last list for groups that the stream does not fill. It has those
// that no gradient of this replica closed. end counts as the list's ids do.
func leftOver(p *schedule.Program, worker int, end int32) schedule.List {
	var out schedule.List
	for _, held := range p.StagesOf(worker) {
		g := int32(p.UpdateSpan(held[0], held[1]))
		if end%g == 0 {
			continue
		}
		at := schedule.Instruction{Pipeline: int16(held[0]), Stage: int32(held[1]), Replica: int16(held[2]),
			Kind: schedule.B}
		closed := false
		r := len(p.Placement[held[0]][held[1]])
		// Only the last r of a group can close it.
		for at.Micro = max(end/g*g, (end/g+1)*g-int32(r)); at.Micro < end; at.Micro++ {
			mine := p.Replication == schedule.Split || p.ReplicaOf(at.Micro, r) == held[2]
			closed = closed || mine && closes(p, at)
		}
		if at.Micro = end - 1; !closed {
			u := updateOf(p, at)
			out = append(append(out, collectives(p, u)...), u)
		}
	}
	return out
}

// groupsMeet refuses collectives over stages that update after different numbers of minibatches. PipeDream
// has each stage update for itself and says nothing of weights that stages share: copies that step at
// different times, by means over other minibatches, would not be one weight.
func groupsMeet(p *schedule.Program) error {
	meet := func(stages []int, what string) error {
		for pl := range p.Placement {
			for _, s := range stages {
				if g, first := p.UpdateSpan(pl, s), p.UpdateSpan(pl, stages[0]); g != first {
					return fmt.Errorf("schedule: program %s: stage %d updates every %d minibatches and stage %d "+
						"every %d: they have "+
						"no common update to %s; give them as many replicas each",
						p.Name, stages[0], first, s, g, what)
				}
			}
		}
		return nil
	}
	for _, tied := range p.Tied {
		if err := meet(tied, "sum tied gradients in"); err != nil {
			return err
		}
	}
	if !p.Clip {
		return nil
	}
	all := make([]int, p.Stages)
	for s := range all {
		all[s] = s
	}
	return meet(all, "clip")
}
