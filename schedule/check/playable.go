package check

import (
	"fmt"

	"github.com/millrace-ml/millrace/schedule"
)

// Playable refuses a Program without instructions, or with too many to check, draw or simulate, counting repetitions.
func Playable(p *schedule.Program) error {
	n := p.Instructions()
	switch {
	case n == 0:
		return &Error{Program: p.Name, Worker: -1, Position: -1,
			Why: "it has no instructions; there is nothing to check or to run"}
	case n > schedule.MaxPlayed:
		return &Error{Program: p.Name, Worker: -1, Position: -1,
			Why: fmt.Sprintf("it has %d instructions, its body %d times; at most %d are played: give fewer "+
				"repetitions or "+
				"micro-batches", n, p.Repeat, schedule.MaxPlayed)}
	}
	return nil
}

// executable refuses a training Program that also evaluates. An evaluation is a Program of its own, before which the
// run drains (programs.Evaluation).
func executable(p *schedule.Program) error {
	trains := false
	for _, part := range []schedule.Part{p.Prologue, p.Body, p.Epilogue} {
		for _, list := range part {
			trains = trains || list.Trains()
		}
	}
	if !trains {
		return nil
	}
	for w := range p.Workers {
		var wrong error
		at := -1
		p.Walk(w, func(in schedule.Instruction) bool {
			at++
			if in.Kind == schedule.EV {
				wrong = &Error{Program: p.Name, Worker: w, Position: at, Instruction: in,
					Why: "a program that trains does not evaluate; train does, between two of them (--eval-every)"}
			}
			return wrong == nil
		})
		if wrong != nil {
			return wrong
		}
	}
	return nil
}
