package picture

import (
	"math"
	"strings"

	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/trace"
)

// Letters draws all of a Frame. Each column has the letter of the kind that takes most of it, or "·" if the worker is
// idle for more than half of it. Columns after the Timeline's end are empty. Time is divided into slots (slotOf). If
// all computations begin and end where slots do, and there are enough columns, all slots have the same number of
// columns.
func Letters(t *trace.Timeline, f Frame) *Drawing {
	d := &Drawing{screen: f.Screen, ToS: f.ToS, Columns: f.Screen.Columns, gutter: gutterOf(t)}
	columns := max(1, f.Screen.Columns-d.gutter)
	each := (f.ToS - f.FromS) / float64(columns)
	if !(each > 0) {
		d.rows = make([]string, t.Workers)
		return d
	}
	events := f.computations(t)
	d.kinds = kindsOf(events)
	if slot := slotOf(events); slot >= each && f.regular(events, slot) {
		each, d.Exact = slot/math.Floor(slot/each), true
		columns = int(math.Round((f.ToS - f.FromS) / each))
	}
	names := f.letters()
	took := make([][]float64, lines(t, events)) // by line, column and letter
	for w := range took {
		took[w] = make([]float64, columns*len(names))
	}
	for _, e := range events {
		kind := indexOf(e.Kind)
		if kind < 0 {
			continue
		}
		if f.Own != nil && !f.Own(e) {
			kind, d.near = kind+len(shown), true
		}
		from, to := max(f.FromS, e.StartS)-f.FromS, min(f.ToS, e.EndS)-f.FromS
		for c := min(columns-1, int(from/each)); c < columns && float64(c)*each < to; c++ {
			took[lineOf(t, e)][c*len(names)+kind] += min(to, float64(c+1)*each) - max(from, float64(c)*each)
		}
	}
	_, end := t.Extent()
	var rows []string
	for w := range took {
		cells := make([]string, columns)
		for c := range cells {
			most, sum := 0, 0.0
			for k, s := range took[w][c*len(names) : (c+1)*len(names)] {
				sum += s
				if s > took[w][c*len(names)+most] {
					most = k
				}
			}
			switch from := f.FromS + float64(c)*each; {
			case sum*2 >= each*(1-1e-9):
				cells[c] = names[most]
			case from >= end:
				cells[c] = " "
			default:
				cells[c] = Idle
			}
		}
		rows = append(rows, d.painted(cells))
	}
	d.put(t, rows)
	d.EachS = each
	d.Axis = f.axis(f.ToS, columns, d.gutter, func(timeS float64) int { return int((timeS-f.FromS)/each + 1e-6) })
	return d
}

// letters returns the letters of the kinds that are drawn, and then the letters for the same kinds in other steps.
func (f Frame) letters() (names []string) {
	for _, kind := range shown {
		names = append(names, kind[:1])
	}
	if f.Own == nil {
		return names
	}
	for _, kind := range shown {
		names = append(names, strings.ToLower(kind[:1]))
	}
	return names
}

// regular reports whether the Frame ends, and each computation begins and ends, where slots of this length begin or
// end.
func (f Frame) regular(events []*trace.Event, slot float64) bool {
	on := func(timeS float64) bool {
		n := (timeS - f.FromS) / slot
		return math.Abs(n-math.Round(n)) < 1e-6
	}
	for _, e := range events {
		if !on(e.StartS) || !on(e.EndS) {
			return false
		}
	}
	return on(f.ToS)
}

// indexOf returns a kind's position in the list `shown`; -1 if it is not there.
func indexOf(kind string) int {
	for k, name := range shown {
		if name == kind {
			return k
		}
	}
	return -1
}

// painted joins letters, with one colour code for each run of equal letters.
func (d *Drawing) painted(cells []string) string {
	var b strings.Builder
	for i := 0; i < len(cells); {
		j := i
		for j < len(cells) && cells[j] == cells[i] {
			j++
		}
		run := strings.Join(cells[i:j], "")
		switch cells[i] {
		case " ":
			b.WriteString(run)
		case Idle:
			b.WriteString(d.screen.Paint(terminal.Faint, run))
		case "E":
			b.WriteString(d.screen.Paint(styleOf("EV"), run))
		case strings.ToLower(cells[i]):
			b.WriteString(d.screen.Paint(terminal.Faint, run))
		default:
			b.WriteString(d.screen.Paint(styleOf(cells[i]), run))
		}
		i = j
	}
	return strings.TrimRight(b.String(), " ")
}
