package exchange

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/check"
)

// Source is a Program with the line numbers of its lists in the file from which it was read. Errors use them.
type Source struct {
	Program *schedule.Program
	File    string
	lines   [3]map[int]int // by part and worker: the line of a list, from 1
}

// ReadSource reads a Program in any form that Read reads; errors name the file.
func ReadSource(file string, text []byte) (*Source, error) {
	text = bytes.TrimPrefix(text, []byte(byteOrderMark))
	p, err := Read(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("%w (in %s)", err, file)
	}
	s := &Source{Program: p, File: file}
	switch {
	case bytes.HasPrefix(bytes.TrimSpace(text), []byte("{")):
		// A list of a JSON file has no line of its own. Errors name the part instead.
	case bytes.HasPrefix(text, []byte(schedule.TextHeader)):
		s.textLines(string(text))
	default:
		s.torchLines(string(text))
	}
	return s, nil
}

// textLines finds the lists of the text form.
func (s *Source) textLines(text string) {
	part, number, parts := -1, 0, schedule.PartNames()
	for line := range strings.Lines(text) {
		number++
		line = schedule.TextLine(line)
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

// torchLines finds the ranks of PyTorch's form: each line that is not blank is a rank.
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

// Check runs check.Check, and check.Held if `held` is over 0. `held` is the most micro-batches that a worker may hold;
// 0 means no limit. Errors name the file and line.
func (s *Source) Check(held int) (check.Report, error) {
	rep, err := check.Check(s.Program)
	if err == nil && held > 0 {
		err = check.Held(s.Program, held)
	}
	var wrong *check.Error
	if !errors.As(err, &wrong) {
		return rep, err
	}
	wrong.File, wrong.Lines = s.File, s.lines
	return rep, wrong
}

// Playable runs check.Playable; errors name the file.
func (s *Source) Playable() error {
	err := check.Playable(s.Program)
	var wrong *check.Error
	if errors.As(err, &wrong) {
		wrong.File = s.File
	}
	return err
}

// TooMuch returns the error for a worker that lacks memory for the instruction `in`. The error says where in the file
// the instruction is. `in` has absolute ids. `lowered` is the Program as it would run, with all repetitions.
func (s *Source) TooMuch(lowered *schedule.Program, worker int, in schedule.Instruction, why string) error {
	e := &check.Error{Program: s.Program.Name, Worker: worker, Position: -1, Instruction: in, Why: why, File: s.File,
		Lines: s.lines}
	at := 0
	lowered.Walk(worker, func(other schedule.Instruction) bool {
		if other == in {
			e.Position = at
		}
		at++
		return e.Position < 0
	})
	written := *s.Program
	written.Repeat = lowered.Repeat
	e.Locate(&written, lowered)
	return e
}

// OutOfOrder runs check.OutOfOrder, and adds the line and the file to its error. It returns nil if every sum is
// computed in ascending order.
func (s *Source) OutOfOrder(statistics bool) error {
	wrong := check.OutOfOrder(s.Program, statistics)
	if wrong == nil {
		return nil
	}
	wrong.File, wrong.Lines = s.File, s.lines
	return wrong
}
