package cli

import "testing"

// A narrow terminal shows whole parts of a line. Only a first part that is too wide is cut.
func TestALineIsCutBetweenItsParts(t *testing.T) {
	for columns, want := range map[int]string{
		80: "step 14,699/60,000  loss 0.0000  bubble 68.3 %", 46: "step 14,699/60,000  loss 0.0000  bubble 68.3 %",
		45: "step 14,699/60,000  loss 0.0000", 20: "step 14,699/60,000", 10: "step 14,6…",
	} {
		if got := whole("step 14,699/60,000  loss 0.0000  bubble 68.3 %", columns); got != want {
			t.Errorf("in %d columns %q; want %q", columns, got, want)
		}
	}
}
