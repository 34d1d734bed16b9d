package scheduletest

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"
)

// Span is a box of a drawing: what a worker computed from when to when, in any unit of time.
type Span struct {
	Worker     int
	Text       string
	Start, End float64
}

// Grid draws spans as papers do, with a row for each worker and a column for each slot of time. A box begins with its
// text and continues with "="; "." is an empty slot. Boxes that begin and end between slots are only approximate: if
// two boxes share a slot, Grid draws the one that fills more of it.
func Grid(workers int, spans []Span, slot float64) (string, error) {
	end := 0.0
	for _, s := range spans {
		if s.Worker < 0 || s.Worker >= workers {
			return "", fmt.Errorf("schedule: drawing: %s is on worker %d; workers are 0 to %d", s.Text, s.Worker,
				workers-1)
		}
		if !(s.Start >= 0 && s.End >= s.Start) || math.IsInf(s.End, 0) {
			return "", fmt.Errorf("schedule: drawing: %s goes from %v to %v", s.Text, s.Start, s.End)
		}
		end = max(end, s.End)
	}
	columns := int(math.Ceil(end/slot - 1e-9))
	cells := make([]string, workers*columns)
	share := make([]float64, len(cells))
	ordered := slices.Clone(spans)
	slices.SortStableFunc(ordered, func(a, b Span) int { return cmp.Compare(a.Start, b.Start) })
	width := 1
	for _, s := range ordered {
		begun := false
		for c := int(s.Start/slot + 1e-9); c < columns && float64(c)*slot < s.End-1e-9*slot; c++ {
			part := min(s.End, float64(c+1)*slot) - max(s.Start, float64(c)*slot)
			at := s.Worker*columns + c
			if part <= share[at]+1e-12 {
				continue
			}
			share[at] = part
			cells[at] = "="
			if !begun {
				cells[at], begun = s.Text, true
				width = max(width, utf8.RuneCountInString(s.Text))
			}
		}
	}
	return rows(workers, columns, width, cells), nil
}

func rows(workers, columns, width int, cells []string) string {
	var b, line strings.Builder
	digits := len(fmt.Sprint(workers - 1))
	filled := strings.Repeat("=", width)
	for w := range workers {
		line.Reset()
		fmt.Fprintf(&line, "%*d:", digits, w)
		for _, text := range cells[w*columns : (w+1)*columns] {
			switch text {
			case "":
				text = "."
			case "=":
				text = filled
			}
			fmt.Fprintf(&line, " %-*s", width, text)
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	return b.String()
}
