package avgpipe

import (
	"errors"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/plan"
)

// TestBudgetsByHand has limits for each device, for all devices together, or both. One of the two settings has two
// depths. The deeper one is faster, and is chosen if it fits.
func TestBudgetsByHand(t *testing.T) {
	at := func(d Degrees, stepS float64, memory ...int64) *Pipelined {
		return &Pipelined{Scored: Scored{At: d, StepS: stepS, MemoryBytes: memory}, Plan: &plan.Plan{}}
	}
	one, two := Degrees{4, 1}, Degrees{4, 2}
	s := Settings{
		{at(one, 10, 5, 3), at(one, 8, 9, 3)}, // 8 B on both devices together; 12 B at the deeper depth
		{at(two, 6, 8, 8)},                    // 16 B together
	}
	for _, c := range []struct {
		within Budget
		want   *Pipelined
	}{
		{Budget{}, s[1][0]},
		{Budget{TogetherBytes: 16}, s[1][0]},
		{Budget{TogetherBytes: 15}, s[0][1]},
		{Budget{TogetherBytes: 11}, s[0][0]},
		{Budget{EachBytes: 8}, s[1][0]},
		{Budget{EachBytes: 7}, s[0][0]},
		{Budget{EachBytes: 8, TogetherBytes: 15}, s[0][0]},
	} {
		if got, err := s.Best(c.within); err != nil || got != c.want {
			t.Errorf("%+v: %+v (%v), want %+v", c.within, got, err, c.want.Scored)
		}
	}
	for _, c := range []struct {
		within  Budget
		least   int64
		message string
	}{
		{Budget{TogetherBytes: 7}, 8, "for all workers together"},
		{Budget{EachBytes: 4}, 5, "for each worker"},
		{Budget{EachBytes: 5, TogetherBytes: 7}, 8, "for all workers together"},
	} {
		var over *LimitError
		if _, err := s.Best(c.within); !errors.As(err, &over) || over.SmallestBytes != c.least ||
			!strings.Contains(err.Error(), c.message) {
			t.Errorf("%+v: %v; want the least that fits, %d, %s", c.within, err, c.least, c.message)
		}
	}
}
