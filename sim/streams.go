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
		d.forwardS = start
	} else {
		d.backwardS = start
	}
}

// backwardS is what a backward takes that begins now: what is left of its pair where it is computed together with the
// forward in front of it, which took what it does alone.
func (s *state) backwardS(w int, in schedule.Instruction, c *StageCost) float64 {
	d := &s.workers[w].device
	if c.PairedS > 0 && s.p.Paired && d.latest.Kind == schedule.F && d.latest.Micro != in.Micro && d.endedS == s.now {
		return max(0, c.PairedS-c.ForwardS)
	}
	return c.BackwardS
}

// leaves is when the first bytes of a message can be on their way: when it is sent, or, from
// a device that streams, when the computation that makes it begins.
func (s *state) leaves(t transfer) float64 {
	if s.costs.Streams == nil || !s.costs.Streams(t.from) {
		return s.now
	}
	d := &s.workers[t.from].device
	if t.in.Kind == schedule.SF {
		return d.forwardS
	}
	return d.backwardS
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

// keepVersion charges a worker for the copy of a stage's weights that an instruction adds
// or lets go.
func (s *state) keepVersion(w int, in schedule.Instruction, c *StageCost) {
	if s.copies == nil {
		return
	}
	if change := s.copies[w][in]; change != 0 {
		s.workers[w].memory.hold(int64(change) * c.ParameterBytes)
		s.sample(w)
	}
}
