package machine

import (
	"fmt"

	"github.com/millrace-ml/millrace/schedule"
)

// Limit has the worker pass every instruction of minibatch n and later. None of those may have begun
// anywhere.
func (l *Local) Limit(n int) {
	if l.Begun() >= n {
		panic(fmt.Sprintf("machine: worker %d is to pass minibatch %d and has begun minibatch %d", l.worker, n,
			l.Begun()))
	}
	l.held, l.limit, l.passing = never, min(l.limit, n), true
	if !l.running {
		l.look()
	}
}

// Hold has instructions of minibatch n and later wait until Limit says where to stop, or Hold is called with
// another n.
func (l *Local) Hold(n int) {
	l.held, l.ready = n, false
	l.changed()
}

// holds says whether an instruction waits for Limit.
func (l *Local) holds(in schedule.Instruction) bool {
	return l.held != never && in.Kind != schedule.DR && l.p.MinibatchOf(in) >= l.held
}

// Rollback tells the worker, while it executes its first PV of minibatch k, that the update of k is refused.
func (l *Local) Rollback(k int) {
	if !l.running || l.in.Kind != schedule.PV || int(l.in.Micro) != k {
		panic(fmt.Sprintf("machine: worker %d is to roll minibatch %d back at %v; it learns of it at its own PV%d",
			l.worker, k, l.in, k))
	}
	if l.undone <= k+1 {
		return // this is another stage's PV of the same minibatch
	}
	l.undone, l.passing, l.dropped = k+1, true, map[schedule.Key]struct{}{}
	seen := map[int]bool{l.worker: true}
	for _, held := range l.p.StagesOf(l.worker) {
		for _, stage := range []int{held[1] - 1, held[1] + 1} {
			if stage < 0 || stage >= len(l.p.Placement[held[0]]) {
				continue
			}
			for _, from := range l.p.Placement[held[0]][stage] {
				if !seen[from] {
					seen[from] = true
					l.drop(from, k)
				}
			}
		}
	}
}

// drop notes the messages of minibatches behind k that a worker sends in front of its first PV of k.
func (l *Local) drop(from, k int) {
	l.p.Walk(from, func(in schedule.Instruction) bool {
		if in.Kind.IsSend() && l.p.MinibatchOf(in) > k {
			l.p.Recipients(in, func(to, _, _, _ int) bool {
				if to == l.worker {
					l.dropped[in.Key()] = struct{}{}
				}
				return true
			})
		}
		return in.Kind != schedule.PV || int(in.Micro) != k
	})
}

// Dropping says whether the head is a receive whose messages are thrown away.
func (l *Local) Dropping() bool {
	return l.more && l.in.Kind.IsReceive() && l.p.MinibatchOf(l.in) >= l.undone
}

// Messages calls yield for every message that the head, a receive, takes: its sender's instruction and the
// sender.
func (l *Local) Messages(yield func(sent schedule.Instruction, from int) bool) {
	for _, m := range l.takes {
		if !yield(m.key.Instruction(), m.from) {
			return
		}
	}
}

// taking appends the messages that a receive takes.
func (l *Local) taking(in schedule.Instruction, list []message) []message {
	l.messages(in, func(sent schedule.Instruction, from int) bool {
		list = append(list, message{sent.Key(), from})
		return true
	})
	return list
}

func (l *Local) messages(in schedule.Instruction, yield func(sent schedule.Instruction, from int) bool) {
	if l.undone == never || l.p.MinibatchOf(in) < l.undone {
		l.p.Expected(in, yield)
		return
	}
	l.p.Expected(in, func(sent schedule.Instruction, from int) bool {
		if _, drop := l.dropped[sent.Key()]; drop {
			return yield(sent, from)
		}
		return true
	})
}

// look passes what lies behind a limit and notes the head.
func (l *Local) look() {
	l.ready, l.known = false, false
	if l.loose != nil {
		l.choose()
		return
	}
	l.in, l.more = l.at.Head()
	for l.passing && l.more && l.passes(l.in) {
		l.at.Advance()
		l.in, l.more = l.at.Head()
	}
	if l.takes = l.takes[:0]; l.in.Kind.IsReceive() {
		l.takes = l.taking(l.in, l.takes)
	}
}

// passes says whether the worker moves on without doing an instruction.
func (l *Local) passes(in schedule.Instruction) bool {
	if !l.passing || in.Kind == schedule.DR {
		return false
	}
	n := l.p.MinibatchOf(in)
	if n < l.limit && n >= l.undone && in.Kind.IsReceive() {
		taken := false
		l.messages(in, func(schedule.Instruction, int) bool {
			taken = true
			return false
		})
		return !taken
	}
	return n >= min(l.limit, l.undone)
}
