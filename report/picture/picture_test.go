package picture

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/trace"
)

// step returns the Timeline of 1F1B with three micro-batches on two workers. Forwards take 1 s and backwards 2 s.
func step() *trace.Timeline {
	t := &trace.Timeline{Workers: 2}
	add := func(worker int, instruction, kind string, from, to float64) {
		t.Events = append(t.Events, trace.Event{Worker: worker, Lane: trace.Compute, Instruction: instruction, Kind: kind,
			StartS: from, EndS: to})
	}
	for m, at := range []float64{0, 1, 5} {
		add(0, fmt.Sprintf("0F%d", m), "F", at, at+1)
	}
	for m, at := range []float64{3, 6, 9} {
		add(0, fmt.Sprintf("0B%d", m), "B", at, at+2)
	}
	for m, at := range []float64{1, 4, 7} {
		add(1, fmt.Sprintf("1F%d", m), "F", at, at+1)
		add(1, fmt.Sprintf("1B%d", m), "B", at+1, at+3)
	}
	return t
}

// TestBoxes: if there is room, everything is drawn, exact to the column. Otherwise the beginning is drawn, with a note.
func TestBoxes(t *testing.T) {
	all := Boxes(step(), Frame{Screen: terminal.Screen{Columns: 60}, ToS: 11})
	const want = "" +
		"worker  0              5              10\n" +
		"     0  F0 F1 ·  B0 == F2 B1 == ·  B2 ==\n" +
		"     1  ·  F0 B0 == F1 B1 == F2 B2 == ·\n"
	if got := all.Text(32); got != want || !all.Whole() {
		t.Errorf("whole %v:\n%swant\n%s", all.Whole(), got, want)
	}
	if legend := all.Legend(); legend != "F forward, B backward, = goes on, · idle\nF1 is forward, micro-batch 1\n" {
		t.Error(legend)
	}
	legend := Boxes(step(), Frame{Screen: terminal.Screen{Columns: 60}, ToS: 3}).Legend()
	if strings.Contains(legend, "=") {
		t.Errorf("before time 3 no box has a second column: %s", legend)
	}
	cut := Boxes(step(), Frame{Screen: terminal.Screen{Columns: 30}, ToS: 11})
	const first = "" +
		"worker  0              5\n" +
		"     0  F0 F1 ·  B0 == F2 B1…\n" +
		"     1  ·  F0 B0 == F1 B1 ==…\n"
	if got := cut.Text(32); got != first || cut.Whole() || cut.ToS != 7 || cut.Columns != 40 {
		t.Errorf("whole %v, to %v, needs %d:\n%swant\n%s", cut.Whole(), cut.ToS, cut.Columns, got, first)
	}
}

// TestBoxesNameStages: if workers have several stages, a box names its stage. If there are several pipelines, it names
// its pipeline by a letter.
func TestBoxesNameStages(t *testing.T) {
	for _, c := range []struct{ first, second, want, legend string }{
		{"0F0", "3F1", "0F0 3F1", "3F1 is stage 3, forward, micro-batch 1"},
		{"0F0", "p1/0F1", "aF0 bF1", "bF1 is pipeline b, forward, micro-batch 1"},
		{"0F0", "0F1@r1", "F0 F1", "F1 is forward, micro-batch 1"},
	} {
		tl := &trace.Timeline{Workers: 1, Events: []trace.Event{
			{Lane: trace.Compute, Instruction: c.first, Kind: "F", EndS: 1},
			{Lane: trace.Compute, Instruction: c.second, Kind: "F", StartS: 1, EndS: 2}}}
		d := Boxes(tl, Frame{Screen: terminal.Screen{Columns: 80}, ToS: 2})
		if got := strings.TrimSpace(strings.TrimPrefix(d.Row(0), "     0")); got != c.want ||
			!strings.Contains(d.Legend(), c.legend) {
			t.Errorf("%s %s: %q, %q", c.first, c.second, got, d.Legend())
		}
	}
}

// TestLetters: each slot has the same number of columns if possible; the axis has the clock's unit.
func TestLetters(t *testing.T) {
	d := Letters(step(), Frame{Screen: terminal.Screen{Columns: 40}, Clock: Clock{"ms", 1e3}, ToS: 11})
	const want = "" +
		"worker  0 ms      5000      10000\n" +
		"     0  FFFF··BBBBFFBBBB··BBBB\n" +
		"     1  ··FFBBBBFFBBBBFFBBBB··\n"
	if got := d.Text(32); got != want || !d.Exact || d.EachS != 0.5 {
		t.Errorf("exact %v, each %v:\n%swant\n%s", d.Exact, d.EachS, got, want)
	}
}

// TestManyWorkers: if there are more workers than rows, the first and the last are drawn, with a note.
func TestManyWorkers(t *testing.T) {
	tl := &trace.Timeline{Workers: 9}
	for w := range 9 {
		tl.Events = append(tl.Events, trace.Event{Worker: w, Lane: trace.Compute, Instruction: "0F0", Kind: "F", EndS: 1})
	}
	got := Boxes(tl, Frame{Screen: terminal.Screen{Columns: 80}, ToS: 1}).Text(4)
	const want = "worker  0\n     0  F0\n     1  F0\n        … 5 more workers, 2 to 6\n     7  F0\n     8  F0\n"
	if got != want {
		t.Errorf("%swant\n%s", got, want)
	}
}

// TestDrawingsFit: no line of a drawing is wider than the screen, also with colours. A column has the letter of the
// kind that takes most of it, which is checked at many moments.
func TestDrawingsFit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tl := &trace.Timeline{Workers: rapid.IntRange(1, 3).Draw(t, "workers")}
		end := 0.0
		for w := range tl.Workers {
			at := 0.0
			for m := range rapid.IntRange(1, 12).Draw(t, "events") {
				at += float64(rapid.IntRange(0, 3).Draw(t, "gap"))
				to := at + float64(rapid.IntRange(1, 4).Draw(t, "length"))
				kind := rapid.SampledFrom([]string{"F", "B", "I", "W", "U", "EV"}).Draw(t, "kind")
				tl.Events = append(tl.Events, trace.Event{Worker: w, Lane: trace.Compute, Kind: kind,
					Instruction: fmt.Sprintf("%d%s%d", rapid.IntRange(0, 2).Draw(t, "stage"), kind, m), StartS: at, EndS: to})
				at, end = to, max(end, to)
			}
		}
		f := Frame{Screen: terminal.Screen{Columns: rapid.IntRange(terminal.Narrow, 120).Draw(t, "columns"),
			Colour: rapid.Bool().Draw(t, "colour")}, ToS: end}
		boxes, letters := Boxes(tl, f), Letters(tl, f)
		for line := range strings.Lines(boxes.Text(2) + letters.Text(2) + Legend(boxes, letters)) {
			if n := terminal.Width(strings.TrimSuffix(line, "\n")); n > f.Screen.Columns {
				t.Fatalf("%d columns of %d: %q", n, f.Screen.Columns, line)
			}
		}
		f.Screen.Colour = false
		letters = Letters(tl, f)
		for w := range tl.Workers {
			row := []rune(strings.TrimSuffix(letters.Row(w), "\n"))[gutterOf(tl):]
			for c, got := range row {
				counts := map[rune]int{}
				const moments = 64
				for k := range moments {
					counts[at(tl, w, (float64(c)+(float64(k)+.5)/moments)*letters.EachS, end)]++
				}
				most := 0
				for _, n := range counts {
					most = max(most, n)
				}
				if busy := moments - counts['·'] - counts[' ']; got == '·' || got == ' ' {
					if busy > moments/2+2 {
						t.Fatalf("worker %d, column %d: idle, and it is busy in %d of %d moments", w, c, busy, moments)
					}
				} else if counts['·'] > moments/2+2 || slices.Max([]int{counts['F'], counts['B'], counts['I'], counts['W'],
					counts['U'], counts['E']}) > counts[got]+2 {
					t.Fatalf("worker %d, column %d: %c of %v", w, c, got, counts)
				}
			}
		}
	})
}

// at returns the letter of the computation that a worker does at a moment.
func at(t *trace.Timeline, worker int, timeS, endS float64) rune {
	for _, e := range t.Events {
		if e.Worker == worker && e.StartS <= timeS && timeS < e.EndS {
			return rune(e.Kind[0])
		}
	}
	return '·'
}

// TestWorkOfOtherStepsIsInLowerCase: the worker forwards two micro-batches of the drawn step while the update of the
// step before ends. On a terminal the letters of that update are faint. If a drawing has no other steps, its legend
// does not mention them.
func TestWorkOfOtherStepsIsInLowerCase(t *testing.T) {
	tl := &trace.Timeline{Workers: 2}
	for i, kind := range []string{"F", "F", "B"} {
		at := float64(i)
		tl.Events = append(tl.Events,
			trace.Event{Worker: 0, Lane: trace.Compute, Instruction: fmt.Sprintf("0%s%d", kind, i), Kind: kind, Step: 7,
				StartS: at, EndS: at + 1})
	}
	tl.Events = append(tl.Events, trace.Event{Worker: 1, Lane: trace.Compute, Instruction: "1U0", Kind: "U", Step: 6,
		StartS: 0, EndS: 2})
	f := Frame{Screen: terminal.Screen{Columns: 11}, ToS: 3, Own: func(e *trace.Event) bool { return e.Step == 7 }}
	own := Letters(tl, f)
	if got := own.Row(0) + own.Row(1); got != "     0  FFB\n     1  uu·\n" {
		t.Errorf("got\n%s", got)
	}
	if got := own.Legend(); !strings.Contains(strings.Join(strings.Fields(got), " "), "U update, u of a step beside it") {
		t.Errorf("the legend is %q", got)
	}
	f.Screen.Colour = true
	if got := Letters(tl, f).Row(1); !strings.Contains(got, f.Screen.Paint(terminal.Faint, "uu")) {
		t.Errorf("in colour it is %q", got)
	}
	f.Own = nil
	if all := Letters(tl, f); strings.Contains(all.Row(1), "u") || strings.Contains(all.Legend(), "beside") {
		t.Errorf("without other steps:\n%s%s", all.Row(1), all.Legend())
	}
}

// TestLabelsOfManyWorkersAreInTheirColumn: the label of workers 100 to 399, "100–399", takes seven columns, one more
// than the heading "worker". The axis and the drawings of all rows then begin two columns after the labels.
func TestLabelsOfManyWorkersAreInTheirColumn(t *testing.T) {
	tl := &trace.Timeline{Workers: 400, Events: []trace.Event{
		{Worker: 7, Lane: trace.Compute, Instruction: "0F0", Kind: "F", StartS: 0, EndS: 1},
		{Worker: 399, Lane: trace.Compute, Instruction: "0F1", Kind: "F", StartS: 1, EndS: 2}}}
	f := Frame{Screen: terminal.Screen{Columns: 40}, ToS: 2}
	for name, d := range map[string]*Drawing{"letters": Letters(tl, f), "boxes": Boxes(tl, f)} {
		axis, row, many := []rune(d.Axis), []rune(d.Row(7)), []rune(d.Rows(100, 399))
		if string(axis[:10]) != " worker  0" || string(row[:9]) != "      7  " || row[9] != 'F' ||
			string(many[:9]) != "100–399  " || many[9] != '·' {
			t.Errorf("%s:\n%s%s%s", name, d.Axis, d.Row(7), d.Rows(100, 399))
		}
		if d.Columns > 40 {
			t.Errorf("%s: %d columns are needed", name, d.Columns)
		}
	}
}
