package check

import (
	"fmt"

	"github.com/millrace-ml/millrace/schedule"
)

// Held refuses a Program in which a worker holds more than most micro-batches between their forward and their last
// gradient. Those of each of the worker's stages count. The error names the forward that is one too many. The
// Program has passed Check.
func Held(p *schedule.Program, most int) error {
	short := *p
	short.Repeat = checkedRepeats(p) // each is like the one in front of it from then on
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
