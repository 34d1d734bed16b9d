package machine

import (
	"fmt"
	"strings"

	"github.com/millrace-ml/millrace/schedule"
)

// StallError says that a Program cannot go on although nothing has failed, and what each worker waits for.
type StallError struct {
	Room    string // what played the Program: "sim", "run", "schedule"
	Program string
	How     string // how it stops, for instance "stalls at 3 s"
	Waits   []Wait // each followed by a wait that it depends on, if possible
}

// Wait is what one worker waits for, in words.
type Wait struct {
	Need
	Text string
}

// NewStall returns the error for a Program that cannot go on, with the waits put in order. `tell` returns the text of
// each wait; nil means Need.String.
func NewStall(room, how string, p *schedule.Program, waits []Need, tell func(Need) string) *StallError {
	if tell == nil {
		tell = Need.String
	}
	e := &StallError{Room: room, Program: p.Name, How: how}
	for _, n := range Order(p, waits) {
		e.Waits = append(e.Waits, Wait{n, tell(n)})
	}
	return e
}

func (e *StallError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: program %s %s", e.Room, e.Program, e.How)
	for _, w := range e.Waits {
		b.WriteString("\n  " + w.Text)
	}
	return b.String()
}
