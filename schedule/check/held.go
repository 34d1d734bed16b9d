package check

import (
	"fmt"

	"github.com/millrace-ml/millrace/schedule"
)

// Held refuses a Program in which a worker has too many micro-batches between their forward and their last gradient.
// The limit `most` is for all the worker's stages together. The error names the first forward that exceeds the limit.
// The Program must pass Check.
func Held(p *schedule.Program, most int) error {
	short := *p
	short.Repeat = checkedRepeats(p) // each later repetition equals the one before it
	for w := range short.Workers {
		held, at := 0, -1
		var wrong error
		short.Walk(w, func(in schedule.Instruction) bool {
			at++
			switch in.Kind {
			case schedule.F:
				if held++; held > most {
					e := &Error{Program: p.Name, Worker: w, Position: at, Instruction: in,
						Why: fmt.Sprintf("it would hold %d micro-batches at once; the limit is %d", held, most)}
					e.Locate(&short, &short)
					wrong = e
					return false
				}
			case schedule.B, schedule.W:
				held--
			}
			return true
		})
		if wrong != nil {
			return wrong
		}
	}
	return nil
}
