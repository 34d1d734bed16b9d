package machine

import (
	"fmt"
	"strings"

	"github.com/millrace-ml/millrace/schedule"
)

// StallError says that a Program cannot go on although nobody has failed, and who waits for what.
type StallError struct {
	Room    string // that played it: "sim", "run", "schedule"
	Program string
	How     string // "stalls at 3 s"
	Waits   []Wait // each followed by one that it waits for, as far as there is one
}

// Wait is what one worker waits for, and what is to be said of it besides.
type Wait struct {
	Need
	Note string // for how long, where there is a clock
}

func (w Wait) String() string {
	if w.Note == "" {
		return w.Need.String()
	}
	return w.Need.String() + "; " + w.Note
}

// NewStall is the error of a Program that stops where it is, with the waits put in order. note is what to say
// of a worker besides; nil is nothing.
func NewStall(room, how string, p *schedule.Program, waits []Need, note func(worker int) string) *StallError {
	e := &StallError{Room: room, Program: p.Name, How: how}
	for _, n := range Order(p, waits) {
		w := Wait{Need: n}
		if note != nil {
			w.Note = note(n.Worker)
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
