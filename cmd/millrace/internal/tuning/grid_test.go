package tuning

import (
	"bytes"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/tune/avgpipe"
)

// TestAStopShowsWhatWasMeasured: of a large grid, only the settings that are best by simulation are listed. If the
// traversal was stopped, the settings that it had measured are listed too.
func TestAStopShowsWhatWasMeasured(t *testing.T) {
	result := &avgpipe.Result{Best: &avgpipe.Pipelined{}}
	for m := 1; m <= listed+3; m++ { // the last two settings, predicted to be slowest, were measured
		at := avgpipe.Degrees{MicroBatches: m, Pipelines: 1}
		cell := avgpipe.Cell{At: at, Simulated: &avgpipe.Pipelined{Scored: avgpipe.Scored{At: at, StepS: float64(m)}}}
		if m > listed+1 {
			cell.Measured = &avgpipe.Scored{At: at, StepS: 0.777}
		}
		result.Grid = append(result.Grid, cell)
	}
	for _, stopped := range []bool{true, false} {
		var out bytes.Buffer
		if err := (&tuned{Result: result, stopped: stopped}).printGrid(&out); err != nil {
			t.Fatal(err)
		}
		want, title := 0, "the best 12 of 15 settings by simulation (--grid lists all)"
		if stopped {
			want, title = 2, "the best 12 of 15 settings by simulation, and 2 more that were measured"
		}
		text := strings.Join(strings.Fields(out.String()), " ")
		if got := strings.Count(text, "777"); got != want || !strings.Contains(text, title) {
			t.Errorf("stopped %v: %d measured settings are listed, not %d:\n%s", stopped, got, want, out.String())
		}
	}
}
