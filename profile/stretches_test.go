package profile

import (
	"math"
	"slices"
	"strings"
	"testing"
)

// TestStretches has two layers whose peaks are known. The first takes 1 + size seconds forward, and twice that
// backward. Its forward takes 2 s for 1 sample. At 4 samples, the largest measured size, it takes 1.25 s for each. The
// second layer's forward takes 3 s for each sample at any size, which is its peak.
func TestStretches(t *testing.T) {
	p := &Profile{Version: Version, Model: "two", Layers: []Layer{{TiedTo: -1}, {TiedTo: -1}}}
	for _, size := range []int{1, 2, 4} {
		n := float64(size)
		for l, c := range []Cost{{ForwardS: 1 + n, BackwardS: 2 + 2*n}, {ForwardS: 3 * n, BackwardS: n}} {
			c.Device, c.MicroBatch = "cpu", size
			p.Layers[l].Costs = append(p.Layers[l].Costs, c)
		}
	}
	for size, want := range map[int][]Stretch{
		1: {{2, 1.25}, {3, 3}, {4, 2.5}, {1, 1}},
		2: {{3, 2.5}, {6, 6}, {6, 5}, {2, 2}},
		3: {{4, 3.75}, {9, 9}, {8, 7.5}, {3, 3}},
		4: {{5, 5}, {12, 12}, {10, 10}, {4, 4}},
	} {
		f, b, err := p.Stretches("cpu", 0, 1, size)
		if got := slices.Concat(f, b); err != nil || !slices.EqualFunc(got, want, func(a, b Stretch) bool {
			return math.Abs(a.NowS-b.NowS) < 1e-12 && math.Abs(a.PeakS-b.PeakS) < 1e-12
		}) {
			t.Errorf("%d samples: %v, %v; want %v", size, got, err, want)
		}
	}
	s := Stretch{NowS: 2, PeakS: 1.25}
	for forS, want := range map[float64]float64{2: 0.625, 2.5: 0.5, 1.25: 1, 1: 1, 0: 1} {
		if got := s.Phi(forS); got != want {
			t.Errorf("in %v s it computes at %v of the peak; want %v", forS, got, want)
		}
	}
	for want, call := range map[string][3]int{
		"layers 1 to 2; two has 0 to 1": {1, 2, 1},
		"layers 1 to 0;":                {1, 0, 1},
		"micro-batches of 8 samples":    {0, 1, 8},
	} {
		if _, _, err := p.Stretches("cpu", call[0], call[1], call[2]); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want it to say %q", err, want)
		}
	}
}
