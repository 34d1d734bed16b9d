package lower

import (
	"fmt"

	"github.com/millrace-ml/millrace/schedule"
)

// Saved returns a lowered Program whose stages save themselves after given numbers of minibatches. For each number n in
// `ends`, the first replica of every stage saves after its last update of the first n minibatches. Nothing waits and
// nothing is drained (PipeDream §4). The result repeats no body, because a repeated body would save in each repetition.
// Saved refuses Programs that are not lowered, that have a reference, or whose policy is ASP. It also refuses a number
// that lies inside the minibatches of some stage's update, or beyond the Program.
func Saved(p *schedule.Program, ends []int) (*schedule.Program, error) {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("schedule: saving program %s in its middle: %s", p.Name, fmt.Sprintf(format, args...))
	}
	switch {
	case !p.Lowered:
		return nil, bad("it has no updates yet")
	case p.HasReference() || p.Served():
		return nil, bad("with weights %s a stage's are not those of its own updates alone", p.Weights)
	}
	due := map[int32]bool{}
	for _, end := range ends {
		if end < 1 || end > p.Minibatches() {
			return nil, bad("behind %d minibatches; it has %d", end, p.Minibatches())
		}
		due[int32(end-1)] = true
	}
	out := *p
	out.Repeat, out.Body, out.Epilogue = 0, nil, nil
	out.Prologue = make(schedule.Part, p.Workers)
	saves := 0
	for w := range p.Workers {
		p.Walk(w, func(in schedule.Instruction) bool {
			out.Prologue[w] = append(out.Prologue[w], in)
			if p.Settled(in) && in.Replica == 0 && due[in.Micro] {
				out.Prologue[w] = append(out.Prologue[w], in.As(schedule.CK))
				saves++
			}
			return true
		})
	}
	if saves < len(due)*p.Stages {
		return nil, bad("behind %v minibatches from its first; a stage that updates once for several has no update "+
			"there: give multiples of %d", ends, p.StopUnit())
	}
	return &out, nil
}
