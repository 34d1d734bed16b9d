package tuning

import (
	"bytes"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/tune/avgpipe"
)

// TestTheSettingThatWasPassedOver: in the first case M = 2 is chosen. M = 8 takes 0.98 of its time, and on a busy
// machine 1.15 of it. The text must say 2.0 % faster, since 1/0.98 = 1.020, and 15 % slower. In the second case no
// setting is faster than the chosen one, so the text has no such line.
func TestTheSettingThatWasPassedOver(t *testing.T) {
	cell := func(m int, stepS, strainedS float64) avgpipe.Cell {
		at := avgpipe.Degrees{MicroBatches: m, Pipelines: 1}
		return avgpipe.Cell{At: at, StrainedS: strainedS, Simulated: &avgpipe.Pipelined{
			Scored: avgpipe.Scored{At: at, StepS: stepS},
			Plan:   &plan.Plan{MicroBatches: m, MicroBatch: 16 / m, Stages: make([]plan.Stage, 1)}}}
	}
	for _, c := range []struct {
		fasterS float64
		want    string
	}{
		{0.98, "passed over M=8 N=1 is predicted to be 2.0 % faster, but 15.0 % slower while this machine is busy, when " +
			"each micro-batch can cost 4 times as much besides its samples memory"},
		{1.02, "why of 2 settings that fit this is predicted to be the fastest memory"},
	} {
		grid := []avgpipe.Cell{cell(8, c.fasterS, 1.38), cell(2, 1, 1.2)}
		result := &tuned{Result: &avgpipe.Result{Grid: grid, Best: grid[1].Simulated, Profiled: &avgpipe.Observation{}}}
		var out bytes.Buffer
		if err := result.print(&out); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(strings.Fields(out.String()), " "); !strings.Contains(got, c.want) {
			t.Errorf("got\n%s\nwant %q", out.String(), c.want)
		}
	}
}
