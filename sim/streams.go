package sim

import "github.com/millrace-ml/millrace/schedule"

// began notes that a computation starts, for the messages that will leave while it runs.
// The backward of a pair runs beside the forward before it in the list, from its start on.
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

// backwardS is what a backward takes that begins now: what is left of its pair where it is computed together with the
// forward in front of it, which took what it does alone.
func (d *device) backwardS(in schedule.Instruction, c *StageCost, now float64, paired bool) float64 {
	if c.PairedS > 0 && paired && d.latest.Kind == schedule.F && d.latest.Micro != in.Micro && d.endedS == now {
		return max(0, c.PairedS-c.ForwardS)
	}
	return c.BackwardS
}

// leaves is when the first bytes of a message can be on their way: when it is sent, or, from
// a device that streams, when the computation that makes it begins.
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

// copiesOf is, by worker, how each instruction changes the copies of weights that the
// policy keeps; nil under Sync, which keeps one.
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
