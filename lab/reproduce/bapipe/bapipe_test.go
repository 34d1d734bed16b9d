package bapipe

import (
	"math"
	"testing"

	"github.com/millrace-ml/millrace/lab/reproduce/table"
	"github.com/millrace-ml/millrace/lab/reproduce/tabletest"
)

// Closed forms are met to the last digit shown.
func TestBaPipesFormulasHold(t *testing.T) {
	for _, name := range []string{"bapipe-table1", "bapipe-table2"} {
		for _, r := range tabletest.Run(t, name).Rows {
			if r.Difference != "none" {
				t.Errorf("%s: %s: paper %s, ours %s", name, r.What, r.Paper, r.Ours)
			}
		}
	}
}

// TestBoards: the presets are Table V's boards to the last digit; Table VI's signs, orders and schedules are the
// paper's and its values within Near. Data parallelism whose weights pass through memory less often loses nothing to
// the pipeline, which is where the paper has its gain from (§4.3).
func TestBoards(t *testing.T) {
	for _, r := range tabletest.Run(t, "bapipe-table5").Rows {
		if r.Difference != "none" && r.Difference != "same" {
			t.Errorf("%s: paper %s, ours %s", r.What, r.Paper, r.Ours)
		}
	}
	six := tabletest.Run(t, "bapipe-table6")
	a := six.Agreement()
	for what, c := range map[string]table.Count{"values": a.Values, "signs": a.Signs, "orders": a.Orders,
		"words": a.Words} {
		if c.Same != c.Of || c.Of == 0 {
			t.Errorf("%s: %d of %d", what, c.Same, c.Of)
		}
	}
	for _, r := range six.Rows {
		for _, b := range r.Ablations {
			if b.Assumption == "data parallelism in micro-batches of 32" && b.Value > 1.02 {
				t.Errorf("%s: BaPipe is still %v times as fast", r.What, b.Value)
			}
			if b.Assumption == "micro-batches of 1 fill all slices" && r.Values == nil && math.Abs(b.Value-1) > 1e-9 {
				t.Errorf("%s: %v where nothing is to be filled", r.What, b.Value)
			}
		}
	}
}
