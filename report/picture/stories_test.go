package picture

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/millrace-ml/millrace/internal/storytest"
	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/trace"
)

// TestStories checks, with testdata, how Timelines look on a screen.
func TestStories(t *testing.T) {
	storytest.Tell(t, "testdata/stories", func() storytest.World { return &storyWorld{} })
}

type storyWorld struct{ t *trace.Timeline }

// Do implements storytest.World.
//
//	timeline                                what each worker computes, one a line: instructions with their start and end
//	boxes columns=N [from=S to=S most=M]    drawn with names; of more than M workers, only the first and the last ones
//	letters columns=N [from=S to=S most=M]  drawn with a letter for each kind; most as for boxes
func (w *storyWorld) Do(t *testing.T, d *datadriven.TestData) (string, error) {
	if d.Cmd == "timeline" {
		w.t = &trace.Timeline{}
		for worker, line := range strings.Split(d.Input, "\n") {
			w.t.Workers++
			for event := range strings.SplitSeq(line, ",") {
				e := trace.Event{Worker: worker, Lane: trace.Compute}
				if _, err := fmt.Sscan(event, &e.Instruction, &e.StartS, &e.EndS); err != nil {
					return "", fmt.Errorf("%q: %w", event, err)
				}
				f, is := trace.ParseFields(e.Instruction)
				if !is {
					return "", fmt.Errorf("%q is no instruction", e.Instruction)
				}
				e.Kind = f.Kind
				w.t.Events = append(w.t.Events, e)
			}
		}
		return "", nil
	}
	f := Frame{}
	f.FromS, f.ToS = w.t.Extent()
	d.ScanArgs(t, "columns", &f.Screen.Columns)
	d.MaybeScanArgs(t, "from", &f.FromS)
	d.MaybeScanArgs(t, "to", &f.ToS)
	f.Clock = ClockFor(f.ToS - f.FromS)
	draw := map[string]func(*trace.Timeline, Frame) *Drawing{"boxes": Boxes, "letters": Letters}[d.Cmd]
	if draw == nil {
		return "", fmt.Errorf("no command %q", d.Cmd)
	}
	drawing := draw(w.t, f)
	most := 32
	d.MaybeScanArgs(t, "most", &most)
	text := drawing.Text(most) + strings.ReplaceAll(drawing.Legend(), "\u00a0", " ")
	for line := range strings.Lines(text) {
		if n := terminal.Width(strings.TrimSuffix(line, "\n")); n > f.Screen.Columns {
			t.Errorf("%s: a line of %d columns on a screen of %d: %s", d.Pos, n, f.Screen.Columns, line)
		}
	}
	if !drawing.Whole() {
		text += fmt.Sprintf("drawn to %g s; all of it would take %d columns\n", drawing.ToS, drawing.Columns)
	}
	return text, nil
}
