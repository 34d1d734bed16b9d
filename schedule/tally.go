package schedule

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// tally follows each list of a Program in order and keeps account of what each
// instruction makes and uses.
type tally struct {
	p         *Program
	done      map[Instruction]int // computations
	updates   map[Instruction]int
	validated map[Instruction]int // PV
	end       int32               // one more than the last micro-batch trained on
}

func newTally(p *Program) *tally {
	return &tally{p: p, done: map[Instruction]int{}, updates: map[Instruction]int{}, validated: map[Instruction]int{}, end: p.streamEnd()}
}

// worker walks one list. Everything that an instruction needs on its own worker must
// stand before it in the same list, so order alone decides, not time.
func (t *tally) worker(w int, rep *Report) error {
	have := map[Instruction]bool{}     // RF, RB taken; F, B, I done, as seen by this worker
	updated := map[Instruction]int32{} // by stage, in an update with no number: the last one
	held, peak, at := 0, 0, -1
	var fault error
	t.p.Walk(w, func(in Instruction) bool {
		at++
		rep.Instructions++
		fail := func(format string, args ...any) bool {
			fault = &CheckError{Program: t.p.Name, Worker: w, Position: at, Instruction: in, Why: fmt.Sprintf(format, args...)}
			return false
		}
		if in.Kind != DR && have[in] {
			return fail("it stands in the list twice")
		}
		have[in] = true
		switch in.Kind {
		case F, EV:
			if missing, ok := t.lacks(have, in, RF, in.Kind); ok {
				return fail("its input is not here: %v must come before it", missing)
			}
			if in.Kind == F {
				if before, ok := t.stale(have, in); ok {
					return fail("it would use weights from before %v, which must come before it", before)
				}
				held++
				peak = max(peak, held)
			}
			t.done[in]++
		case B, I:
			if missing, ok := t.unvalidated(have, in); ok {
				return fail("an update that is taken back is made again from the gradients that this would add to: %v must come before it", missing)
			}
			if !have[in.as(F)] {
				return fail("its forward %v must come before it", in.as(F))
			}
			if other := in.as(B + I - in.Kind); have[other] {
				return fail("%v has done the same gradient already", other)
			}
			if missing, ok := t.lacks(have, in, RB, in.Kind); ok {
				return fail("its gradient is not here: %v must come before it", missing)
			}
			if in.Kind == B {
				held--
			}
			t.done[in]++
		case W:
			if !have[in.as(I)] {
				return fail("its input gradient %v must come before it", in.as(I))
			}
			held--
			t.done[in]++
		case SF:
			if !have[in.as(F)] && !have[in.as(EV)] {
				return fail("what it sends is not made yet: %v must come before it", in.as(F))
			}
			rep.Messages += len(t.p.Receivers(in))
		case SB:
			if !have[in.as(B)] && !have[in.as(I)] {
				return fail("what it sends is not made yet: %v must come before it", in.as(B))
			}
			rep.Messages += len(t.p.Receivers(in))
		case U:
			if err := t.flushed(have, in); err != nil {
				return fail("%v", err)
			}
			of := in
			of.Micro = 0
			if last, ok := updated[of]; ok && last > in.Micro {
				return fail("a later update of its stage stands before it: updates come in their order")
			}
			updated[of] = in.Micro
			t.updates[in]++
			if t.p.PostValidate && in.Micro > 0 {
				before := in.as(PV)
				before.Micro--
				if !have[before] {
					return fail("the update before it is not validated: %v must come before it", before)
				}
			}
		case PV:
			if !t.p.PostValidate {
				return fail("updates of this program wait for their norm, and are not validated later")
			}
			if !have[in.as(U)] {
				return fail("its update %v must come before it", in.as(U))
			}
			t.validated[in]++
		case AR, TG, GN:
			if t.updates[in.as(U)] > 0 {
				return fail("its update has been done already")
			}
			if err := t.gathered(have, in); err != nil {
				return fail("%v", err)
			}
		}
		return true
	})
	if fault == nil && held > 0 {
		fault = &CheckError{Program: t.p.Name, Worker: w, Position: -1, Why: t.unanswered(w, have)}
	}
	rep.PeakActivations = append(rep.PeakActivations, peak)
	return fault
}

// unvalidated says whether a gradient stands before the validation of the update in front of its
// step.
func (t *tally) unvalidated(have map[Instruction]bool, in Instruction) (Instruction, bool) {
	if !t.p.PostValidate {
		return Instruction{}, false
	}
	v := in.as(PV)
	v.Micro = in.Micro/int32(t.p.perMinibatch()) - 1
	return v, v.Micro >= 0 && !have[v]
}

// unanswered names the first gradient that a worker's list leaves out.
func (t *tally) unanswered(w int, have map[Instruction]bool) string {
	var first Instruction
	left := 0
	t.p.Walk(w, func(in Instruction) bool {
		if in.Kind == F && !have[in.as(B)] && !have[in.as(W)] {
			if left++; left == 1 {
				first = in
			}
		}
		return true
	})
	missing := first.as(B)
	if have[first.as(I)] {
		missing = first.as(W)
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
func (t *tally) lacks(have map[Instruction]bool, in Instruction, receive, made Kind) (Instruction, bool) {
	r := in.as(receive)
	other := otherEnd(r)
	if other < 0 || int(other) >= t.p.Stages {
		return Instruction{}, false
	}
	if len(t.p.Senders(r)) > 0 && !have[r] {
		return r, true
	}
	self := t.p.WorkerOf(int(in.Pipeline), int(in.Stage), int(in.Replica))
	for _, replica := range t.p.peers(nil, in, other) {
		if t.p.WorkerOf(int(in.Pipeline), int(other), replica) != self {
			continue
		}
		near := in
		near.Stage, near.Replica = other, int16(replica)
		if have[near] || made == B && have[near.as(I)] || made == I && have[near.as(B)] {
			continue
		}
		return near, true
	}
	return Instruction{}, false
}

// stale says whether a forward stands before an update that it needs: under Sync that of
// the minibatch before its own, under 2BW that of the one before that. What Vertical needs
// is known only with all lists at hand, and is checked there.
func (t *tally) stale(have map[Instruction]bool, f Instruction) (Instruction, bool) {
	back := int32(1)
	switch t.p.Weights {
	case Sync, "", Elastic:
	case DoubleBuffered:
		back = 2
	default:
		return Instruction{}, false
	}
	g := int32(t.p.group(int(f.Pipeline), int(f.Stage)))
	before := (f.Micro/g-back)*g + g - 1
	if before < 0 {
		return Instruction{}, false
	}
	u := f.as(U)
	u.Micro = t.p.updateOf(int(f.Pipeline), int(f.Stage), before)
	return u, !have[u]
}

// versions checks that every forward finds the version it is to use, made and not yet
// replaced in place.
func (t *tally) versions(w int) error {
	current := map[[2]int32]int{}
	for _, u := range t.p.uses(w) {
		at := [2]int32{int32(u.Instruction.Pipeline), u.Instruction.Stage}
		if u.Instruction.Kind == U {
			current[at] = u.Version
		} else if u.Version > current[at] {
			return &CheckError{Program: t.p.Name, Worker: w, Position: u.at, Instruction: u.Instruction,
				Why: fmt.Sprintf("it is to use version %d of its weights; its stage has had %d updates here", u.Version, current[at])}
		}
	}
	return nil
}

// gathered says whether a collective stands where it must: behind every gradient that
// falls to its replica and behind the collectives whose result it takes, replicas first,
// then ties, then the norm.
func (t *tally) gathered(have map[Instruction]bool, in Instruction) error {
	if err := t.summed(have, in); err != nil {
		return err
	}
	if in.Kind != AR && len(t.p.Placement[in.Pipeline][in.Stage]) > 1 && !have[in.as(AR)] {
		return fmt.Errorf("it takes the replicas' sum: %v must come before it", in.as(AR))
	}
	if in.Kind == GN && t.p.tiedTo(int(in.Stage)) != nil && !have[in.as(TG)] {
		return fmt.Errorf("it takes the sum of the tied gradients: %v must come before it", in.as(TG))
	}
	return nil
}

// summed says whether every micro-batch of the update's group that falls to this replica
// has its gradient. The last group of a stream without a flush may be cut short.
func (t *tally) summed(have map[Instruction]bool, u Instruction) error {
	g := t.p.group(int(u.Pipeline), int(u.Stage))
	end := (int(u.Micro) + 1) * t.p.perMinibatch()
	for m := max(0, end-g); m < end; m++ {
		b := u.as(B)
		b.Micro = int32(m)
		if !t.mine(b) || t.p.Streams() && b.Micro >= t.end {
			continue
		}
		if !have[b] && !have[b.as(W)] {
			return fmt.Errorf("the gradient of %v is not there yet", b)
		}
	}
	return nil
}

// flushed says whether an update has its gradients, and the collectives that it needs were issued.
func (t *tally) flushed(have map[Instruction]bool, u Instruction) error {
	if t.p.Weights == Elastic {
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
	if len(t.p.Placement[u.Pipeline][u.Stage]) > 1 && !have[u.as(AR)] {
		return fmt.Errorf("the replicas' gradients are not summed: %v must come before it", u.as(AR))
	}
	if t.p.tiedTo(int(u.Stage)) != nil && !have[u.as(TG)] {
		return fmt.Errorf("the tied gradients are not summed: %v must come before it", u.as(TG))
	}
	if t.p.Clip && !have[u.as(GN)] {
		return fmt.Errorf("the gradient norm is not asked for: %v must come before it", u.as(GN))
	}
	return nil
}

// mine says whether a computation's micro-batch falls to its replica.
func (t *tally) mine(in Instruction) bool {
	n := len(t.p.Placement[in.Pipeline][in.Stage])
	return t.p.Replication == Split || t.p.replicaOf(in.Micro, n) == int(in.Replica)
}

// cause is why an update or a collective lacks a gradient, where that is because a computation is
// nowhere at all: then the computation is what is missing.
func (t *tally) cause(err error) error {
	var wrong *CheckError
	if !errors.As(err, &wrong) || !wrong.Instruction.Kind.OfMinibatch() {
		return err
	}
	all := newTally(t.p)
	for w := range t.p.Workers {
		t.p.Walk(w, func(in Instruction) bool {
			if !in.Kind.OfMinibatch() {
				all.done[in]++
			}
			return true
		})
	}
	return cmp.Or(all.everyMicro(), err)
}

// whole checks counts over all workers: every stage has worked on every micro-batch
// that any stage has worked on, and updated once for each minibatch.
func (t *tally) whole() error {
	if err := t.everyMicro(); err != nil {
		return err
	}
	return t.everyUpdate()
}

func (t *tally) everyMicro() error {
	type micro struct {
		pipeline int16
		id       int32
		eval     bool
	}
	seen, ids := map[micro]bool{}, map[int32]bool{}
	for in := range t.done {
		seen[micro{in.Pipeline, in.Micro, in.Kind == EV}] = true
		ids[in.Micro] = true
	}
	missing := func(in Instruction, what string) error {
		w := t.p.WorkerOf(int(in.Pipeline), int(in.Stage), int(in.Replica))
		return &CheckError{Program: t.p.Name, Worker: w, Position: -1, Why: fmt.Sprintf("%v is missing: %s", in, what)}
	}
	for _, id := range slices.Sorted(maps.Keys(ids)) {
		for pl := range t.p.Placement {
			for _, eval := range []bool{false, true} {
				if !seen[micro{int16(pl), id, eval}] {
					continue
				}
				for s, on := range t.p.Placement[pl] {
					for r := range on {
						in := Instruction{Pipeline: int16(pl), Stage: int32(s), Micro: id, Replica: int16(r), Kind: F}
						if !t.mine(in) {
							continue
						}
						if eval {
							if t.done[in.as(EV)] == 0 {
								return missing(in.as(EV), "other stages evaluate this micro-batch")
							}
							continue
						}
						if t.done[in] == 0 {
							return missing(in, "other stages run this micro-batch")
						}
						if t.done[in.as(B)] == 0 && (t.done[in.as(I)] == 0 || t.done[in.as(W)] == 0) {
							return missing(in.as(B), "the stage runs this micro-batch's forward")
						}
					}
				}
			}
		}
	}
	return nil
}

func (t *tally) everyUpdate() error {
	if len(t.updates) == 0 {
		for in := range t.done {
			if in.Kind == B || in.Kind == W {
				return &CheckError{Program: t.p.Name, Worker: -1, Position: -1, Why: "it makes gradients and never updates"}
			}
		}
		return nil
	}
	type place struct {
		pipeline, stage int
		id              int32
	}
	expected := map[place]bool{}
	for in := range t.updates {
		// An update that one stage makes, every stage makes that updates as often.
		for s := range t.p.Placement[in.Pipeline] {
			if t.p.group(int(in.Pipeline), s) == t.p.group(int(in.Pipeline), int(in.Stage)) {
				expected[place{int(in.Pipeline), s, in.Micro}] = true
			}
		}
	}
	trained := map[int32]bool{}
	for in := range t.done {
		if in.Kind != B && in.Kind != W {
			continue
		}
		pl := int(in.Pipeline)
		if !t.p.Streams() && !trained[in.Micro] {
			// A worker's pipelines are trained alike: a minibatch of one is one of all.
			trained[in.Micro] = true
			for other := range t.p.Placement {
				for s := range t.p.Placement[other] {
					expected[place{other, s, t.p.updateOf(other, s, in.Micro)}] = true
				}
			}
		}
		expected[place{pl, int(in.Stage), t.p.updateOf(pl, int(in.Stage), in.Micro)}] = true
	}
	order := slices.SortedFunc(maps.Keys(expected), func(a, b place) int {
		return cmp.Or(cmp.Compare(a.id, b.id), a.pipeline-b.pipeline, a.stage-b.stage)
	})
	for _, e := range order {
		for r, w := range t.p.Placement[e.pipeline][e.stage] {
			in := Instruction{Pipeline: int16(e.pipeline), Stage: int32(e.stage), Micro: e.id, Replica: int16(r), Kind: U}
			if v := in.as(PV); t.p.PostValidate && t.validated[v] != 1 {
				return &CheckError{Program: t.p.Name, Worker: w, Position: -1,
					Why: fmt.Sprintf("%v is there %d times; every update is validated once", v, t.validated[v])}
			}
			if t.updates[in] != 1 {
				return &CheckError{Program: t.p.Name, Worker: w, Position: -1,
					Why: fmt.Sprintf("%v is there %d times; every stage updates once for each minibatch", in, t.updates[in])}
			}
		}
	}
	return nil
}
