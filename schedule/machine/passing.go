package machine

import (
	"fmt"

	"github.com/millrace-ml/millrace/schedule"
)

// Limit makes the worker skip every instruction of minibatch n and later. It must not have begun any of them.
func (l *Local) Limit(n int) {
	if l.Begun() >= n {
		panic(fmt.Sprintf("machine: worker %d is to pass minibatch %d and has begun minibatch %d", l.worker, n,
			l.Begun()))
	}
	l.passing.held, l.passing.limit, l.passing.some = never, min(l.passing.limit, n), true
	if !l.running {
		l.look()
	}
}

// Hold makes instructions of minibatch n and later wait. A call of Limit, or of Hold with another n, ends this.
func (l *Local) Hold(n int) {
	l.passing.held, l.ready = n, false
	l.changed()
}

// Rollback tells the worker, while it executes its first PV of minibatch k, that the update of k is refused.
func (l *Local) Rollback(k int) {
	if !l.running || l.head.in.Kind != schedule.PV || int(l.head.in.Micro) != k {
		panic(fmt.Sprintf("machine: worker %d is to roll minibatch %d back at %v; it learns of it at its own PV%d",
			l.worker, k, l.head.in, k))
	}
	l.passing.rollback(k, l.worker)
}

// Dropping reports whether the head is a receive whose messages are thrown away.
func (l *Local) Dropping() bool {
	return l.head.more && l.head.in.Kind.IsReceive() && l.passing.drops(l.head.in)
}

// Messages calls yield for every message that the head, a receive, takes. yield gets the send instruction and the
// sending worker.
func (l *Local) Messages(yield func(sent schedule.Instruction, from int) bool) {
	for _, m := range l.head.takes {
		if !yield(m.key.Instruction(), m.from) {
			return
		}
	}
}

// look sets the head: the next instruction that is not skipped or, in a list with strands, the next instruction of the
// chosen strand.
func (l *Local) look() {
	if l.strands.all == nil {
		for in, more := l.head.at.Head(); more && l.passing.passes(in); in, more = l.head.at.Head() {
			l.head.at.Advance()
		}
		l.note()
		return
	}
	trainer, any := l.strands.choose(&l.passing, l.may)
	if any {
		l.turn(trainer)
		return
	}
	l.ready, l.known = false, false
	l.head.in, l.head.more, l.head.takes = schedule.Instruction{}, false, l.head.takes[:0]
}

// note makes the cursor's instruction the head.
func (l *Local) note() {
	l.ready, l.known = false, false
	h := &l.head
	h.in, h.more = h.at.Head()
	if h.takes = h.takes[:0]; h.in.Kind.IsReceive() {
		h.takes = l.passing.taking(h.in, h.takes)
	}
}

// passing says from which minibatch on a worker skips its instructions, and from which minibatch on they must wait.
// Drains are neither skipped nor made to wait. Within a Program, `limit` and `undone` only decrease.
type passing struct {
	p           *schedule.Program
	held, limit int  // minibatches from `held` on wait; minibatches from `limit` on are skipped
	undone      int  // minibatches from `undone` on are skipped, but their sent messages are received and dropped
	some        bool // whether anything is skipped
	dropped     map[schedule.Key]struct{}
}

func passesNothing(p *schedule.Program) passing {
	return passing{p: p, held: never, limit: never, undone: never}
}

// holds reports whether an instruction must wait until Limit is called.
func (s *passing) holds(in schedule.Instruction) bool {
	return s.held != never && in.Kind != schedule.DR && s.p.MinibatchOf(in) >= s.held
}

// drops reports whether a receive's messages are thrown away.
func (s *passing) drops(receive schedule.Instruction) bool {
	return s.p.MinibatchOf(receive) >= s.undone
}

// rollback makes a worker skip everything after minibatch k. The worker still receives the messages of later
// minibatches that were sent, and drops them.
func (s *passing) rollback(k, worker int) {
	if s.undone <= k+1 {
		return // this is another stage's PV of the same minibatch
	}
	s.undone, s.some, s.dropped = k+1, true, map[schedule.Key]struct{}{}
	seen := map[int]bool{worker: true}
	for _, held := range s.p.StagesOf(worker) {
		for _, stage := range []int{held[1] - 1, held[1] + 1} {
			if stage < 0 || stage >= len(s.p.Placement[held[0]]) {
				continue
			}
			for _, from := range s.p.Placement[held[0]][stage] {
				if !seen[from] {
					seen[from] = true
					s.drop(from, worker, k)
				}
			}
		}
	}
}

// drop notes messages of minibatches after k: those that worker `from` sends to `worker` before its first PV of k.
func (s *passing) drop(from, worker, k int) {
	s.p.Walk(from, func(in schedule.Instruction) bool {
		if in.Kind.IsSend() && s.p.MinibatchOf(in) > k {
			s.p.Recipients(in, func(to, _, _, _ int) bool {
				if to == worker {
					s.dropped[in.Key()] = struct{}{}
				}
				return true
			})
		}
		return in.Kind != schedule.PV || int(in.Micro) != k
	})
}

// taking appends the messages that a receive takes.
func (s *passing) taking(in schedule.Instruction, list []message) []message {
	s.messages(in, func(sent schedule.Instruction, from int) bool {
		list = append(list, message{sent.Key(), from})
		return true
	})
	return list
}

func (s *passing) messages(in schedule.Instruction, yield func(sent schedule.Instruction, from int) bool) {
	if s.undone == never || !s.drops(in) {
		s.p.Expected(in, yield)
		return
	}
	s.p.Expected(in, func(sent schedule.Instruction, from int) bool {
		if _, drop := s.dropped[sent.Key()]; drop {
			return yield(sent, from)
		}
		return true
	})
}

// passes reports whether the worker skips an instruction.
func (s *passing) passes(in schedule.Instruction) bool {
	if !s.some || in.Kind == schedule.DR {
		return false
	}
	n := s.p.MinibatchOf(in)
	if n < s.limit && n >= s.undone && in.Kind.IsReceive() {
		taken := false
		s.messages(in, func(schedule.Instruction, int) bool {
			taken = true
			return false
		})
		return !taken
	}
	return n >= min(s.limit, s.undone)
}
