package scheduletest_test

import (
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/schedule/scheduletest"
)

// TestGrid draws the boxes of two workers. A box begins with its text and continues with "=", and "." is an empty slot.
func TestGrid(t *testing.T) {
	got, err := scheduletest.Grid(2, []scheduletest.Span{{Worker: 1, Text: "1F0", Start: 1, End: 2}, {Text: "0F0", End: 1},
		{Text: "0B0", Start: 2, End: 4}}, 1)
	if want := "0: 0F0 .   0B0 ===\n1: .   1F0 .   .\n"; err != nil || got != want {
		t.Errorf("%v\n%swant\n%s", err, got, want)
	}
}

// TestGridRefused: boxes that cannot be drawn are refused with the reason.
func TestGridRefused(t *testing.T) {
	for want, spans := range map[string][]scheduletest.Span{
		"is on worker 2; workers are 0 to 1": {{Worker: 2, Text: "x", End: 1}},
		"goes from 3 to 1":                   {{Text: "x", Start: 3, End: 1}},
	} {
		if _, err := scheduletest.Grid(2, spans, 1); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want it to say %q", err, want)
		}
	}
}
