package check

import (
	"cmp"
	"errors"
	"fmt"
	"math"

	"github.com/millrace-ml/millrace/schedule"
)

// tally follows each list of a Program in order and keeps account of what each
// instruction makes and uses.
type tally struct {
	p         *schedule.Program
	done      map[schedule.Instruction]int // computations
	updates   map[schedule.Instruction]int
	validated map[schedule.Instruction]int // PV
	saves     map[schedule.Instruction]int // CK
	// latest is, by stage in a B with no number, the gradient of the highest micro-batch so far.
	latest map[schedule.Instruction]schedule.Instruction
	end    int32                 // one more than the last micro-batch trained on
	hand   *schedule.Instruction // the RG whose gradients the server has in hand
}

func newTally(p *schedule.Program) *tally {
	return &tally{p: p, done: map[schedule.Instruction]int{}, updates: map[schedule.Instruction]int{},
		validated: map[schedule.Instruction]int{}, saves: map[schedule.Instruction]int{},
		latest: map[schedule.Instruction]schedule.Instruction{}, end: p.StreamEnd()}
}

// worker walks one list. Everything that an instruction needs on its own worker must
// stand before it in the same list, so order alone decides, not time.
func (t *tally) worker(w int, rep *Report) error {
	have := map[schedule.Instruction]bool{}     // RF, RB taken; F, B, I done, as seen by this worker
	updated := map[schedule.Instruction]int32{} // by stage, in an update with no number: the last one
	settled := map[schedule.Instruction]int32{} // and in what settles it
	held, peak, at := 0, 0, -1
	var fault error
	t.p.Walk(w, func(in schedule.Instruction) bool {
		at++
		rep.Instructions++
		fail := func(format string, args ...any) bool {
			fault = &Error{Program: t.p.Name, Worker: w, Position: at, Instruction: in,
				Why: fmt.Sprintf(format, args...)}
			return false
		}
		if in.Kind != schedule.DR && have[in] {
			return fail("it stands in the list twice")
		}
		have[in] = true
		if t.p.Settled(in) {
			of := in
			of.Micro = 0
			settled[of] = in.Micro
		}
		if in.Kind.IsSend() || in.Kind.IsReceive() {
			n := t.messages(in)
			if n == 0 {
				return fail("no other worker has a part in it; what is made here is here")
			}
			if in.Kind.IsSend() {
				rep.Messages += n
			}
		}
		if err := t.served(have, in); err != nil {
			return fail("%v", err)
		}
		switch in.Kind {
		case schedule.F, schedule.EV:
			if missing, ok := t.lacks(have, in, schedule.RF, in.Kind); ok {
				return fail("its input is not here: %v must come before it", missing)
			}
			if in.Kind == schedule.F {
				if before, ok := t.stale(have, in); ok {
					return fail("it would use weights from before %v, which must come before it", before)
				}
				held++
				peak = max(peak, held)
			}
			t.done[in]++
		case schedule.B, schedule.I:
			if missing, ok := t.unvalidated(have, in); ok {
				return fail("an update that is taken back is made again from the gradients that this would add to: "+
					"%v must come before it", missing)
			}
			if !have[in.As(schedule.F)] {
				return fail("its forward %v must come before it", in.As(schedule.F))
			}
			if other := in.As(schedule.B + schedule.I - in.Kind); have[other] {
				return fail("%v has done the same gradient already", other)
			}
			if missing, ok := t.lacks(have, in, schedule.RB, in.Kind); ok {
				return fail("its gradient is not here: %v must come before it", missing)
			}
			if in.Kind == schedule.B {
				held--
			}
			t.gradient(in) // of I: that of layers without halves
			t.done[in]++
		case schedule.W:
			if !have[in.As(schedule.I)] {
				return fail("its input gradient %v must come before it", in.As(schedule.I))
			}
			held--
			t.gradient(in)
			t.done[in]++
		case schedule.SF:
			if !have[in.As(schedule.F)] && !have[in.As(schedule.EV)] {
				return fail("what it sends is not made yet: %v must come before it", in.As(schedule.F))
			}
		case schedule.SB:
			if !have[in.As(schedule.B)] && !have[in.As(schedule.I)] {
				return fail("what it sends is not made yet: %v must come before it", in.As(schedule.B))
			}
		case schedule.U:
			if err := t.flushed(have, in); err != nil {
				return fail("%v", err)
			}
			of := in
			of.Micro = 0
			if last, ok := updated[of]; ok && last > in.Micro && !t.p.Served() {
				return fail("a later update of its stage stands before it: updates come in their order")
			}
			updated[of] = in.Micro
			t.updates[in]++
			if t.p.ValidatesLater() && in.Micro > 0 {
				before := in.As(schedule.PV)
				before.Micro--
				if !have[before] {
					return fail("the update before it is not validated: %v must come before it", before)
				}
			}
		case schedule.UR:
			if err := t.averaged(have, in); err != nil {
				return fail("%v", err)
			}
			of := in
			of.Micro = 0
			if last, ok := updated[of]; ok && last > in.Micro {
				return fail("a later update of the reference stands before it: updates come in their order")
			}
			updated[of] = in.Micro
			t.updates[in.As(schedule.U)]++
		case schedule.PV:
			if !t.p.ValidatesLater() {
				return fail("updates of this program wait for their norm, and are not validated later")
			}
			if !have[in.As(schedule.U)] {
				return fail("its update %v must come before it", in.As(schedule.U))
			}
			t.validated[in]++
		case schedule.CK:
			of := in.As(t.p.Settles())
			of.Micro = 0
			if last, ok := settled[of]; t.end > 0 && (!ok || last != in.Micro) {
				return fail("it saves what %v has left, which must come before it, and no later one", in.As(t.p.Settles()))
			}
			t.saves[in]++
		case schedule.AR, schedule.TG, schedule.GN:
			if t.updates[in.As(schedule.U)] > 0 {
				return fail("its update has been done already")
			}
			if err := t.gathered(have, in); err != nil {
				return fail("%v", err)
			}
		}
		return true
	})
	if fault == nil && held > 0 {
		fault = &Error{Program: t.p.Name, Worker: w, Position: -1, Why: t.unanswered(w, have)}
	}
	rep.PeakActivations = append(rep.PeakActivations, peak)
	return fault
}

// messages is how many a send makes, or a receive takes.
func (t *tally) messages(in schedule.Instruction) (n int) {
	if in.Kind.IsSend() {
		t.p.Recipients(in, func(int, int, int, int) bool {
			n++
			return true
		})
		return n
	}
	t.p.Expected(in, func(schedule.Instruction, int) bool {
		n++
		return true
	})
	return n
}

// gradient notes that a stage has added a micro-batch's gradient to what has gathered.
func (t *tally) gradient(in schedule.Instruction) {
	here := in.As(schedule.B)
	here.Micro = 0
	if last, ok := t.latest[here]; !ok || last.Micro < in.Micro {
		t.latest[here] = in
	}
}

// unvalidated says whether a gradient stands before the validation of the update in front of its
// step.
func (t *tally) unvalidated(have map[schedule.Instruction]bool, in schedule.Instruction) (schedule.Instruction, bool) {
	if !t.p.ValidatesLater() {
		return schedule.Instruction{}, false
	}
	v := in.As(schedule.PV)
	v.Micro = in.Micro/int32(t.p.PerMinibatch()) - 1
	return v, v.Micro >= 0 && !have[v]
}

// unanswered names the first gradient that a worker's list leaves out.
func (t *tally) unanswered(w int, have map[schedule.Instruction]bool) string {
	var first schedule.Instruction
	left := 0
	t.p.Walk(w, func(in schedule.Instruction) bool {
		if in.Kind == schedule.F && !have[in.As(schedule.B)] && !have[in.As(schedule.W)] {
			if left++; left == 1 {
				first = in
			}
		}
		return true
	})
	missing := first.As(schedule.B)
	if have[first.As(schedule.I)] {
		missing = first.As(schedule.W)
	}
	why := fmt.Sprintf("%v is missing: the list ends without the gradient of its forward %v", missing, first)
	if left > 1 {
		why += fmt.Sprintf(", nor those of %d more", left-1)
	}
	return why
}

// lacks says what a computation still needs from the neighbouring stage: the receive,
// where any message comes from another worker, and the neighbour's own computation
// where that is done here.
func (t *tally) lacks(
	have map[schedule.Instruction]bool, in schedule.Instruction, receive, made schedule.Kind,
) (schedule.Instruction, bool) {
	r := in.As(receive)
	other := schedule.OtherEnd(r)
	if other < 0 || int(other) >= t.p.Stages {
		return schedule.Instruction{}, false
	}
	if len(t.p.Senders(r)) > 0 && !have[r] {
		return r, true
	}
	self := t.p.WorkerOf(int(in.Pipeline), int(in.Stage), int(in.Replica))
	for _, replica := range t.p.Peers(nil, in, other) {
		if t.p.WorkerOf(int(in.Pipeline), int(other), replica) != self {
			continue
		}
		near := in
		near.Stage, near.Replica = other, int16(replica)
		if have[near] || made == schedule.B && have[near.As(schedule.I)] || made == schedule.I &&
			have[near.As(schedule.B)] {
			continue
		}
		return near, true
	}
	return schedule.Instruction{}, false
}

// stale says whether a forward stands before an update that it needs: under Sync that of
// the minibatch before its own, under 2BW that of the one before that. What Vertical needs
// is known only with all lists at hand, and is checked there.
func (t *tally) stale(have map[schedule.Instruction]bool, f schedule.Instruction) (schedule.Instruction, bool) {
	u, needs := t.p.Needs(f)
	return u, needs && !have[u]
}

// versions checks that every forward finds the version it is to use, made and not yet
// replaced in place.
func (t *tally) versions(w int) error {
	current := map[[2]int32]int{}
	for _, u := range t.p.Uses(w) {
		at := [2]int32{int32(u.Instruction.Pipeline), u.Instruction.Stage}
		if u.Instruction.Kind == schedule.U {
			current[at] = u.Version
		} else if u.Version > current[at] {
			return &Error{Program: t.p.Name, Worker: w, Position: u.At, Instruction: u.Instruction,
				Why: fmt.Sprintf("it is to use version %d of its weights; its stage has had %d updates here",
					u.Version, current[at])}
		}
	}
	return nil
}

// gathered says whether a collective stands where it must: behind every gradient that
// falls to its replica and behind the collectives whose result it takes, replicas first,
// then ties, then the norm.
func (t *tally) gathered(have map[schedule.Instruction]bool, in schedule.Instruction) error {
	if err := t.summed(have, in); err != nil {
		return err
	}
	if in.Kind != schedule.AR && len(t.p.Placement[in.Pipeline][in.Stage]) > 1 && !have[in.As(schedule.AR)] {
		return fmt.Errorf("it takes the replicas' sum: %v must come before it", in.As(schedule.AR))
	}
	if in.Kind == schedule.GN && t.p.TiedTo(int(in.Stage)) != nil && !have[in.As(schedule.TG)] {
		return fmt.Errorf("it takes the sum of the tied gradients: %v must come before it", in.As(schedule.TG))
	}
	return nil
}

// summed says whether every micro-batch of the update's group that falls to this replica
// has its gradient. The last group of a stream without a flush may be cut short.
func (t *tally) summed(have map[schedule.Instruction]bool, u schedule.Instruction) error {
	if t.p.Served() {
		return nil // one minibatch's, which have come from elsewhere
	}
	g := t.p.UpdateSpan(int(u.Pipeline), int(u.Stage))
	end := (int(u.Micro) + 1) * t.p.PerMinibatch()
	first := max(0, end-g)
	if first >= int(t.end) {
		return fmt.Errorf("no gradient is of it: there are %d micro-batches", t.end)
	}
	if of := t.p.UpdateOf(int(u.Pipeline), int(u.Stage), int32(first)); of != u.Micro {
		return fmt.Errorf("its stage updates once for %d minibatches: that of micro-batch %d is number %d", g, first, of)
	}
	here := u.As(schedule.B)
	here.Micro = 0
	if last, ok := t.latest[here]; ok && int(last.Micro) >= end && (!t.p.Defers() || u.Kind == schedule.AR) {
		return fmt.Errorf("it would take the gradient of %v too, which is of a later update and must come behind it",
			last)
	}
	if t.p.Streams() {
		end = min(end, int(t.end))
	}
	for m := t.mine(u, first); m < end; m = t.mine(u, m+1) {
		b := u.As(schedule.B)
		b.Micro = int32(m)
		if !have[b] && !have[b.As(schedule.W)] {
			return fmt.Errorf("the gradient of %v is not there yet", b)
		}
	}
	return nil
}

// flushed says whether an update has its gradients, and the collectives that it needs were issued.
func (t *tally) flushed(have map[schedule.Instruction]bool, u schedule.Instruction) error {
	if t.p.Weights.Averages() {
		if err := t.averaged(have, u); err != nil {
			return err
		}
		if t.p.IsReference(int(u.Pipeline)) {
			return nil
		}
	}
	if err := t.summed(have, u); err != nil {
		return err
	}
	if len(t.p.Placement[u.Pipeline][u.Stage]) > 1 && !have[u.As(schedule.AR)] {
		return fmt.Errorf("the replicas' gradients are not summed: %v must come before it", u.As(schedule.AR))
	}
	if t.p.TiedTo(int(u.Stage)) != nil && !have[u.As(schedule.TG)] {
		return fmt.Errorf("the tied gradients are not summed: %v must come before it", u.As(schedule.TG))
	}
	if t.p.Clip && !have[u.As(schedule.GN)] {
		return fmt.Errorf("the gradient norm is not asked for: %v must come before it", u.As(schedule.GN))
	}
	return nil
}

// mine is the first micro-batch from one on that falls to an instruction's replica.
func (t *tally) mine(in schedule.Instruction, micro int) int {
	n, all := len(t.p.Placement[in.Pipeline][in.Stage]), t.p.MicroBatches
	if t.p.Replication == schedule.Split || n == 1 {
		return micro
	}
	at := micro % all // of its repetition
	turn := at + ((int(in.Replica)-at)%n+n)%n
	if turn < all {
		return micro - at + turn
	}
	if int(in.Replica) >= all {
		return math.MaxInt // it has none
	}
	return micro - at + all + int(in.Replica)
}

// cause is why an update or a collective lacks a gradient, where that is because a computation is
// nowhere at all: then the computation is what is missing.
func (t *tally) cause(err error) error {
	var wrong *Error
	if !errors.As(err, &wrong) || !wrong.Instruction.Kind.OfMinibatch() {
		return err
	}
	all := newTally(t.p)
	for w := range t.p.Workers {
		t.p.Walk(w, func(in schedule.Instruction) bool {
			if !in.Kind.OfMinibatch() {
				all.done[in]++
			}
			return true
		})
	}
	return cmp.Or(all.everyMicro(), err)
}
