package trace_test

import (
	"testing"

	"github.com/millrace-ml/millrace/trace"
)

// Updates 0 to 3 of a training, and 10 to 12 behind a checkpoint.
func TestStaleness(t *testing.T) {
	for _, c := range []struct {
		of     []trace.Applied
		median float64
		most   int
	}{
		{nil, 0, 0},
		{[]trace.Applied{{Step: 1, Version: 0}, {Step: 0, Version: 0}, {Step: 3, Version: 1}, {Step: 2, Version: 0}}, 1, 3},
		{[]trace.Applied{{Step: 11, Version: 10}, {Step: 10, Version: 10}, {Step: 12, Version: 12}}, 0, 1},
	} {
		if median, most := trace.Staleness(c.of); median != c.median || most != c.most {
			t.Errorf("%v: %v and %d; want %v and %d", c.of, median, most, c.median, c.most)
		}
	}
}
