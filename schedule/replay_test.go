package schedule

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// literal runs a lowered synchronous Program the slow way, from the meaning of each
// instruction alone: what every worker has, message by message, with every rule
// looked up by walking whole lists. It is the dumb twin of Check.
type literal struct {
	p     *Program
	lists []List
	at    []int
	made  []map[Instruction]bool // by worker: what it has executed
	box   []map[Instruction]bool // by worker: messages that arrived, by the sender's instruction
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
func (l *literal) execute(w int, in Instruction) (ok, wrong bool) {
	have := l.made[w]
	if have[in] {
		return false, true
	}
	per := int32(l.p.MicroBatches / l.p.Period)
	switch in.Kind {
	case F:
		if before := (Instruction{Stage: in.Stage, Replica: in.Replica, Kind: U, Micro: in.Micro/per - 1}); before.Micro >= 0 && !have[before] {
			return false, true
		}
		return true, in.Stage > 0 && !have[in.As(RF)]
	case B:
		return true, !have[in.As(F)] || int(in.Stage) < l.p.Stages-1 && !have[in.As(RB)]
	case SF, SB:
		if made := map[Kind]Kind{SF: F, SB: B}[in.Kind]; !have[in.As(made)] {
			return false, true
		}
		for _, to := range l.p.Receivers(in) {
			l.box[to][in] = true
		}
		return true, false
	case RF, RB:
		from := in
		from.Kind, from.Stage = SF, in.Stage-1
		if in.Kind == RB {
			from.Kind, from.Stage = SB, in.Stage+1
		}
		var taken []Instruction
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
	case AR, TG, GN, U:
		for m := range l.p.MicroBatches {
			b := in.As(B)
			b.Micro = in.Micro*per + int32(m)
			if m < int(per) && l.mine(b) && !have[b] {
				return false, true
			}
		}
		var need []Kind
		if len(l.p.Placement[0][in.Stage]) > 1 && in.Kind != AR {
			need = append(need, AR)
		}
		if l.tied(in.Stage) && (in.Kind == GN || in.Kind == U) {
			need = append(need, TG)
		}
		if l.p.Clip && in.Kind == U {
			need = append(need, GN)
		}
		for _, k := range need {
			if !have[in.As(k)] {
				return false, true
			}
			if !l.all(in.As(k)) {
				return false, false
			}
		}
		return true, have[in.As(U)]
	}
	return true, false
}

func (l *literal) mine(in Instruction) bool {
	r := len(l.p.Placement[0][in.Stage])
	return l.p.Replication == Split || int(in.Micro)%l.p.MicroBatches%r == int(in.Replica)
}

func (l *literal) tied(stage int32) bool {
	return slices.ContainsFunc(l.p.Tied, func(g []int) bool { return slices.Contains(g, int(stage)) })
}

// all says whether every member of a collective has come.
func (l *literal) all(in Instruction) bool {
	for s, on := range l.p.Placement[0] {
		if in.Kind == AR && s != int(in.Stage) || in.Kind == TG && !l.tied(int32(s)) {
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
				f := Instruction{Stage: int32(s), Replica: int16(r), Kind: F, Micro: int32(m)}
				if l.mine(f) && (!l.made[w][f] || !l.made[w][f.As(B)]) {
					return false
				}
			}
			for k := range l.p.Period * l.p.Repeat {
				if !l.made[w][Instruction{Stage: int32(s), Replica: int16(r), Kind: U, Micro: int32(k)}] {
					return false
				}
			}
			for in := range l.made[w] {
				if (in.Kind == AR || in.Kind == TG || in.Kind == GN) && !l.all(in) {
					return false
				}
			}
		}
	}
	return true
}

func literalOf(p *Program) *literal {
	l := &literal{p: p}
	for w := range p.Workers {
		var list List
		p.Walk(w, func(in Instruction) bool {
			list = append(list, in)
			return true
		})
		l.lists = append(l.lists, list)
		l.at = append(l.at, 0)
		l.made = append(l.made, map[Instruction]bool{})
		l.box = append(l.box, map[Instruction]bool{})
	}
	return l
}

// corrupt drops, doubles, moves or renumbers one instruction, or swaps two.
func corrupt(t *rapid.T, p *Program) *Program {
	bad := *p
	bad.Body = make(Part, len(p.Body))
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
		if !list[i].Kind.OfMinibatch() && p.Replication == RoundRobin {
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
		if Validate(bad) != nil {
			return
		}
		_, err := Check(bad)
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
