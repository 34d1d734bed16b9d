package lower

import (
	"slices"

	"github.com/millrace-ml/millrace/schedule"
)

// Post-validation (Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024, §4). An update with clipping needs
// the norm of all stages' gradients, which is known only when the last of them has its own: waiting for it
// pulls all stages level at the end of every step, and a zero-bubble order loses what it has won. So each
// stage updates as if the norm were within its bound, goes on with the next step's forwards, and validates
// when the norm is there:
//
//	sGNk   gives the stage's part of the norm, right behind its last gradient; waits for nobody
//	sUk    the update, unclipped, into a new version; the old weights and optimizer state and the
//	       gradients are kept
//	sPVk   in front of the stage's first gradient of step k+1, or sooner (seeInTime): waits for the norm.
//	       Within the bound, what was kept is let go. Otherwise, and every stage comes to the same verdict, the
//	       update is taken back and made again from the kept gradients, clipped, and step k+1
//	       begins anew on every stage from its first instruction: forwards done and messages sent
//	       with the weights taken back are thrown away.
//
// So a step's weights are those of an update that waited, bit for bit; where norms are seldom over their
// bound, nothing is waited for as long as the norm takes no longer than a stage's first forwards. The paper
// passes partial sums from stage to stage and the whole back; here the norm is one collective.
//
// Simulations are of runs in which no update is taken back. One that is throws away what each stage had done
// of step k+1 before its sPVk, which is forwards in front of its first gradient and no more, and step k+1
// then begins as behind an update that waited: with the norm known, all stages level and the pipeline empty.
// run counts what was done for nothing as part of that step.
//
// The Program says the first step by itself (nothing is validated in it), then the others, and at the end the
// validation of the last update. Check holds it to that: every update validated once, before the stage's next
// gradient and next update.

// validateLater turns a flushed Program whose body is a step into one whose updates are validated in
// the step behind.
func validateLater(p *schedule.Program) {
	first := p.Body
	later := make(schedule.Part, len(first))
	last := make(schedule.Part, len(first))
	for w, list := range first {
		later[w] = slices.Clone(list)
		for i := range later[w] {
			in := &later[w][i]
			if in.Kind.OfMinibatch() {
				in.Micro++
			} else {
				in.Micro += int32(p.MicroBatches)
			}
		}
		for _, h := range p.StagesOf(w) {
			check := schedule.Instruction{Pipeline: int16(h[0]), Stage: int32(h[1]), Replica: int16(h[2]),
				Kind: schedule.PV}
			later[w] = slices.Insert(later[w], beforeGradients(later[w], check), check)
			last[w] = append(last[w], check)
		}
	}
	seeInTime(p, later)
	p.Prologue, p.Body, p.Epilogue = first, later, last
	p.Repeat = max(0, p.Repeat-1)
	if p.Repeat == 0 {
		p.Body = nil
	}
	p.PostValidate = true
}

// beforeGradients is where a list has the stage's first gradient, or what it receives for it; of a
// replica without one, its first collective or its update.
func beforeGradients(list schedule.List, of schedule.Instruction) int {
	at := slices.IndexFunc(list, func(in schedule.Instruction) bool {
		if in.Stage != of.Stage || in.Pipeline != of.Pipeline || in.Replica != of.Replica {
			return false
		}
		switch in.Kind {
		case schedule.RB, schedule.B, schedule.I, schedule.AR, schedule.TG, schedule.GN, schedule.U:
			return true
		}
		return false
	})
	return max(0, at)
}

// seeInTime moves a worker's first validation in front of the first receive whose message is sent behind the
// sender's: where the update is taken back there, that message never comes. Moving one can make another's
// messages late, so it goes on until none is; at worst all stand at the beginning of the step.
func seeInTime(p *schedule.Program, step schedule.Part) {
	isPV := func(in schedule.Instruction) bool { return in.Kind == schedule.PV }
	for moved := true; moved; {
		moved = false
		late := map[schedule.Key]bool{}
		for _, list := range step {
			for _, in := range list[max(0, slices.IndexFunc(list, isPV)):] {
				late[in.Key()] = in.Kind.IsSend()
			}
		}
		for _, list := range step {
			first := slices.IndexFunc(list, isPV)
			at := slices.IndexFunc(list[:max(0, first)], func(in schedule.Instruction) (waits bool) {
				if in.Kind.IsReceive() {
					p.Expected(in, func(sent schedule.Instruction, _ int) bool {
						waits = waits || late[sent.Key()]
						return true
					})
				}
				return waits
			})
			if at >= 0 {
				check := list[first]
				copy(list[at+1:first+1], list[at:first])
				list[at], moved = check, true
			}
		}
	}
}
