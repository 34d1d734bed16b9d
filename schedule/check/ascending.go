package check

import (
	"fmt"

	"github.com/millrace-ml/millrace/schedule"
)

// OutOfOrder returns the first computation that adds to a sum out of the ascending order of micro-batches, or nil. The
// result of a floating-point sum depends on its order. A stage adds the gradients of its micro-batches in the order of
// its list. So the result equals that of one worker bit by bit only if each replica takes its micro-batches in
// ascending order in every sum. There are up to three sums:
//
//	B and W  what B, or the second half of a split backward, adds to the weights' gradients
//	B and I  what B, or the first half, adds to the gradients of layers that have no halves
//	F        the running statistics of a batch norm, if the model has one (statistics)
//
// Each use of a tied parameter, and each pipeline, is a sum of its own. Every repetition has the same order, so only
// two are checked. Without a flush, the result equals, bit by bit, the weight policy's equation computed with ascending
// sums. The Program must pass Check.
func OutOfOrder(p *schedule.Program, statistics bool) *Error {
	short := *p
	short.Repeat = min(p.Repeat, 2)
	type sum struct {
		pipeline, replica int16
		stage             int32
		of                schedule.Kind // W, I or F
	}
	for w := range short.Workers {
		last := map[sum]schedule.Instruction{}
		at := -1
		var wrong *Error
		short.Walk(w, func(in schedule.Instruction) bool {
			at++
			for _, of := range sumsOf(in.Kind, statistics) {
				key := sum{in.Pipeline, in.Replica, in.Stage, of}
				if before, ok := last[key]; ok && before.Micro > in.Micro {
					what := "its gradient is added"
					if of == schedule.F {
						what = "the statistics of a batch norm take it in"
					}
					wrong = &Error{Program: p.Name, Worker: w, Position: at, Instruction: in,
						Why: fmt.Sprintf("%s behind that of %v; sums have the same bits as one worker's where "+
							"micro-batches ascend: %v "+
							"must come before %v", what, before, in, before)}
					wrong.Locate(&short, &short)
					return false
				}
				last[key] = in
			}
			return true
		})
		if wrong != nil {
			return wrong
		}
	}
	return nil
}

// sumsOf returns the sums that a computation adds to.
func sumsOf(k schedule.Kind, statistics bool) []schedule.Kind {
	switch {
	case k == schedule.B:
		return []schedule.Kind{schedule.W, schedule.I}
	case k == schedule.I, k == schedule.W, k == schedule.F && statistics:
		return []schedule.Kind{k}
	}
	return nil
}
