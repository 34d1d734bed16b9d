package shape

import (
	"testing"

	"github.com/millrace-ml/millrace/schedule"
)

// TestWhatWaitsForWeightsTakesRoom: a forward saves 1, and an input gradient keeps a quarter of it for the weight
// gradient. Three forwards hold 3. Two more forwards, each after an input gradient, make it 3.25 and then 3.5. Three
// pairs of a forward and its input gradient hold 1, 1.25 and 1.5 before any weight gradient.
func TestWhatWaitsForWeightsTakesRoom(t *testing.T) {
	stages := []stage{{unit: unit{pending: 0.25}}}
	list := func(kinds string) (out schedule.List) {
		for _, k := range kinds {
			kind := map[rune]schedule.Kind{'F': schedule.F, 'I': schedule.I, 'W': schedule.W, 'B': schedule.B}[k]
			out = append(out, schedule.Instruction{Kind: kind})
		}
		return out
	}
	for kinds, want := range map[string]float64{"FFFIIIWWW": 3, "FFFIFIFIIIWWWWW": 3.5, "FIFIFIWWW": 1.5, "FBFBFB": 1} {
		if got := fullest(list(kinds), stages, []float64{1}); got != want {
			t.Errorf("%s holds %v, want %v", kinds, got, want)
		}
		p := &schedule.Program{Name: kinds, Body: schedule.Part{list(kinds)}}
		for room := range 5 {
			if err := fits(p, stages, room); (err == nil) != (want <= float64(room)) {
				t.Errorf("%s with room for %d: %v", kinds, room, err)
			}
		}
	}
}
