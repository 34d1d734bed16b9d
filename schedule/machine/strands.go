package machine

import (
	"slices"

	"github.com/millrace-ml/millrace/schedule"
)

// strands holds what a server does for its trainers, in a fixed order for each trainer. The head is the next
// instruction of one of the strands. Until that instruction has ended, the strand's cursor stays at it, behind the
// cursor of the Local.
type strands struct {
	p    *schedule.Program
	all  []strand       // by trainer; nil: the worker follows its list
	turn int            // number of the strand whose next instruction is the head
	came []schedule.Key // messages that have arrived for the strands and are not taken, in order
}

// strand is what a server does for one trainer.
type strand struct {
	at   schedule.Cursor // position in the whole list: the strand's next instruction, or the end
	done int             // number of updates
}

// strandsOf returns the strands of a loose worker.
func strandsOf(p *schedule.Program, worker int) strands {
	s := strands{p: p}
	if p.Loose(worker) {
		s.all = make([]strand, p.Trainers())
		for t := range s.all {
			s.all[t].at = schedule.NewCursor(p, worker)
			s.all[t].settle(p, t)
		}
	}
	return s
}

// settle moves past instructions of other strands.
func (s *strand) settle(p *schedule.Program, trainer int) {
	for {
		in, more := s.at.Head()
		if !more || p.TrainerOf(in) == trainer {
			return
		}
		s.at.Advance()
	}
}

func (s *strands) arrive(key schedule.Key) {
	if s.all != nil {
		s.came = append(s.came, key)
	}
}

func (s *strands) took(key schedule.Key) {
	if at := slices.Index(s.came, key); at >= 0 {
		s.came = slices.Delete(s.came, at, at+1)
	}
}

// ended moves a strand past an instruction that has ended.
func (s *strands) ended(in schedule.Instruction, behind schedule.Cursor) {
	if s.all == nil {
		return
	}
	one := &s.all[s.turn]
	if one.at = behind; in.Kind == schedule.U {
		one.done++
	}
	one.settle(s.p, s.turn)
}

// choose returns the strand with which a worker goes on. It prefers the rest of an update that the worker has begun.
// Next come weights that a trainer waits for and may have, and then the gradients that arrived first. If nothing is
// ready, choose returns the first strand with instructions left. `any` is false if no strand has instructions left.
func (s *strands) choose(passing *passing, may func(trainer int) bool) (trainer int, any bool) {
	first := -1
	var receives []int
	for t := range s.all {
		one := &s.all[t]
		in, more := one.at.Head()
		for more && passing.passes(in) {
			one.at.Advance()
			one.settle(s.p, t)
			in, more = one.at.Head()
		}
		if !more {
			continue
		}
		switch in.Kind {
		case schedule.U, schedule.GN:
			return t, true
		case schedule.RG:
			receives = append(receives, t)
		}
		if first < 0 {
			first = t
		}
	}
	for t := range s.all {
		if in, more := s.all[t].at.Head(); more && in.Kind == schedule.SW && may(t) {
			return t, true
		}
	}
	for _, key := range s.came {
		if t := s.p.TrainerOf(key.Instruction()); slices.Contains(receives, t) && may(t) {
			return t, true
		}
	}
	return first, first >= 0
}

// ahead reports whether a trainer's next minibatch would be farther ahead of another trainer than the Program's
// staleness allows. `slower` is that other trainer's worker. A trainer without more work delays no other trainer.
func (s *strands) ahead(in schedule.Instruction, passing *passing) (slower int, is bool) {
	if s.all == nil || s.p.Staleness == nil || in.Kind != schedule.SW {
		return 0, false
	}
	mine := s.all[s.p.TrainerOf(in)].done
	for t := range s.all {
		in, more := s.all[t].at.Head()
		if more && !passing.passes(in) && s.all[t].done < mine-*s.p.Staleness {
			return s.p.WorkerOf(0, 0, t), true
		}
	}
	return 0, false
}

// changed notes an event for which the head may have waited. A loose worker then looks for an instruction that is
// ready.
func (l *Local) changed() {
	l.known = false
	if l.strands.all != nil && !l.running {
		l.look()
	}
}

// may makes a strand's next instruction the head, and reports whether it could start.
func (l *Local) may(trainer int) bool {
	l.turn(trainer)
	return l.needs().Lack == Nothing && !l.passing.holds(l.head.in)
}

// turn makes the next instruction of a strand the head.
func (l *Local) turn(trainer int) {
	l.strands.turn, l.head.at = trainer, l.strands.all[trainer].at
	l.note()
}
