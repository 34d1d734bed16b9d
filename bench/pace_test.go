package bench

import (
	"errors"
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/engine/ref"
	"github.com/millrace-ml/millrace/engine/torch"
)

func TestAtPaceByHand(t *testing.T) {
	for _, c := range []struct {
		steps, beats []float64
		reference    float64
		want         float64
	}{
		{[]float64{10}, []float64{1, 1}, 1, 10},
		{[]float64{10}, []float64{2, 2}, 1, 5},                // measured at half the speed
		{[]float64{10, 30, 20}, []float64{1, 1, 5, 1}, 1, 10}, // 10, 10 and 20/3
		{[]float64{10}, []float64{1, 1}, 0, 0},
		{[]float64{10}, []float64{1}, 1, 0},
		{[]float64{10}, []float64{1, 0}, 1, 0},
		{[]float64{10}, []float64{1, math.NaN()}, 1, 0},
		{nil, []float64{1}, 1, 0},
	} {
		if got := AtPace(c.steps, c.beats, c.reference); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("steps %v at beats %v and reference %v: %v, want %v", c.steps, c.beats, c.reference, got, c.want)
		}
	}
}

// However the machine's speed drifts, steps that slow down along with the beats come out as
// they are at the reference's speed.
func TestAtPaceUndoesAnyDrift(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		step, beat := rapid.Float64Range(0.01, 10).Draw(t, "step"), rapid.Float64Range(0.001, 1).Draw(t, "beat")
		slow := rapid.SliceOfN(rapid.Float64Range(0.5, 4), 2, 20).Draw(t, "slowness")
		var steps, beats []float64
		for i, s := range slow {
			beats = append(beats, beat*s)
			if i > 0 {
				steps = append(steps, step*(s+slow[i-1])/2)
			}
		}
		if got := AtPace(steps, beats, beat); math.Abs(got-step) > 1e-9*step {
			t.Errorf("%v, want %v", got, step)
		}
	})
}

func TestPaceBeats(t *testing.T) {
	for name, open := range map[string]func() (engine.Engine, error){
		"ref":   func() (engine.Engine, error) { return ref.New(), nil },
		"torch": func() (engine.Engine, error) { return torch.Open() },
	} {
		t.Run(name, func(t *testing.T) {
			e, err := open()
			if errors.Is(err, torch.ErrNotFound) || errors.Is(err, torch.ErrNoCgo) {
				t.Skip("libtorch is not installed: ", err)
			}
			if err != nil {
				t.Fatal(err)
			}
			p, err := startPace(e, 2, 1, 8)
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			if s, err := p.Beat(); err != nil || !(s > 0) {
				t.Errorf("a beat took %v s, %v", s, err)
			}
		})
	}
}
