package check

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/machine"
)

// Error says why a Program must not start, and where the fault is.
type Error struct {
	Program     string
	Worker      int // -1: no single worker
	Position    int // index in the worker's lowered list (from Validate: in the list of one part); -1: no single place
	Instruction schedule.Instruction
	Why         string
	Waits       []machine.Need // for a deadlock: what each worker waits for
	File        string         // the file of the Program, if a Source was checked
	Lines       [3]map[int]int // line in that file, by part and worker

	part, at int                  // the place in the Program as given; -1: lowering added the instruction
	written  schedule.Instruction // the instruction as written there, with the ids of its part
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(strings.TrimSpace("schedule: program " + e.Program))
	b.WriteString(e.place())
	b.WriteString(": " + e.Why + e.in())
	for _, n := range e.Waits {
		b.WriteString("\n  " + n.String())
		if line := e.lineOf(n.Worker); line > 0 {
			fmt.Fprintf(&b, " (line %d)", line)
		}
	}
	return b.String()
}

// Locate finds the instruction at a position of q in the lists of p. q is p itself or its lowered form, and lowering
// keeps the order of computations. For a transfer that lowering added, Locate finds its computation. Other instructions
// that lowering added have no place.
func (e *Error) Locate(p, q *schedule.Program) {
	e.part, e.at = -1, -1
	if e.Worker < 0 || e.Worker >= q.Workers || e.Position < 0 {
		return
	}
	times, position := 0, 0
	q.Walk(e.Worker, func(in schedule.Instruction) bool {
		if in == e.Instruction {
			times++
		}
		position++
		return position <= e.Position
	})
	for _, k := range madeFor(e.Instruction.Kind) {
		want := e.Instruction.As(k)
		left := times
		for c := schedule.NewCursor(p, e.Worker); ; c.Advance() {
			in, ok := c.Head()
			if !ok {
				break
			}
			if in == want {
				if left--; left == 0 {
					e.Instruction = want
					e.part, e.at, e.written = c.Place()
					return
				}
			}
		}
	}
}

// madeFor returns the kinds to look for in place of k: k itself, and the computations for which lowering adds a
// transfer of kind k.
func madeFor(k schedule.Kind) []schedule.Kind {
	switch k {
	case schedule.RF, schedule.SF:
		return []schedule.Kind{k, schedule.F, schedule.EV}
	case schedule.RB, schedule.SB:
		return []schedule.Kind{k, schedule.B, schedule.I}
	}
	return []schedule.Kind{k}
}

// place describes where an error is: the line of the list if lines are known, the part if there are several, and the
// instruction's position.
func (e *Error) place() string {
	var b strings.Builder
	if e.Worker >= 0 {
		fmt.Fprintf(&b, ", worker %d", e.Worker)
		if line := e.lineOf(e.Worker); line > 0 {
			fmt.Fprintf(&b, ", line %d", line)
		} else if e.part >= 0 && e.part != 1 {
			fmt.Fprintf(&b, ", %s", schedule.PartNames()[e.part])
		}
	}
	switch {
	case e.Position < 0:
	case e.at >= 0:
		fmt.Fprintf(&b, ", instruction %d (%v)", e.at, e.written)
	default:
		fmt.Fprintf(&b, ", %v, which its order implies", e.Instruction)
	}
	return b.String()
}

// lineOf returns the line of a worker's list; 0 means unknown.
func (e *Error) lineOf(worker int) int {
	part := 1
	if e.part >= 0 && worker == e.Worker {
		part = e.part
	}
	return e.Lines[part][worker]
}

// in returns the file of an error, for the end of the error's text.
func (e *Error) in() string {
	if e.File == "" {
		return ""
	}
	return " (in " + cmp.Or(e.File, "the program") + ")"
}
