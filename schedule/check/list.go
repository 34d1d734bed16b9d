package check

import (
	"errors"
	"fmt"

	"github.com/millrace-ml/millrace/schedule"
)

// list records what the instructions of one worker's list have done so far.
type list struct {
	*tally
	have       map[schedule.Instruction]bool  // the instructions so far, as seen by this worker
	updated    map[schedule.Instruction]int32 // minibatch of the last update, by stage (see ofStage)
	settled    map[schedule.Instruction]int32 // by stage (see ofStage): minibatch of the last settling instruction
	held, peak int                            // micro-batches whose activations are held now, and the most so far
}

// take notes the next instruction. It returns how many messages the instruction sends, or an error if the instruction
// cannot be at this place.
func (l *list) take(in schedule.Instruction) (sent int, err error) {
	if in.Kind != schedule.DR && l.have[in] {
		return 0, errors.New("it stands in the list twice")
	}
	l.have[in] = true
	if l.p.Settled(in) {
		l.settled[ofStage(in)] = in.Micro
	}
	if in.Kind.IsSend() || in.Kind.IsReceive() {
		n := l.messages(in)
		if n == 0 {
			return 0, errors.New("no other worker has a part in it; what is made here is here")
		}
		if in.Kind.IsSend() {
			sent = n
		}
	}
	if err := l.served(in); err != nil {
		return sent, err
	}
	switch in.Kind {
	case schedule.F, schedule.EV:
		err = l.forward(in)
	case schedule.B, schedule.I:
		err = l.backward(in)
	case schedule.W:
		err = l.weights(in)
	case schedule.SF:
		err = l.sends(in, schedule.F, schedule.EV)
	case schedule.SB:
		err = l.sends(in, schedule.B, schedule.I)
	case schedule.U:
		err = l.update(in)
	case schedule.UR:
		err = l.updateReference(in)
	case schedule.PV:
		err = l.validate(in)
	case schedule.CK:
		err = l.save(in)
	case schedule.AR, schedule.TG, schedule.GN:
		if l.updates[in.As(schedule.U)] > 0 {
			return sent, errors.New("its update has been done already")
		}
		err = l.gathered(in)
	}
	return sent, err
}

// ofStage returns the instruction with number 0, as a key for all instructions of its kind on its stage.
func ofStage(in schedule.Instruction) schedule.Instruction {
	in.Micro = 0
	return in
}

// forward checks that an F or EV has its input, and that an F has the weights it must use.
func (l *list) forward(in schedule.Instruction) error {
	if missing, ok := l.lacks(in, schedule.RF, in.Kind); ok {
		return fmt.Errorf("its input is not here: %v must come before it", missing)
	}
	if in.Kind == schedule.F {
		if before, ok := l.stale(in); ok {
			return fmt.Errorf("it would use weights from before %v, which must come before it", before)
		}
		l.held++
		l.peak = max(l.peak, l.held)
	}
	l.done[in]++
	return nil
}

// backward checks that a B or I comes after its forward and after the gradient that it starts from. Its result must not
// exist yet. If updates are validated later, the previous step's update must have been validated.
func (l *list) backward(in schedule.Instruction) error {
	if missing, ok := l.unvalidated(in); ok {
		return fmt.Errorf("an update that is taken back is made again from the gradients that this would add to: "+
			"%v must come before it", missing)
	}
	if !l.have[in.As(schedule.F)] {
		return fmt.Errorf("its forward %v must come before it", in.As(schedule.F))
	}
	if other := in.As(schedule.B + schedule.I - in.Kind); l.have[other] {
		return fmt.Errorf("%v has done the same gradient already", other)
	}
	if missing, ok := l.lacks(in, schedule.RB, in.Kind); ok {
		return fmt.Errorf("its gradient is not here: %v must come before it", missing)
	}
	if in.Kind == schedule.B {
		l.held--
	}
	l.gradient(in) // an I makes the gradients of layers without halves
	l.done[in]++
	return nil
}

// weights checks that a W comes after its I.
func (l *list) weights(in schedule.Instruction) error {
	if !l.have[in.As(schedule.I)] {
		return fmt.Errorf("its input gradient %v must come before it", in.As(schedule.I))
	}
	l.held--
	l.gradient(in)
	l.done[in]++
	return nil
}

// sends checks that a send comes after the computation that makes its tensors. This may be a computation of the kind
// `made` or of the kind `or`.
func (l *list) sends(in schedule.Instruction, made, or schedule.Kind) error {
	if !l.have[in.As(made)] && !l.have[in.As(or)] {
		return fmt.Errorf("what it sends is not made yet: %v must come before it", in.As(made))
	}
	return nil
}

// update checks that a U comes after its gradients, in the order of updates, and after the previous update's
// validation.
func (l *list) update(in schedule.Instruction) error {
	if err := l.flushed(in); err != nil {
		return err
	}
	if last, ok := l.updated[ofStage(in)]; ok && last > in.Micro && !l.p.Served() {
		return errors.New("a later update of its stage stands before it: updates come in their order")
	}
	l.updated[ofStage(in)] = in.Micro
	l.updates[in]++
	if l.p.ValidatesLater() && in.Micro > 0 {
		before := in.As(schedule.PV)
		before.Micro--
		if !l.have[before] {
			return fmt.Errorf("the update before it is not validated: %v must come before it", before)
		}
	}
	return nil
}

// updateReference checks that a UR comes after the steps that it averages, and that updates come in order.
func (l *list) updateReference(in schedule.Instruction) error {
	if err := l.averaged(in); err != nil {
		return err
	}
	if last, ok := l.updated[ofStage(in)]; ok && last > in.Micro {
		return errors.New("a later update of the reference stands before it: updates come in their order")
	}
	l.updated[ofStage(in)] = in.Micro
	l.updates[in.As(schedule.U)]++
	return nil
}

// validate checks that a PV comes after its update, in a Program that validates updates later.
func (l *list) validate(in schedule.Instruction) error {
	if !l.p.ValidatesLater() {
		return errors.New("updates of this program wait for their norm, and are not validated later")
	}
	if !l.have[in.As(schedule.U)] {
		return fmt.Errorf("its update %v must come before it", in.As(schedule.U))
	}
	l.validated[in]++
	return nil
}

// save checks that a CK of a training comes after the update that it saves, and before any later update.
func (l *list) save(in schedule.Instruction) error {
	settles := in.As(l.p.Settles())
	if last, ok := l.settled[ofStage(settles)]; l.end > 0 && (!ok || last != in.Micro) {
		return fmt.Errorf("it saves what %v has left, which must come before it, and no later one", settles)
	}
	l.saves[in]++
	return nil
}

// unvalidated reports whether a gradient comes before the validation of the previous step's update. It returns the
// missing PV.
func (l *list) unvalidated(in schedule.Instruction) (schedule.Instruction, bool) {
	if !l.p.ValidatesLater() {
		return schedule.Instruction{}, false
	}
	v := in.As(schedule.PV)
	v.Micro = in.Micro/int32(l.p.PerMinibatch()) - 1
	return v, v.Micro >= 0 && !l.have[v]
}

// unanswered returns a text that names the first gradient that a worker's list leaves out, and counts the others.
func (l *list) unanswered(w int) string {
	var first schedule.Instruction
	left := 0
	l.p.Walk(w, func(in schedule.Instruction) bool {
		if in.Kind == schedule.F && !l.have[in.As(schedule.B)] && !l.have[in.As(schedule.W)] {
			if left++; left == 1 {
				first = in
			}
		}
		return true
	})
	missing := first.As(schedule.B)
	if l.have[first.As(schedule.I)] {
		missing = first.As(schedule.W)
	}
	why := fmt.Sprintf("%v is missing: the list ends without the gradient of its forward %v", missing, first)
	if left > 1 {
		why += fmt.Sprintf(", nor those of %d more", left-1)
	}
	return why
}

// lacks returns an instruction that a computation still needs, and whether there is one. If the message comes from
// another worker, the instruction is the receive. If the neighbouring stage is on this worker, the instruction is that
// stage's computation.
func (l *list) lacks(in schedule.Instruction, receive, made schedule.Kind) (schedule.Instruction, bool) {
	r := in.As(receive)
	other := schedule.OtherEnd(r)
	if other < 0 || int(other) >= l.p.Stages {
		return schedule.Instruction{}, false
	}
	if len(l.p.Senders(r)) > 0 && !l.have[r] {
		return r, true
	}
	self := l.p.WorkerOf(int(in.Pipeline), int(in.Stage), int(in.Replica))
	for _, replica := range l.p.Peers(nil, in, other) {
		if l.p.WorkerOf(int(in.Pipeline), int(other), replica) != self {
			continue
		}
		near := in
		near.Stage, near.Replica = other, int16(replica)
		if l.have[near] || made == schedule.B && l.have[near.As(schedule.I)] || made == schedule.I &&
			l.have[near.As(schedule.B)] {
			continue
		}
		return near, true
	}
	return schedule.Instruction{}, false
}

// stale reports whether a forward comes before an update that it needs, and returns that update. Under Sync, that is
// the update of the minibatch before the forward's own; under 2BW, it is the update of two minibatches before. What
// Vertical needs depends on all lists and is checked elsewhere.
func (l *list) stale(f schedule.Instruction) (schedule.Instruction, bool) {
	u, needs := l.p.Needs(f)
	return u, needs && !l.have[u]
}

// gathered checks that a collective comes after every gradient of its replica, and after the collectives whose
// result it uses: replicas first, then ties, then the norm.
func (l *list) gathered(in schedule.Instruction) error {
	if err := l.summed(in); err != nil {
		return err
	}
	if in.Kind != schedule.AR && len(l.p.Placement[in.Pipeline][in.Stage]) > 1 && !l.have[in.As(schedule.AR)] {
		return fmt.Errorf("it takes the replicas' sum: %v must come before it", in.As(schedule.AR))
	}
	if in.Kind == schedule.GN && l.p.TiedTo(int(in.Stage)) != nil && !l.have[in.As(schedule.TG)] {
		return fmt.Errorf("it takes the sum of the tied gradients: %v must come before it", in.As(schedule.TG))
	}
	return nil
}

// summed checks that this replica's sum has exactly the gradients of the update's group. No gradient of the group is
// missing, and none of a later group is included. The last group of a stream may be shorter. If updates are deferred,
// only an AR must come before later gradients.
func (l *list) summed(u schedule.Instruction) error {
	if l.p.Served() {
		return nil // a server's update uses the gradients of one minibatch, which a trainer has sent
	}
	g := l.p.UpdateSpan(int(u.Pipeline), int(u.Stage))
	end := (int(u.Micro) + 1) * l.p.PerMinibatch()
	first := max(0, end-g)
	if first >= int(l.end) {
		return fmt.Errorf("no gradient is of it: there are %d micro-batches", l.end)
	}
	if of := l.p.UpdateOf(int(u.Pipeline), int(u.Stage), int32(first)); of != u.Micro {
		return fmt.Errorf("its stage updates once for %d minibatches: that of micro-batch %d is number %d", g, first, of)
	}
	last, ok := l.latest[ofStage(u.As(schedule.B))]
	if ok && int(last.Micro) >= end && (!l.p.Defers() || u.Kind == schedule.AR) {
		return fmt.Errorf("it would take the gradient of %v too, which is of a later update and must come behind it",
			last)
	}
	if l.p.Streams() {
		end = min(end, int(l.end))
	}
	for m := l.mine(u, first); m < end; m = l.mine(u, m+1) {
		b := u.As(schedule.B)
		b.Micro = int32(m)
		if !l.have[b] && !l.have[b.As(schedule.W)] {
			return fmt.Errorf("the gradient of %v is not there yet", b)
		}
	}
	return nil
}

// flushed checks that an update has its gradients, and that the collectives it needs were issued.
func (l *list) flushed(u schedule.Instruction) error {
	if l.p.Weights.Averages() {
		if err := l.averaged(u); err != nil {
			return err
		}
		if l.p.IsReference(int(u.Pipeline)) {
			return nil
		}
	}
	if err := l.summed(u); err != nil {
		return err
	}
	if len(l.p.Placement[u.Pipeline][u.Stage]) > 1 && !l.have[u.As(schedule.AR)] {
		return fmt.Errorf("the replicas' gradients are not summed: %v must come before it", u.As(schedule.AR))
	}
	if l.p.TiedTo(int(u.Stage)) != nil && !l.have[u.As(schedule.TG)] {
		return fmt.Errorf("the tied gradients are not summed: %v must come before it", u.As(schedule.TG))
	}
	if l.p.Clip && !l.have[u.As(schedule.GN)] {
		return fmt.Errorf("the gradient norm is not asked for: %v must come before it", u.As(schedule.GN))
	}
	return nil
}
