package sim

import (
	"math"
	"testing"

	"github.com/millrace-ml/millrace/schedule/scheduletest"
	"pgregory.net/rapid"
)

// TestDrawingsTellTheTruth compares schedule's drawing, which counts slots on its own, with a simulation at the same
// costs.
func TestDrawingsTellTheTruth(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, _ := randomCase(t)
		s := scheduletest.Slots{
			F: rapid.IntRange(1, 3).Draw(t, "f"), B: rapid.IntRange(1, 4).Draw(t, "b"), U: rapid.IntRange(0, 2).Draw(t, "u"),
			EV: rapid.IntRange(1, 2).Draw(t, "ev"), Transfer: rapid.IntRange(0, 2).Draw(t, "transfer"),
		}
		d, err := scheduletest.Draw(p, s)
		if err != nil {
			t.Fatal(err)
		}
		c := Uniform(p.Stages, float64(s.F), float64(s.B), float64(s.Transfer))
		for i := range c.Stages {
			c.Stages[i][0].UpdateS, c.Stages[i][0].EvaluateS = float64(s.U), float64(s.EV)
		}
		_, sum, err := Run(p, c, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if float64(d.Slots) != sum.EndS {
			t.Fatalf("the drawing has %d slots, the simulation takes %v\n%s%s", d.Slots, sum.EndS, d, p.Text())
		}
		busy := 0.0
		for _, b := range sum.TotalS {
			busy += b
		}
		if math.Abs(busy-float64(d.Busy)) > 1e-9 {
			t.Fatalf("the drawing has %d busy slots, the simulation %v", d.Busy, busy)
		}
	})
}
