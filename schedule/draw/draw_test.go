package draw_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/schedule/draw"
)

// TestGrid: two workers' boxes, by hand: each begins with its text and goes on as =, a slot without one is a
// dot.
func TestGrid(t *testing.T) {
	got, err := draw.Grid(2, []draw.Span{{Worker: 1, Text: "1F0", Start: 1, End: 2}, {Text: "0F0", End: 1},
		{Text: "0B0", Start: 2, End: 4}}, 1)
	if want := "0: 0F0 .   0B0 ===\n1: .   1F0 .   .\n"; err != nil || got != want {
		t.Errorf("%v\n%swant\n%s", err, got, want)
	}
}

// TestRefused: what cannot be drawn is said.
func TestRefused(t *testing.T) {
	for want, spans := range map[string][]draw.Span{
		"is on worker 2; workers are 0 to 1": {{Worker: 2, Text: "x", End: 1}},
		"goes from 3 to 1":                   {{Text: "x", Start: 3, End: 1}},
		"there can be 65536":                 {{Text: "x", End: 1 << 17}},
	} {
		if _, err := draw.Grid(2, spans, 1); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want it to say %q", err, want)
		}
	}
	if _, err := draw.Grid(1<<14, []draw.Span{{Text: "x", End: 1 << 16}}, 1); err == nil ||
		!strings.Contains(err.Error(), "65536 columns of 16384 workers") {
		t.Errorf("more boxes than there is memory for: %v", err)
	}
}

// TestWideGrids: a drawing takes memory by its text.
func TestWideGrids(t *testing.T) {
	const columns = 1 << 13
	var spans []draw.Span
	for at := range columns {
		spans = append(spans, draw.Span{Text: fmt.Sprint(at), Start: float64(at), End: float64(at + 1)})
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	text, err := draw.Grid(1, spans, 1)
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; err != nil || took > 100*uint64(len(text)) {
		t.Errorf("%d bytes were taken for a text of %d; %v", took, len(text), err)
	}
}
