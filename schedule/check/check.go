package check

import (
	"errors"
	"fmt"

	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/lower"
	"github.com/millrace-ml/millrace/schedule/machine"
)

// Report is the result of Check for a valid Program.
type Report struct {
	Instructions    int   `json:"instructions"`
	Messages        int   `json:"messages"`
	PeakActivations []int `json:"peak_activations"` // by worker: the most micro-batches between forward and last gradient
	// Versions is the largest number of copies of weights that each worker keeps at once: one for each of its stages,
	// twice that if updates are validated later, and one for each older version still in use.
	Versions []int `json:"versions"`
	// Minibatches is how many minibatches were checked. A long body repeats them, so it may be fewer than the Program's.
	// Instructions and Messages are of these.
	Minibatches int `json:"minibatches"`
}

// checkRepeats is how many repetitions of a long body are checked. A fault between repetitions shows between the first
// and the second or, if there is a prologue, between the second and the third.
const checkRepeats = 4

// Check proves, before anything runs, that a Program can run to its end. Fields are in range, and every instruction is
// on a worker that holds its stage. Everything that an instruction needs is made before it. Each stage computes each
// micro-batch's forward and backward exactly once (B, or I and then W). Each stage has one update for each group of
// micro-batches (UpdateSpan), after all its gradients. Every message is received. Its send and its receive are on the
// same side of each drain. There is no deadlock. Without a flush every forward must also find the version of the
// weights that the policy gives it, and the report says how many versions are kept. A compute-only Program is lowered
// first. If the body is repeated often, only the first repetitions are checked: checkRepeats of them, and as many more
// as contain the prologue's micro-batches.
func Check(p *schedule.Program) (Report, error) {
	if err := Validate(p); err != nil {
		return Report{}, err
	}
	rep, q, err := check(p)
	var wrong *Error
	if errors.As(err, &wrong) {
		given := *p
		given.Repeat = q.Repeat
		wrong.Locate(&given, q)
	}
	return rep, err
}

// check does the work of Check. It also returns the Program to which the positions of errors refer: lowered, with only
// the repetitions that are checked.
func check(p *schedule.Program) (Report, *schedule.Program, error) {
	q := p
	if !p.Lowered {
		var err error
		if q, err = lower.Lower(p, lower.Options{Tied: p.Tied, Clip: p.Clip}); err != nil {
			return Report{}, p, err
		}
	}
	short := *q
	short.Repeat = checkedRepeats(q)
	if err := Playable(&short); err != nil {
		return Report{}, p, err
	}
	if err := executable(&short); err != nil {
		return Report{}, &short, err
	}
	rep := Report{Minibatches: short.Minibatches()}
	total := newTally(&short)
	for w := range short.Workers {
		if err := total.worker(w, &rep); err != nil {
			return Report{}, &short, total.cause(err)
		}
	}
	if err := total.whole(); err != nil {
		return Report{}, &short, err
	}
	for w := range short.Workers {
		if !short.Streams() {
			copies := len(short.StagesOf(w))
			if short.ValidatesLater() {
				copies *= 2 // also the weights before the update that is not validated yet
			}
			rep.Versions = append(rep.Versions, copies)
			continue
		}
		if err := total.versions(w); err != nil {
			return Report{}, &short, err
		}
		rep.Versions = append(rep.Versions, short.MostCopies(w))
	}
	if err := replay(&short); err != nil {
		return Report{}, &short, err
	}
	return rep, &short, crossing(&short)
}

// checkedRepeats returns how many repetitions of the body are checked. It adds to checkRepeats the micro-batches of the
// prologue, divided by the micro-batches of a repetition and rounded up. The result is at most the number of all
// repetitions.
func checkedRepeats(p *schedule.Program) int {
	n := int32(0)
	for _, list := range p.Prologue {
		for _, in := range list {
			if in.Kind == schedule.F {
				n = max(n, in.Micro+1)
			}
		}
	}
	return min(p.Repeat, checkRepeats+(int(n)+p.MicroBatches-1)/p.MicroBatches)
}

// replay runs the Program with transfers that take no time. If it ends this way, it cannot deadlock at any speed.
func replay(p *schedule.Program) error {
	m, err := machine.Play(p, machine.Options{})
	if err != nil {
		return err
	}
	if waits := m.Waits(); len(waits) > 0 {
		why := "it would block for ever"
		if chain, closed := machine.Chain(p, waits); closed {
			why += ": " + machine.Circle(chain)
		}
		return &Error{Program: p.Name, Worker: -1, Position: -1, Why: why, Waits: waits}
	}
	if w, in, found := m.Left(); found {
		return &Error{Program: p.Name, Worker: w, Position: -1,
			Why: fmt.Sprintf("%v is sent to it and never received", in)}
	}
	return nil
}
