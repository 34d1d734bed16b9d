package lower

import "github.com/millrace-ml/millrace/schedule"

// addServed lowers the lists of one part of a Program with a server (see schedule, ASP). Trainers fetch weights before
// a forward and send gradients after its backward. The server has an instruction for each of these messages. In a run,
// the server's strands take turns as they become ready. In a replay, they take turns in the order given to Recorded.
func addServed(p *schedule.Program, part schedule.Part) {
	if part == nil {
		return
	}
	most := 0
	for _, w := range p.Placement[0][0] {
		most = max(most, len(part[w]))
	}
	server := p.WorkerOf(1, 0, 0)
	for turn := 0; turn < most; turn++ { // one minibatch of each trainer per turn
		for _, w := range p.Placement[0][0] {
			if turn < len(part[w]) && part[w][turn].Kind == schedule.F {
				at := schedule.Instruction{Pipeline: 1, Micro: part[w][turn].Micro}
				part[server] = append(part[server], at.As(schedule.SW))
				part[server] = append(part[server], update(p, at)...)
			}
		}
	}
	for _, w := range p.Placement[0][0] {
		part[w] = fetching(part[w])
	}
}

// update returns what a server does with the gradients of a minibatch.
func update(p *schedule.Program, at schedule.Instruction) schedule.List {
	list := append(schedule.List{at.As(schedule.RG)}, collectives(p, at)...)
	return append(list, at.As(schedule.U))
}

// fetching returns a trainer's list with its receives of weights and sends of gradients.
func fetching(list schedule.List) schedule.List {
	var out schedule.List
	for _, in := range list {
		switch in.Kind {
		case schedule.F:
			out = append(out, in.As(schedule.RW), in)
		case schedule.B:
			out = append(out, in, in.As(schedule.SG))
		default:
			out = append(out, in)
		}
	}
	return out
}
