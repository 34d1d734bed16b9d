package check

import (
	"cmp"
	"errors"
	"fmt"
	"math"

	"github.com/millrace-ml/millrace/schedule"
)

// tally follows each list of a Program in order, and counts what the instructions make and use.
type tally struct {
	p         *schedule.Program
	done      map[schedule.Instruction]int // how often each computation is done
	updates   map[schedule.Instruction]int
	validated map[schedule.Instruction]int // how often each PV is done
	saves     map[schedule.Instruction]int // how often each CK is done
	// latest holds the gradient of the highest micro-batch so far, by stage (see ofStage).
	latest map[schedule.Instruction]schedule.Instruction
	end    int32                 // one more than the last micro-batch trained on
	hand   *schedule.Instruction // the RG whose gradients the server holds
}

func newTally(p *schedule.Program) *tally {
	return &tally{p: p, done: map[schedule.Instruction]int{}, updates: map[schedule.Instruction]int{},
		validated: map[schedule.Instruction]int{}, saves: map[schedule.Instruction]int{},
		latest: map[schedule.Instruction]schedule.Instruction{}, end: p.StreamEnd()}
}

// worker walks one list. What an instruction needs on its own worker must come before it in the list, so only the order
// counts and not time.
func (t *tally) worker(w int, rep *Report) error {
	l := &list{tally: t, have: map[schedule.Instruction]bool{}, updated: map[schedule.Instruction]int32{},
		settled: map[schedule.Instruction]int32{}}
	at := -1
	var fault error
	t.p.Walk(w, func(in schedule.Instruction) bool {
		at++
		rep.Instructions++
		sent, err := l.take(in)
		rep.Messages += sent
		if err != nil {
			fault = &Error{Program: t.p.Name, Worker: w, Position: at, Instruction: in, Why: err.Error()}
		}
		return err == nil
	})
	if fault == nil && l.held > 0 {
		fault = &Error{Program: t.p.Name, Worker: w, Position: -1, Why: l.unanswered(w)}
	}
	rep.PeakActivations = append(rep.PeakActivations, l.peak)
	return fault
}

// messages returns the number of messages that a send makes or a receive takes.
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

// gradient notes that a stage has added a micro-batch's gradient to its sum.
func (t *tally) gradient(in schedule.Instruction) {
	here := ofStage(in.As(schedule.B))
	if last, ok := t.latest[here]; !ok || last.Micro < in.Micro {
		t.latest[here] = in
	}
}

// versions checks that, when a forward begins, the version of the weights that it must use exists.
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

// mine returns the first micro-batch, at or after `micro`, that an instruction's replica computes.
func (t *tally) mine(in schedule.Instruction, micro int) int {
	n, all := len(t.p.Placement[in.Pipeline][in.Stage]), t.p.MicroBatches
	if t.p.Replication == schedule.Split || n == 1 {
		return micro
	}
	at := micro % all // the micro-batch's index in the repetition
	turn := at + ((int(in.Replica)-at)%n+n)%n
	if turn < all {
		return micro - at + turn
	}
	if int(in.Replica) >= all {
		return math.MaxInt // this replica computes no micro-batch
	}
	return micro - at + all + int(in.Replica)
}

// cause replaces an error about a missing gradient of an update or collective. If no list has that gradient's
// computation, the new error names the computation.
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
