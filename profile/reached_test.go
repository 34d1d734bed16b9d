package profile

import (
	"math"
	"strings"
	"testing"
)

// Two layers that cost 1 + size forward and twice that backward: at 1 sample each takes 2 s a
// sample, at 4 samples 1.25 s, which is the best there is.
func TestReached(t *testing.T) {
	p := &Profile{Version: Version, Model: "two"}
	for range 2 {
		l := Layer{TiedTo: -1}
		for _, size := range []int{1, 2, 4} {
			l.Costs = append(l.Costs, Cost{Device: "cpu", MicroBatch: size, ForwardS: 1 + float64(size),
				BackwardS: 2 + 2*float64(size)})
		}
		p.Layers = append(p.Layers, l)
	}
	for size, want := range map[int]float64{1: 1.25 / 2, 2: 1.25 / 1.5, 3: 1.25 / (4.0 / 3), 4: 1} {
		f, b, err := p.Reached("cpu", 0, 1, size)
		if err != nil || math.Abs(f-want) > 1e-12 || math.Abs(b-want) > 1e-12 {
			t.Errorf("%d samples: %v forward, %v backward, %v; want %v", size, f, b, err, want)
		}
	}
	for want, call := range map[string][3]int{
		"layers 1 to 2; two has 0 to 1": {1, 2, 1},
		"layers 1 to 0;":                {1, 0, 1},
		"micro-batches of 8 samples":    {0, 1, 8},
	} {
		if _, _, err := p.Reached("cpu", call[0], call[1], call[2]); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want it to say %q", err, want)
		}
	}
}
