package machine

import (
	"slices"

	"github.com/millrace-ml/millrace/schedule"
)

// strand is what a server does for one trainer, in its order.
type strand struct {
	at   schedule.Cursor // in the whole list: at an instruction of the strand, or behind the last
	done int             // updates
}

// strands is those of a worker that takes its instructions by readiness; nil where it keeps to its list.
func strands(p *schedule.Program, worker int) []strand {
	if !p.Loose(worker) {
		return nil
	}
	all := make([]strand, p.Trainers())
	for t := range all {
		all[t].at = schedule.NewCursor(p, worker)
		all[t].settle(p, t)
	}
	return all
}

// settle moves past what is of other strands.
func (s *strand) settle(p *schedule.Program, trainer int) {
	for {
		in, more := s.at.Head()
		if !more || p.TrainerOf(in) == trainer {
			return
		}
		s.at.Advance()
	}
}

// changed notes that something has happened that the head may have waited for. A loose worker then looks for what
// is ready.
func (l *Local) changed() {
	l.known = false
	if l.loose != nil && !l.running {
		l.choose()
	}
}

// took notes that a message is no longer there.
func (l *Local) took(key schedule.Key) {
	if at := slices.Index(l.came, key); at >= 0 {
		l.came = slices.Delete(l.came, at, at+1)
	}
}

// ended puts the strand that an instruction was of behind it.
func (l *Local) ended(in schedule.Instruction) {
	if l.loose == nil {
		return
	}
	s := &l.loose[l.turn]
	if s.at = l.at; in.Kind == schedule.U {
		s.done++
	}
	s.settle(l.p, l.turn)
}

// choose makes the head what a loose worker does next: the rest of an update that it has begun, or else weights that
// a trainer waits for and may have, or else the gradients that came first. Where nothing is ready it is the first that
// is left.
func (l *Local) choose() {
	l.ready, l.known = false, false
	first := -1
	var receives []int
	for t := range l.loose {
		s := &l.loose[t]
		in, more := s.at.Head()
		for more && l.passes(in) {
			s.at.Advance()
			s.settle(l.p, t)
			in, more = s.at.Head()
		}
		if !more {
			continue
		}
		switch in.Kind {
		case schedule.U, schedule.GN:
			l.head(t)
			return
		case schedule.RG:
			receives = append(receives, t)
		}
		if first < 0 {
			first = t
		}
	}
	for t := range l.loose {
		if in, more := l.loose[t].at.Head(); more && in.Kind == schedule.SW && l.may(t) {
			return
		}
	}
	for _, key := range l.came {
		if t := l.p.TrainerOf(key.Instruction()); slices.Contains(receives, t) && l.may(t) {
			return
		}
	}
	if first < 0 {
		l.in, l.more, l.takes = schedule.Instruction{}, false, l.takes[:0]
		return
	}
	l.head(first)
}

// may makes a strand's next instruction the head, and says whether it could start.
func (l *Local) may(trainer int) bool {
	l.head(trainer)
	return l.needs().Lack == Nothing && !l.holds(l.in)
}

// head makes the next instruction of a strand the head.
func (l *Local) head(trainer int) {
	l.turn, l.at, l.ready, l.known = trainer, l.loose[trainer].at, false, false
	l.in, l.more = l.at.Head()
	if l.takes = l.takes[:0]; l.in.Kind.IsReceive() {
		l.takes = l.taking(l.in, l.takes)
	}
}

// lacksPace notes that weights would let a trainer begin a minibatch that is farther ahead of another trainer's than
// the Program's staleness. One that has no more to do holds nobody back.
func (l *Local) lacksPace(n *Need) {
	if l.loose == nil || l.p.Staleness == nil || n.At.Kind != schedule.SW {
		return
	}
	mine := l.loose[l.p.TrainerOf(n.At)].done
	for t := range l.loose {
		in, more := l.loose[t].at.Head()
		if more && !l.passes(in) && l.loose[t].done < mine-*l.p.Staleness {
			n.Lack, n.Peer = Ahead, l.p.WorkerOf(0, 0, t)
			return
		}
	}
}
