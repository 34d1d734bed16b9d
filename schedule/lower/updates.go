package lower

import (
	"fmt"
	"github.com/millrace-ml/millrace/schedule"
)

// addUpdates lowers the updates of an order without a flush: behind the last gradient of
// each group of micro-batches come the collectives and the update of that stage, and at the
// end of the stream the update of what is left over. Forwards behind an update
// may use what it made, so nothing is put off.
func addUpdates(p *schedule.Program) error {
	end := p.StreamEnd()
	if err := groupsMeet(p); err != nil {
		return err
	}
	for i, part := range []schedule.Part{p.Prologue, p.Body, p.Epilogue} {
		for w, list := range part {
			var out schedule.List
			for j := 0; j < len(list); j++ {
				in := list[j]
				out = append(out, in)
				if in.Kind != schedule.B && in.Kind != schedule.W {
					continue
				}
				for j+1 < len(list) && list[j+1].Kind == schedule.SB {
					j++ // the neighbour waits for the gradient
					out = append(out, list[j])
				}
				if closes(p, in) {
					chain := updating(p, in, p.UpdateOf(int(in.Pipeline), int(in.Stage), in.Micro))
					if p.DeferUpdates {
						chain = chain[:1] // the sum over the replicas alone
					}
					out = append(out, chain...)
				}
			}
			if p.DeferUpdates {
				out = deferred(p, out, i == 0)
			}
			part[w] = out
		}
		if i == 2 || i == 1 && len(p.Epilogue) == 0 {
			for w := range part {
				here := end - int32(i/2*p.Repeat*p.MicroBatches)
				if p.DeferUpdates {
					part[w] = append(part[w], lastDeferred(p, w, here, p.Minibatches())...)
					continue
				}
				part[w] = append(part[w], leftOver(p, w, here)...)
			}
		}
	}
	return nil
}

// closes says whether a gradient is the last of its group on its replica.
func closes(p *schedule.Program, in schedule.Instruction) bool {
	g := int32(p.UpdateSpan(int(in.Pipeline), int(in.Stage)))
	step := int32(1)
	if p.Replication == schedule.RoundRobin {
		step = int32(len(p.Placement[in.Pipeline][in.Stage]))
	}
	return in.Micro+step > (in.Micro/g+1)*g-1
}

// updating is the collectives of an update and the update itself.
func updating(p *schedule.Program, in schedule.Instruction, number int32) schedule.List {
	at := schedule.Instruction{Pipeline: in.Pipeline, Stage: in.Stage, Replica: in.Replica, Micro: number}
	var out schedule.List
	if len(p.Placement[in.Pipeline][in.Stage]) > 1 {
		out = append(out, at.As(schedule.AR))
	}
	if p.TiedTo(int(in.Stage)) != nil {
		out = append(out, at.As(schedule.TG))
	}
	if p.Clip {
		out = append(out, at.As(schedule.GN))
	}
	return append(out, at.As(schedule.U))
}

// leftOver is the updates, at the end of a worker's last list, of groups that the stream
// fills only in part and that no gradient of this replica closed. end counts as the list's
// ids do.
func leftOver(p *schedule.Program, worker int, end int32) schedule.List {
	var out schedule.List
	for _, held := range p.StagesOf(worker) {
		g := int32(p.UpdateSpan(held[0], held[1]))
		if end%g == 0 {
			continue
		}
		at := schedule.Instruction{Pipeline: int16(held[0]), Stage: int32(held[1]), Replica: int16(held[2]), Kind: schedule.B}
		closed := false
		r := len(p.Placement[held[0]][held[1]])
		// Only the last r of a group can close it.
		for at.Micro = max(end/g*g, (end/g+1)*g-int32(r)); at.Micro < end; at.Micro++ {
			mine := p.Replication == schedule.Split || p.ReplicaOf(at.Micro, r) == held[2]
			closed = closed || mine && closes(p, at)
		}
		if !closed {
			out = append(out, updating(p, at, p.UpdateOf(held[0], held[1], end-1))...)
		}
	}
	return out
}

// groupsMeet refuses collectives over stages that update after different numbers of minibatches. PipeDream has
// each stage update for itself and says nothing of weights that stages share: copies that step at different
// times, by means over other minibatches, would not be one weight.
func groupsMeet(p *schedule.Program) error {
	meet := func(stages []int, what string) error {
		for pl := range p.Placement {
			for _, s := range stages {
				if g, first := p.UpdateSpan(pl, s), p.UpdateSpan(pl, stages[0]); g != first {
					return fmt.Errorf("schedule: program %s: stage %d updates every %d minibatches and stage %d every %d: they have "+
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
