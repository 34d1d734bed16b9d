package avgpipe

import "testing"

// TestChoicesAreComparedAtTheSetting: before anything was run, a choice's batch is the simulation of its setting, and
// not what the method itself predicts for it. Once the setting was run, the batch is the measured one.
func TestChoicesAreComparedAtTheSetting(t *testing.T) {
	for _, rivals := range []bool{false, true} {
		r := request(workload(), 2)
		r.Rivals = rivals
		found, err := Tune(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		by := map[Degrees]Cell{}
		for _, cell := range found.Grid {
			by[cell.At] = cell
		}
		for _, c := range found.Choices {
			cell := by[c.At]
			want := cell.Simulated.StepS
			if c.SimulatedS != want {
				t.Errorf("%s: simulated in %v s; want %v", c.Method, c.SimulatedS, want)
			}
			if c.Method == ByPrinted && near(c.Predicted.StepS, want) {
				t.Errorf("%s predicts what the simulator does, %v s; the case shows nothing", c.Method, want)
			}
			if rivals {
				want = cell.Measured.StepS
			}
			if c.StepS() != want {
				t.Errorf("%s with trials %v: a batch of %v s; want %v", c.Method, rivals, c.StepS(), want)
			}
		}
	}
	c := Choice{SimulatedS: 2, Measured: &Scored{StepS: 5}}
	if c.StepS() != 5 {
		t.Errorf("the measured batch of 5 s is given as %v s", c.StepS())
	}
}
