package check_test

import (
	"slices"
	"testing"

	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/check"
	"pgregory.net/rapid"
)

// literal runs a lowered synchronous Program the slow way, from the meaning of each
// instruction alone: what every worker has, message by message, with every rule
// looked up by walking whole lists. It is the dumb twin of Check.
type literal struct {
	p     *schedule.Program
	lists []schedule.List
	at    []int
	made  []map[schedule.Instruction]bool // by worker: what it has executed
	box   []map[schedule.Instruction]bool // by worker: messages that arrived, by the sender's instruction
}

// valid says whether the Program runs to its end, with every rule kept on the way.
func (l *literal) valid() bool {
	for moved := true; moved; {
		moved = false
		for w := range l.lists {
			for l.at[w] < len(l.lists[w]) {
				in := l.lists[w][l.at[w]]
				ok, wrong := l.execute(w, in)
				if wrong {
					return false
				}
				if !ok {
					break
				}
				l.at[w]++
				l.made[w][in] = true
				moved = true
			}
		}
	}
	for w := range l.lists {
		if l.at[w] < len(l.lists[w]) || len(l.box[w]) > 0 {
			return false
		}
	}
	return l.complete()
}

// execute says whether an instruction can be done now (ok), or never may at this place (wrong).
func (l *literal) execute(w int, in schedule.Instruction) (ok, wrong bool) {
	have := l.made[w]
	if have[in] {
		return false, true
	}
	per := int32(l.p.MicroBatches / l.p.Period)
	switch in.Kind {
	case schedule.F:
		if before := (schedule.Instruction{Stage: in.Stage, Replica: in.Replica, Kind: schedule.U,
			Micro: in.Micro/per - 1}); before.Micro >= 0 && !have[before] {
			return false, true
		}
		return true, in.Stage > 0 && !have[in.As(schedule.RF)]
	case schedule.B:
		return true, !have[in.As(schedule.F)] || int(in.Stage) < l.p.Stages-1 && !have[in.As(schedule.RB)]
	case schedule.SF, schedule.SB:
		if made := map[schedule.Kind]schedule.Kind{schedule.SF: schedule.F,
			schedule.SB: schedule.B}[in.Kind]; !have[in.As(made)] {
			return false, true
		}
		for _, to := range l.p.Receivers(in) {
			l.box[to][in] = true
		}
		return true, false
	case schedule.RF, schedule.RB:
		from := in
		from.Kind, from.Stage = schedule.SF, in.Stage-1
		if in.Kind == schedule.RB {
			from.Kind, from.Stage = schedule.SB, in.Stage+1
		}
		var taken []schedule.Instruction
		for message := range l.box[w] {
			same := message
			same.Replica = from.Replica
			if same == from {
				taken = append(taken, message)
			}
		}
		if len(taken) < len(l.p.Senders(in)) {
			return false, false
		}
		for _, message := range taken {
			delete(l.box[w], message)
		}
		return true, false
	case schedule.AR, schedule.TG, schedule.GN, schedule.U:
		for m := range l.p.MicroBatches {
			b := in.As(schedule.B)
			b.Micro = in.Micro*per + int32(m)
			if m < int(per) && l.mine(b) && !have[b] {
				return false, true
			}
		}
		var need []schedule.Kind
		if len(l.p.Placement[0][in.Stage]) > 1 && in.Kind != schedule.AR {
			need = append(need, schedule.AR)
		}
		if l.tied(in.Stage) && (in.Kind == schedule.GN || in.Kind == schedule.U) {
			need = append(need, schedule.TG)
		}
		if l.p.Clip && in.Kind == schedule.U {
			need = append(need, schedule.GN)
		}
		for _, k := range need {
			if !have[in.As(k)] {
				return false, true
			}
			if !l.all(in.As(k)) {
				return false, false
			}
		}
		return true, have[in.As(schedule.U)]
	}
	return true, false
}

func (l *literal) mine(in schedule.Instruction) bool {
	r := len(l.p.Placement[0][in.Stage])
	return l.p.Replication == schedule.Split || int(in.Micro)%l.p.MicroBatches%r == int(in.Replica)
}

func (l *literal) tied(stage int32) bool {
	return slices.ContainsFunc(l.p.Tied, func(g []int) bool { return slices.Contains(g, int(stage)) })
}

// all says whether every member of a collective has come.
func (l *literal) all(in schedule.Instruction) bool {
	for s, on := range l.p.Placement[0] {
		if in.Kind == schedule.AR && s != int(in.Stage) || in.Kind == schedule.TG && !l.tied(int32(s)) {
			continue
		}
		for r, w := range on {
			m := in
			m.Stage, m.Replica = int32(s), int16(r)
			if !l.made[w][m] {
				return false
			}
		}
	}
	return true
}

// complete says whether every stage has done every micro-batch and every update, and
// every collective that one member came to was complete.
func (l *literal) complete() bool {
	for s, on := range l.p.Placement[0] {
		for r, w := range on {
			for m := range l.p.MicroBatches * l.p.Repeat {
				f := schedule.Instruction{Stage: int32(s), Replica: int16(r), Kind: schedule.F, Micro: int32(m)}
				if l.mine(f) && (!l.made[w][f] || !l.made[w][f.As(schedule.B)]) {
					return false
				}
			}
			for k := range l.p.Period * l.p.Repeat {
				if !l.made[w][schedule.Instruction{Stage: int32(s), Replica: int16(r), Kind: schedule.U,
					Micro: int32(k)}] {
					return false
				}
			}
			for in := range l.made[w] {
				if (in.Kind == schedule.AR || in.Kind == schedule.TG || in.Kind == schedule.GN) && !l.all(in) {
					return false
				}
			}
		}
	}
	return true
}

func literalOf(p *schedule.Program) *literal {
	l := &literal{p: p}
	for w := range p.Workers {
		var list schedule.List
		p.Walk(w, func(in schedule.Instruction) bool {
			list = append(list, in)
			return true
		})
		l.lists = append(l.lists, list)
		l.at = append(l.at, 0)
		l.made = append(l.made, map[schedule.Instruction]bool{})
		l.box = append(l.box, map[schedule.Instruction]bool{})
	}
	return l
}

// corrupt drops, doubles, moves or renumbers one instruction, or swaps two.
func corrupt(t *rapid.T, p *schedule.Program) *schedule.Program {
	bad := *p
	bad.Body = make(schedule.Part, len(p.Body))
	for w := range p.Body {
		bad.Body[w] = slices.Clone(p.Body[w])
	}
	w := rapid.IntRange(0, p.Workers-1).Draw(t, "worker")
	list := bad.Body[w]
	i := rapid.IntRange(0, len(list)-1).Draw(t, "i")
	j := rapid.IntRange(0, len(list)-1).Draw(t, "j")
	switch rapid.IntRange(0, 4).Draw(t, "how") {
	case 0:
		list = slices.Delete(list, i, i+1)
	case 1:
		list = slices.Insert(list, j, list[i])
	case 2:
		list[i], list[j] = list[j], list[i]
	case 3:
		in := list[i]
		list = slices.Insert(slices.Delete(list, i, i+1), j, in)
	case 4:
		list[i].Micro = int32(rapid.IntRange(0, p.MicroBatches-1).Draw(t, "micro"))
		if !list[i].Kind.OfMinibatch() && p.Replication == schedule.RoundRobin {
			list[i].Micro -= list[i].Micro%int32(len(p.Placement[0][list[i].Stage])) - int32(list[i].Replica)
			list[i].Micro = min(list[i].Micro, int32(p.MicroBatches-1))
		}
	}
	bad.Body[w] = list
	return &bad
}

// TestCheckAgreesWithALiteralReplay damages valid Programs at random. Check must refuse
// exactly those that the literal replay refuses: nothing wrong passes, and nothing that
// is merely another valid order is refused.
func TestCheckAgreesWithALiteralReplay(t *testing.T) {
	still, all := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		p := randomProgram(t)
		if !literalOf(p).valid() {
			t.Fatalf("the literal replay refuses a generated program:\n%s", p.Text())
		}
		bad := corrupt(t, p)
		if check.Validate(bad) != nil {
			return
		}
		_, err := check.Check(bad)
		want := literalOf(bad).valid()
		all++
		if want {
			still++
		}
		if (err == nil) != want {
			t.Fatalf("Check says %v, the literal replay that it is valid: %v\n%s", err, want, bad.Text())
		}
	})
	t.Logf("%d of %d damaged programs were still valid", still, all)
}
