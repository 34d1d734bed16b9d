package machine

import (
	"fmt"
	"strings"
	"time"

	"github.com/millrace-ml/millrace/schedule"
)

// StallError says that a Program cannot go on although nobody has failed, and who waits for what.
type StallError struct {
	Room    string // that played it: "sim", "run", "schedule"
	Program string
	How     string // "stalls at 3 s"
	Waits   []Wait // each followed by one that it waits for, as far as there is one
}

// Wait is what one worker waits for, and for how long it has; sim says no times.
type Wait struct {
	Need
	Waited time.Duration // since its last instruction ended
	Since  time.Duration // of the run, when that was
}

func (w Wait) String() string {
	if w.Waited == 0 && w.Since == 0 {
		return w.Need.String()
	}
	return fmt.Sprintf("%v; it has waited for %v, since %v of the run", w.Need, w.Waited.Round(time.Millisecond),
		w.Since.Round(time.Millisecond))
}

// NewStall is the error of a Program that stops where it is, with the waits put in order. times says for how
// long a worker has waited and since when; nil is no times.
func NewStall(room, how string, p *schedule.Program, waits []Need, times func(worker int) (waited, since time.Duration)) *StallError {
	e := &StallError{Room: room, Program: p.Name, How: how}
	for _, n := range Order(p, waits) {
		w := Wait{Need: n}
		if times != nil {
			w.Waited, w.Since = times(n.Worker)
		}
		e.Waits = append(e.Waits, w)
	}
	return e
}

func (e *StallError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: program %s %s", e.Room, e.Program, e.How)
	for _, w := range e.Waits {
		b.WriteString("\n  " + w.String())
	}
	return b.String()
}
