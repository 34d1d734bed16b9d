package plan

import "testing"

func TestAGapInWords(t *testing.T) {
	for gap, want := range map[float64]string{-1e-12: "0.0 % above", 0.058: "5.8 % above", 0.9996: "100.0 % above",
		2.101: "3.1 times that"} {
		if got := (&LowerBound{StepS: 1, Gap: gap}).Above(); got != want {
			t.Errorf("%v: %q, want %q", gap, got, want)
		}
	}
}
