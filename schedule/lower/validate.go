package lower

import (
	"slices"

	"github.com/millrace-ml/millrace/schedule"
)

// Post-validation (Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024, §4). An update with clipping needs the norm
// of all stages' gradients, which is known only when the last stage has its gradients. Waiting for it makes all stages
// end a step together, and a zero-bubble order loses its gain. So each stage updates as if the norm were within its
// bound, goes on with the next step's forwards, and validates when the norm is known. Stage s does this for step k:
//
//   sGNk   gives the stage's part of the norm, right after its last gradient, and does not wait
//   sUk    makes the update, unclipped, as a new version; the old weights and optimizer state and
//          the gradients are kept
//   sPVk   waits for the norm, before the stage's first gradient of step k+1 or sooner (seeInTime).
//          If the norm is within the bound, it frees what was kept. Otherwise every stage reaches
//          the same result: it takes the update back and makes it again from the kept gradients,
//          clipped. Step k+1 then begins again on every stage from its first instruction; forwards
//          done and messages sent with the old weights are thrown away.
//
// So a step's weights are equal, bit for bit, to those of an update that waited. If norms seldom exceed their bound,
// and the norm takes no longer than a stage's first forwards, nothing waits. The paper passes partial sums from stage
// to stage and the total back; here the norm is one collective.
//
// Simulations assume that no update is taken back. If one is taken back, each stage loses its work of step k+1 before
// its sPVk. These are only the forwards before its first gradient. Step k+1 then begins as after an update that waited:
// the norm is known, and the pipeline is empty. run counts the lost work as part of that step.
//
// In the Program the first step is separate, since nothing is validated in it. The other steps follow. At the end comes
// the validation of the last update. Check enforces that every update is validated once, before the stage's next
// gradient and next update.

// validateLater changes a flushed Program whose body is a step, so that each update is validated in the next step.
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

// beforeGradients returns the position before which a validation can be inserted: that of the stage's first gradient,
// or of the receive for it. If a replica has no gradient, it is the position of its first collective or its update.
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

// seeInTime moves validations so that no worker waits for a message that is never sent. If a sender takes its update
// back, it skips the sends after its first validation. So a worker's first validation must come before the receives of
// such messages. One move can make other messages late, so seeInTime repeats until no message is late. In the worst
// case all validations end up at the beginning of the step.
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
