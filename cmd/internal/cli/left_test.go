package cli

import (
	"testing"
	"time"
)

// TestTheTimeLeftIsARange: both ends of the range are rounded outwards, to a unit that suits the larger end.
func TestTheTimeLeftIsARange(t *testing.T) {
	for _, c := range []struct {
		least, most float64 // seconds
		want        string
	}{
		{3.2, 4.7, "3 to 5 s left"}, {4, 4, "about 4 s left"}, {0.4, 0.9, "at most 1 s left"}, {17, 31, "15 to 35 s left"},
		{58, 130, "0.5 to 2.5 min left"}, {700, 1300, "10 to 25 min left"}, {5400, 9100, "1.5 to 3 h left"},
	} {
		least, most := time.Duration(c.least*float64(time.Second)), time.Duration(c.most*float64(time.Second))
		if got := Left(least, most); got != c.want {
			t.Errorf("%v to %v s: %q, want %q", c.least, c.most, got, c.want)
		}
	}
}
