package start

import (
	"strings"
	"testing"
)

// An error that all processes on one host have in the same words is printed once, and each of their own errors.
func TestTheSameErrorIsPrintedOnce(t *testing.T) {
	s, out := shell(t, 3, `echo 'millrace: bad input' >&2; echo other >&2; echo "millrace: of $MILLRACE_RANK" >&2`)
	s.Stderr = out
	if o, err := Run(t.Context(), s); err != nil || o.Code != 0 {
		t.Fatal(o, err)
	}
	for line, want := range map[string]int{"] millrace: bad input\n": 1, "] other\n": 3, "[0] millrace: of 0\n": 1,
		"[1] millrace: of 1\n": 1, "[2] millrace: of 2\n": 1} {
		if got := strings.Count(out.String(), line); got != want {
			t.Errorf("%q %d times, not %d:\n%s", line, got, want, out)
		}
	}
}
