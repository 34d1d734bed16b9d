package lower

import (
	"fmt"

	"github.com/millrace-ml/millrace/schedule"
)

// addStream lowers the updates of an order without a flush. After the last gradient of each group of micro-batches come
// the collectives and the update of that stage. The remaining gradients are used by an update at the end of the stream.
// No update is delayed, since forwards after it may use its result.
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

// lastLists returns the part that ends the Program, and 1 + the id of this part's last micro-batch.
func lastLists(p *schedule.Program) (lists schedule.Part, end int32) {
	if len(p.Epilogue) > 0 {
		return p.Epilogue, p.StreamEnd() - int32(p.Repeat*p.MicroBatches)
	}
	return p.Body, p.StreamEnd()
}

// leftOver returns the updates at the end of a worker's last list for groups that the stream does not fill. These are
// the groups that no gradient of this replica closed. `end` is 1 + the id that the last micro-batch has in this list.
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
		// The group's last micro-batch on this replica is one of the group's last `r` micro-batches.
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

// groupsMeet refuses collectives over stages that update after different numbers of minibatches. In PipeDream each
// stage updates by itself, and the paper does not cover weights that stages share. Copies that update at different
// times, with means over different minibatches, would not stay equal.
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
