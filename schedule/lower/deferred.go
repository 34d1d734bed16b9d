package lower

import "github.com/millrace-ml/millrace/schedule"

// addDeferred lowers the updates of a stream that puts them off: the sum over the replicas goes on beside the
// next minibatch, and what takes it stands in front of the first forward that needs it.
func addDeferred(p *schedule.Program) error {
	if err := groupsMeet(p); err != nil {
		return err
	}
	for i, part := range []schedule.Part{p.Prologue, p.Body, p.Epilogue} {
		for w, list := range part {
			list = behindGradients(p, list, func(u schedule.Instruction) schedule.List { return collectives(p, u)[:1] })
			part[w] = deferred(p, list, i == 0)
		}
	}
	lists, end := lastLists(p)
	for w := range lists {
		lists[w] = append(lists[w], lastDeferred(p, w, end, p.Minibatches())...)
	}
	return nil
}

// deferred puts the updates of one list where the forwards are that need them: in front of the first
// forward of a minibatch the update of the minibatch before the one before it. begins says that the stream
// does so with the list: its first two minibatches need none.
func deferred(p *schedule.Program, list schedule.List, begins bool) schedule.List {
	var out schedule.List
	type place struct {
		pipeline int16
		stage    int32
	}
	last := map[place]int32{}
	for _, in := range list {
		if in.Kind == schedule.F {
			here, mini := place{in.Pipeline, in.Stage}, in.Micro/int32(p.PerMinibatch())
			if before, seen := last[here]; !seen || before != mini {
				last[here] = mini
				if !begins || mini >= 2 {
					out = append(out, afterSum(p, in, mini-2)...)
				}
			}
		}
		out = append(out, in)
	}
	return out
}

// afterSum is the update of a minibatch on the stage of an instruction. In front are the collectives that take the
// replicas' sum.
func afterSum(p *schedule.Program, at schedule.Instruction, minibatch int32) schedule.List {
	u := at.As(schedule.U)
	u.Micro = minibatch
	return append(collectives(p, u)[1:], u)
}

// lastDeferred is the updates that no forward needs, at the end of a worker's last list: of the last two
// minibatches, or of the only one. end counts as the list's ids do, all is the minibatches of the stream.
func lastDeferred(p *schedule.Program, worker int, end int32, all int) schedule.List {
	var out schedule.List
	per := int32(p.PerMinibatch())
	for _, held := range p.StagesOf(worker) {
		at := schedule.Instruction{Pipeline: int16(held[0]), Stage: int32(held[1]), Replica: int16(held[2])}
		for mini := end/per - int32(min(2, all)); mini < end/per; mini++ {
			out = append(out, afterSum(p, at, mini)...)
		}
	}
	return out
}
