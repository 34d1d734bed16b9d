package prepare

import "testing"

// TestMoreWorkersThanCoresAreWarnedOf: the warning names both numbers; without it nothing is printed.
func TestMoreWorkersThanCoresAreWarnedOf(t *testing.T) {
	want := "profile: 400 workers share 2 cores and take turns: on this machine expect no step faster than with " +
		"--workers 2"
	if got := tooManyFor(400, 2); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := tooManyFor(2, 2); got != "" {
		t.Errorf("as many workers as cores: %q", got)
	}
}
