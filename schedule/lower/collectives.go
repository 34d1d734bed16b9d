package lower

import "github.com/millrace-ml/millrace/schedule"

// collectives returns what an update needs in addition to its stage's own gradients. These are up to three collectives
// in a row, each of which uses the result of the one before. First come the sums over the replicas, then those over the
// stages that share a parameter, then the norm over all stages.
func collectives(p *schedule.Program, u schedule.Instruction) schedule.List {
	var chain schedule.List
	if len(p.Placement[u.Pipeline][u.Stage]) > 1 {
		chain = append(chain, u.As(schedule.AR))
	}
	if p.TiedTo(int(u.Stage)) != nil {
		chain = append(chain, u.As(schedule.TG))
	}
	if p.Clip {
		chain = append(chain, u.As(schedule.GN))
	}
	return chain
}

// updateOf returns the update that uses a gradient.
func updateOf(p *schedule.Program, gradient schedule.Instruction) schedule.Instruction {
	u := gradient.As(schedule.U)
	u.Micro = p.UpdateOf(int(u.Pipeline), int(u.Stage), gradient.Micro)
	return u
}

// isGradient reports whether a computation adds to the gradients of weights.
func isGradient(in schedule.Instruction) bool { return in.Kind == schedule.B || in.Kind == schedule.W }

// behindGradients inserts the list that `put` returns for an update. It does so once for each group of micro-batches
// that ends in the list. The inserted list comes after the group's last gradient and that gradient's send.
func behindGradients(p *schedule.Program, list schedule.List,
	put func(u schedule.Instruction) schedule.List) schedule.List {
	var out schedule.List
	for j := 0; j < len(list); j++ {
		in := list[j]
		out = append(out, in)
		if !isGradient(in) {
			continue
		}
		for j+1 < len(list) && list[j+1].Kind == schedule.SB {
			j++ // the send comes first, since the neighbour waits for the gradient
			out = append(out, list[j])
		}
		if closes(p, in) {
			out = append(out, put(updateOf(p, in))...)
		}
	}
	return out
}

// closes reports whether a gradient is the last of its group on its replica.
func closes(p *schedule.Program, in schedule.Instruction) bool {
	g := int32(p.UpdateSpan(int(in.Pipeline), int(in.Stage)))
	step := int32(1)
	if p.Replication == schedule.RoundRobin {
		step = int32(len(p.Placement[in.Pipeline][in.Stage]))
	}
	return in.Micro+step > (in.Micro/g+1)*g-1
}
