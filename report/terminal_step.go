package report

import (
	"fmt"
	"strings"

	"github.com/millrace-ml/millrace/trace"
)

// steps draws the predicted and the measured step on one axis.
func (d *drawing) steps() {
	sim, simName := shownStep(d.in.Simulated, 0)
	run, runName := d.measuredStep()
	if sim == nil && run == nil {
		return
	}
	length := 0.0
	for _, t := range []*trace.Timeline{sim, run} {
		if t != nil {
			_, end := t.Extent()
			length = max(length, end)
		}
	}
	if length <= 0 {
		return
	}
	d.section("Step", "F forward  B backward  W weights  U update  · idle")
	for _, side := range []struct {
		title, name string
		t           *trace.Timeline
	}{{"predicted", simName, sim}, {"measured", runName, run}} {
		if side.t == nil {
			continue
		}
		_, end := side.t.Extent()
		d.line("  %s", d.ink.paint(faint, fmt.Sprintf("%s %s, %s", side.title, side.name, trace.Seconds(end))))
		rows := drawStep(side.t, length, terminalWidth-8)
		d.byHost(len(rows), func(w int) { d.line("  w%-3d  %s", w, d.colour(rows[w])) })
	}
}

func (d *drawing) measuredStep() (*trace.Timeline, string) {
	if d.in.Measured == nil {
		return nil, ""
	}
	return shownStep(d.in.Measured, d.in.skip(len(d.in.Measured.Steps)))
}

// shownStep is the median step cut out, or all of a Timeline that marks none.
func shownStep(t *trace.Timeline, skip int) (*trace.Timeline, string) {
	if t == nil {
		return nil, ""
	}
	m, ok := t.MedianStep(skip)
	if !ok {
		start, end := t.Extent()
		return t.Window(start, end), "run"
	}
	what := ""
	switch {
	case len(t.Kept(skip)) < len(t.Settled(skip)):
		what = "of those kept, nearest to the median"
	case len(t.Steps) > 1:
		what = "median"
	}
	return t.Window(m.StartS, m.EndS), stepName(m.Step, what)
}

// stepName is "step 17" or "step 17 (median)".
func stepName(step int, what string) string {
	if what == "" {
		return fmt.Sprintf("step %d", step)
	}
	return fmt.Sprintf("step %d (%s)", step, what)
}

// drawStep is a row of letters for each worker: in each column the kind that takes most
// of its time, or a dot where the worker mostly idled.
func drawStep(t *trace.Timeline, length float64, columns int) []string {
	rows := make([][]byte, t.Workers)
	most := make([][]float64, t.Workers)
	idle := make([][]float64, t.Workers)
	each := length / float64(columns)
	_, end := t.Extent()
	for w := range rows {
		rows[w] = []byte(strings.Repeat(".", columns))
		most[w], idle[w] = make([]float64, columns), make([]float64, columns)
		for c := range idle[w] {
			idle[w][c] = each
		}
	}
	for i := range t.Events {
		e := &t.Events[i]
		if e.Lane != trace.Compute || !trace.IsBusy(e.Kind) {
			continue
		}
		for c := max(0, int(e.StartS/each)); c < columns && float64(c)*each < e.EndS; c++ {
			in := min(e.EndS, float64(c+1)*each) - max(e.StartS, float64(c)*each)
			idle[e.Worker][c] -= in
			if in > most[e.Worker][c] {
				most[e.Worker][c], rows[e.Worker][c] = in, e.Kind[0]
			}
		}
	}
	out := make([]string, len(rows))
	for w, row := range rows {
		for c := range row {
			if idle[w][c] > each/2 {
				row[c] = '.'
			}
			if float64(c)*each >= end {
				row[c] = ' '
			}
		}
		out[w] = string(row)
	}
	return out
}

// colour paints a row of drawStep, a run of equal letters at a time.
func (d *drawing) colour(row string) string {
	var b strings.Builder
	for i := 0; i < len(row); {
		j := i
		for j < len(row) && row[j] == row[i] {
			j++
		}
		s := strings.ReplaceAll(row[i:j], ".", "·")
		if row[i] == ' ' {
			b.WriteString(s)
		} else {
			b.WriteString(d.ink.paint(codeOf(row[i]), s))
		}
		i = j
	}
	return b.String()
}
