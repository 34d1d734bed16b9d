package check

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/machine"
)

// Error is a Program that must not start: who, where, what.
type Error struct {
	Program     string
	Worker      int // -1: no single worker
	Position    int // in the worker's list once lowered, from 0, over all parts; -1: no single place
	Instruction schedule.Instruction
	Why         string
	Waits       []machine.Need // of a Program that would block: who would wait for what
	File        string         // that it was read from, where a Source was checked
	Lines       [3]map[int]int // of the file, by part and worker

	part, at int                  // the place in the Program as it was given; -1: lowering made the instruction
	written  schedule.Instruction // as it stands there, with the ids of its part
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

// Locate finds the instruction at a position of q, which is p or p lowered, in the lists of p:
// lowering leaves computations in their order. Instructions that lowering has put in have no place.
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

// madeFor lists the kinds to look for in place of an instruction's kind: itself, or the computation that lowering added
// a transfer for.
func madeFor(k schedule.Kind) []schedule.Kind {
	switch k {
	case schedule.RF, schedule.SF:
		return []schedule.Kind{k, schedule.F, schedule.EV}
	case schedule.RB, schedule.SB:
		return []schedule.Kind{k, schedule.B, schedule.I}
	}
	return []schedule.Kind{k}
}

// place says where an error is: the line of the list where a file has lines, the part where
// there are several, and which instruction of it.
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

// lineOf is the line of the list of a worker that an error is about; 0 is none known.
func (e *Error) lineOf(worker int) int {
	part := 1
	if e.part >= 0 && worker == e.Worker {
		part = e.part
	}
	return e.Lines[part][worker]
}

// in is the file of an error, for its end.
func (e *Error) in() string {
	if e.File == "" {
		return ""
	}
	return " (in " + cmp.Or(e.File, "the program") + ")"
}
