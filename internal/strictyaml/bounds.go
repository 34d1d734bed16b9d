package strictyaml

import (
	"bytes"
	"fmt"
)

// These bounds are checked before the YAML library reads a text. The library's time and memory grow with the squares of
// these numbers.
const (
	maxMarks = 1 << 16 // characters with a meaning in YAML
	maxKeys  = 1 << 12 // lines of one mapping
)

// bounded returns an error for a text on which the library would spend much time or memory. It also counts marks in
// quoted text and comments, so it may count too much, but never too little.
func bounded(text []byte) error {
	marks, open := 0, 0
	var block mapping
	line := 0
	for row := range bytes.Lines(bytes.ReplaceAll(text, []byte("\r"), []byte("\n"))) {
		line++
		for _, c := range row {
			switch c {
			case '[', '{':
				if open++; open > maxDepth {
					return fmt.Errorf("line %d: it is nested deeper than %d levels", line, maxDepth)
				}
				marks++
			case ']', '}':
				open = max(0, open-1)
				marks++
			case ',', ':', '-', '?', '\'', '"', '*', '&', '!', '|', '>', '%', '#', '\n':
				marks++
			case '<', '@', '`':
				marks += 4 // if such a character is in a wrong place, the library does not stop there
			}
		}
		if dashes := bytes.Count(row[:len(row)-len(bytes.TrimLeft(row, " -"))], []byte("-")); dashes > maxDepth {
			return fmt.Errorf("line %d: it is nested deeper than %d levels", line, maxDepth)
		}
		if marks > maxMarks {
			return fmt.Errorf("line %d: the text has more than %d marks of YAML, and no more are read", line, maxMarks)
		}
		if keys := block.add(row); keys > maxKeys {
			return fmt.Errorf("line %d: a mapping has more than %d lines, and no more are read", line, maxKeys)
		}
	}
	return nil
}

// mapping counts the keys of each mapping: the lines of one indentation, with no less indented line between them.
type mapping struct{ indents, lines []int }

func (m *mapping) add(row []byte) int {
	said := bytes.TrimLeft(row, " -") // a dash begins another mapping
	if said = bytes.TrimSpace(said); len(said) == 0 || said[0] == '#' {
		return 0
	}
	outer := len(row) - len(bytes.TrimLeft(row, " "))
	m.leave(outer)
	inner := len(row) - len(bytes.TrimLeft(row, " -"))
	if inner > outer {
		m.leave(outer + 1)
	}
	if n := len(m.indents); n == 0 || m.indents[n-1] < inner {
		m.indents, m.lines = append(m.indents, inner), append(m.lines, 0)
	}
	m.lines[len(m.lines)-1]++
	return m.lines[len(m.lines)-1]
}

// leave forgets the mappings that are indented more than `indent`.
func (m *mapping) leave(indent int) {
	for n := len(m.indents); n > 0 && m.indents[n-1] > indent; n-- {
		m.indents, m.lines = m.indents[:n-1], m.lines[:n-1]
	}
}
