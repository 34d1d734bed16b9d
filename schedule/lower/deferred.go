package lower

import "github.com/millrace-ml/millrace/schedule"

// addDeferred lowers the updates of a stream that delays them. The replicas sum the gradients of a minibatch during the
// next minibatch. The update that uses this sum comes before the first forward that needs the update.
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

// deferred inserts the updates of one list before the forwards that need them. The first forward of minibatch k comes
// after the update of minibatch k-2. `begins` says that the list begins the stream, whose first two minibatches need no
// update.
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

// afterSum returns the collectives that use the replicas' sum, and then the update of a minibatch, on an instruction's
// stage.
func afterSum(p *schedule.Program, at schedule.Instruction, minibatch int32) schedule.List {
	u := at.As(schedule.U)
	u.Micro = minibatch
	return append(collectives(p, u)[1:], u)
}

// lastDeferred returns the updates that no forward needs, for the end of a worker's last list. They are those of the
// last two minibatches, or of the only minibatch. `end` is 1 + the id that the last micro-batch has in this list. `all`
// is the number of minibatches of the stream.
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
