package lower

import "github.com/millrace-ml/millrace/schedule"

// addTransfers puts each receive right before the instruction that needs the message. It puts each send right after the
// instruction that makes the message. So no other instruction waits for a message. A pair of a backward and a forward
// counts as one instruction: first come its receives, then both computations, then its sends.
func addTransfers(p *schedule.Program, list schedule.List) schedule.List {
	out := make(schedule.List, 0, 2*len(list))
	for i := 0; i < len(list); i++ {
		in := list[i]
		if p.Paired && in.Kind == schedule.B && i+1 < len(list) && list[i+1].Kind == schedule.F {
			i++
			beforeB, afterB := transfers(p, in)
			beforeF, afterF := transfers(p, list[i])
			out = append(append(append(append(append(out, beforeB...), beforeF...), list[i], in), afterF...), afterB...)
			continue
		}
		before, after := transfers(p, in)
		out = append(append(append(out, before...), in), after...)
	}
	return out
}

// transfers returns the receive that a computation needs and the send it makes, if any.
func transfers(p *schedule.Program, in schedule.Instruction) (before, after schedule.List) {
	receive, send := schedule.Kind(0), schedule.Kind(0)
	switch in.Kind {
	case schedule.F, schedule.EV:
		receive, send = schedule.RF, schedule.SF
	case schedule.B, schedule.I:
		receive, send = schedule.RB, schedule.SB
	default:
		return nil, nil
	}
	if r := in.As(receive); len(p.Senders(r)) > 0 {
		before = schedule.List{r}
	}
	if s := in.As(send); len(p.Receivers(s)) > 0 {
		after = schedule.List{s}
	}
	return before, after
}
