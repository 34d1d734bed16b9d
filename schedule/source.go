package schedule

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Source is a Program with the places that its lists have in the file it was read from, so that
// what is wrong with it can be said by line.
type Source struct {
	Program *Program
	File    string
	lines   [3]map[int]int // by part and worker: the line of a list, from 1
}

// parts are the names of a Program's parts, in order.
var parts = [3]string{"prologue", "body", "epilogue"}

// ReadSource reads a Program in any form that Read reads; errors name the file.
func ReadSource(file string, text []byte) (*Source, error) {
	p, err := Read(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("%w (in %s)", err, file)
	}
	s := &Source{Program: p, File: file}
	switch {
	case bytes.HasPrefix(bytes.TrimSpace(text), []byte("{")):
		// A list of a JSON file has no line of its own; it is named by its part.
	case bytes.HasPrefix(text, []byte(textHeader)):
		s.textLines(string(text))
	default:
		s.torchLines(string(text))
	}
	return s, nil
}

// textLines finds the lists of the text form.
func (s *Source) textLines(text string) {
	part, number := -1, 0
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimSpace(line)
		if at := slices.Index(parts[:], line); at >= 0 {
			part = at
			s.lines[part] = map[int]int{}
			continue
		}
		worker, _, ok := strings.Cut(line, ":")
		if w, err := strconv.Atoi(worker); ok && err == nil && part >= 0 {
			s.lines[part][w] = number
		}
	}
}

// torchLines finds the ranks of PyTorch's form: a line for each, blank lines apart.
func (s *Source) torchLines(text string) {
	s.lines[1] = map[int]int{}
	worker, number := 0, 0
	for line := range strings.Lines(text) {
		number++
		if strings.TrimSpace(line) != "" {
			s.lines[1][worker] = number
			worker++
		}
	}
}

// Check is Check of the Program, and CheckHeld where a worker may hold only so many
// micro-batches (0 is any number); errors name lines and the file.
func (s *Source) Check(held int) (Report, error) {
	rep, err := Check(s.Program)
	if err == nil && held > 0 {
		err = CheckHeld(s.Program, held)
	}
	var wrong *CheckError
	if !errors.As(err, &wrong) {
		return rep, err
	}
	wrong.File, wrong.lines = s.File, s.lines
	return rep, wrong
}

// Playable is Playable of the Program; errors name the file.
func (s *Source) Playable() error {
	err := s.Program.Playable()
	var wrong *CheckError
	if errors.As(err, &wrong) {
		wrong.File = s.File
	}
	return err
}

// TooMuch is the refusal of a Program of which a worker cannot carry out an instruction, with absolute
// ids, for want of memory. lowered is the Program as it would run, with as many repetitions as it would.
func (s *Source) TooMuch(lowered *Program, worker int, in Instruction, why string) error {
	e := &CheckError{Program: s.Program.Name, Worker: worker, Position: -1, Instruction: in, Why: why, File: s.File, lines: s.lines}
	at := 0
	lowered.Walk(worker, func(other Instruction) bool {
		if other == in {
			e.Position = at
		}
		at++
		return e.Position < 0
	})
	written := *s.Program
	written.Repeat = lowered.Repeat
	e.locate(&written, lowered)
	return e
}

// CheckHeld refuses a Program in which a worker holds more than so many micro-batches between
// their forward and their last gradient, counting those of each of its stages. It names the
// forward that is one too many. The Program has passed Check.
func CheckHeld(p *Program, most int) error {
	for w := range p.Workers {
		held, at := 0, -1
		var wrong error
		p.Walk(w, func(in Instruction) bool {
			at++
			switch in.Kind {
			case F:
				if held++; held > most {
					e := &CheckError{Program: p.Name, Worker: w, Position: at, Instruction: in, Why: fmt.Sprintf("it would hold %d micro-batches at once; the limit is %d", held, most)}
					e.locate(p, p)
					wrong = e
					return false
				}
			case B, W:
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

// locate finds the instruction at a position of q, which is p or p lowered, in the lists of p:
// lowering leaves computations in their order. Instructions that lowering has put in have no place.
func (e *CheckError) locate(p, q *Program) {
	e.part, e.at = -1, -1
	if e.Worker < 0 || e.Worker >= q.Workers || e.Position < 0 {
		return
	}
	times, position := 0, 0
	q.Walk(e.Worker, func(in Instruction) bool {
		if in == e.Instruction {
			times++
		}
		position++
		return position <= e.Position
	})
	for _, k := range madeFor(e.Instruction.Kind) {
		want := e.Instruction.as(k)
		left := times
		for c := NewCursor(p, e.Worker); ; c.Advance() {
			in, ok := c.Head()
			if !ok {
				break
			}
			if in == want {
				if left--; left == 0 {
					e.part, e.at, e.Instruction, e.written = c.part, c.at, want, c.list[c.at]
					return
				}
			}
		}
	}
}

// madeFor is what an instruction is found as: itself, or the computation that lowering has
// put a transfer beside.
func madeFor(k Kind) []Kind {
	switch k {
	case RF, SF:
		return []Kind{k, F, EV}
	case RB, SB:
		return []Kind{k, B, I}
	}
	return []Kind{k}
}

// place says where an error is: the line of the list where a file has lines, the part where
// there are several, and which instruction of it.
func (e *CheckError) place() string {
	var b strings.Builder
	if e.Worker >= 0 {
		fmt.Fprintf(&b, ", worker %d", e.Worker)
		if line := e.lineOf(e.Worker); line > 0 {
			fmt.Fprintf(&b, ", line %d", line)
		} else if e.part >= 0 && e.part != 1 {
			fmt.Fprintf(&b, ", %s", parts[e.part])
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
func (e *CheckError) lineOf(worker int) int {
	part := 1
	if e.part >= 0 && worker == e.Worker {
		part = e.part
	}
	return e.lines[part][worker]
}

// in is the file of an error, for its end.
func (e *CheckError) in() string {
	if e.File == "" {
		return ""
	}
	return " (in " + cmp.Or(e.File, "the program") + ")"
}
