package trace_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/millrace-ml/millrace/internal/storytest"
	"github.com/millrace-ml/millrace/trace"
)

// TestStories tests, with the cases in testdata, why a Timeline says that workers wait.
func TestStories(t *testing.T) {
	storytest.Tell(t, "testdata/stories", func() storytest.World { return &storyWorld{} })
}

type storyWorld struct{ t *trace.Timeline }

// Do implements storytest.World.
//
//	timeline    reads events of two workers, one on each line: worker, instruction, ready, start and end times, and the
//	            instruction that blocked it
//	gaps        prints why workers did not compute
//	idle        prints the seconds for each cause, and the bubble
func (w *storyWorld) Do(_ *testing.T, d *datadriven.TestData) (string, error) {
	var b strings.Builder
	switch d.Cmd {
	case "timeline":
		var events []trace.Event
		for line := range strings.Lines(d.Input) {
			var worker int
			var instruction, by string
			var ready, start, end float64
			if n, err := fmt.Sscan(line, &worker, &instruction, &ready, &start, &end, &by); n < 5 {
				return "", fmt.Errorf("%q: %w", line, err)
			}
			events = append(events, at(worker, instruction, ready, start, end, by))
		}
		w.t = timeline(events...)
		return "", w.t.Validate()
	case "gaps":
		for worker, gaps := range trace.AllGaps(w.t) {
			for _, g := range gaps {
				fmt.Fprintf(&b, "worker %d from %g to %g, %s: %s\n", worker, g.StartS, g.EndS, g.Cause.Label(), g.Why)
			}
		}
	case "idle":
		from, to := w.t.Extent()
		var all []trace.Gap
		for _, gaps := range trace.AllGaps(w.t) {
			all = append(all, gaps...)
		}
		idle := trace.Idle(all)
		for _, cause := range trace.Causes {
			if idle[cause] > 0 {
				fmt.Fprintf(&b, "%g s %s\n", idle[cause], cause.Label())
			}
		}
		fmt.Fprintf(&b, "busy %v of %g s, bubble %.1f %%\n", w.t.Busy(from, to), to-from, 100*w.t.Bubble(from, to))
	default:
		return "", fmt.Errorf("no command %q", d.Cmd)
	}
	return b.String(), nil
}
