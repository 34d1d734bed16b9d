package main

import (
	"fmt"
	"strings"

	"github.com/millrace-ml/millrace/trace"
)

// grid draws a Timeline's computations as papers do: a line a worker, time to the right,
// the micro-batch in each box, forwards plain and backwards in brackets.
func grid(t *trace.Timeline, columns int) string {
	end := 0.0
	shortest := 0.0
	for _, e := range t.Events {
		if e.Lane != trace.Compute || e.EndS <= e.StartS {
			continue
		}
		end = max(end, e.EndS)
		if d := e.EndS - e.StartS; shortest == 0 || d < shortest {
			shortest = d
		}
	}
	if end == 0 {
		return ""
	}
	// Four columns for the shortest box where that fits, fewer where it does not.
	scale := min(4/shortest, float64(columns*4)/end)
	var b strings.Builder
	for w := range t.Workers {
		line := []rune(strings.Repeat(".", int(end*scale+0.5)))
		for _, e := range t.Events {
			if e.Worker != w || e.Lane != trace.Compute || e.EndS <= e.StartS {
				continue
			}
			from, to := int(e.StartS*scale+0.5), min(int(e.EndS*scale+0.5), len(line))
			box(line[from:to], e)
		}
		fmt.Fprintf(&b, "%4d |%s|\n", w, string(line))
	}
	return b.String()
}

// box fills the cells of one computation.
func box(cells []rune, e trace.Event) {
	if len(cells) == 0 {
		return
	}
	left, right, fill := ' ', ' ', ' '
	if e.Kind != "F" {
		left, right = '[', ']'
	}
	for i := range cells {
		cells[i] = fill
	}
	_, micro, _ := strings.Cut(e.Instruction, e.Kind)
	micro, _, _ = strings.Cut(micro, "@")
	cells[0] = left
	if len(cells) > 1 {
		cells[len(cells)-1] = right
	}
	for i, r := range micro {
		if at := (len(cells)-len(micro)+1)/2 + i; at >= 0 && at < len(cells) {
			cells[at] = r
		}
	}
}
