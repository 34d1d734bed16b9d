package curves

import (
	"strings"
	"testing"
)

// The best gain from filling a bubble is limited by the busiest worker, and by the shared cores.
func TestExplainedKnowsWhatFillingCouldGive(t *testing.T) {
	shares := func(busy ...float64) (all []Share) {
		for _, b := range busy {
			all = append(all, Share{ComputeS: b, BubbleS: 100 - b})
		}
		return all
	}
	for _, c := range []struct {
		cores int
		busy  []float64
		want  string
	}{
		{0, []float64{20, 50}, "would give 2.000"},
		{2, []float64{20, 50}, "would give 2.000"},
		{2, []float64{40, 40, 40, 40}, "would give 1.250"}, // 160 s of computing on two cores take 80 s instead of 100 s
		{4, []float64{40, 40, 40, 40}, "would give 2.500"},
	} {
		if got := explained("a", "b", [2][]Share{shares(c.busy...), shares(c.busy...)},
			c.cores); !strings.Contains(got, c.want) {
			t.Errorf("%v on %d cores: %s; want %q", c.busy, c.cores, got, c.want)
		}
	}
}
