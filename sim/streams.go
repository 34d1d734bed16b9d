package sim

import "github.com/millrace-ml/millrace/schedule"

// began notes that a computation starts, for the messages that leave while it runs. The backward of a pair counts as
// begun at the start of the forward before it in the list, because both run together.
func (d *device) began(in schedule.Instruction, now float64, paired bool) {
	d.computing = true
	start := now
	if paired && in.Kind == schedule.B && d.latest.Kind == schedule.F && d.latest.Micro != in.Micro {
		start = d.startedS
	}
	d.latest, d.startedS = in, start
	if in.Kind == schedule.F || in.Kind == schedule.EV {
		d.forwardFromS = start
	} else {
		d.backwardFromS = start
	}
}

// backwardS returns how long a backward that begins now takes. If it forms a pair with the forward in front of it and
// follows at once, it takes the rest of the pair's time. The forward of a pair takes the same time as alone.
func (d *device) backwardS(in schedule.Instruction, c *StageCost, now float64, paired bool) float64 {
	if c.PairedS > 0 && paired && d.latest.Kind == schedule.F && d.latest.Micro != in.Micro && d.endedS == now {
		return max(0, c.PairedS-c.ForwardS)
	}
	return c.BackwardS
}

// leaves returns when the first bytes of a message can leave. If the device streams, this is when the computation that
// makes the message begins. Otherwise it is when the message is sent.
func (s *state) leaves(t transfer) float64 {
	if s.terms.costs.Streams == nil || !s.terms.costs.Streams(t.from) {
		return s.queue.now
	}
	d := &s.workers[t.from].device
	if t.in.Kind == schedule.SF {
		return d.forwardFromS
	}
	return d.backwardFromS
}

// copiesOf returns, by worker, how each instruction changes the number of weight copies that the policy keeps. It
// returns nil for a Program that is not a stream, which keeps one copy.
func copiesOf(p *schedule.Program) []map[schedule.Instruction]int {
	if !p.Streams() {
		return nil
	}
	changes := make([]map[schedule.Instruction]int, p.Workers)
	for w := range changes {
		changes[w] = p.Copies(w)
	}
	return changes
}
