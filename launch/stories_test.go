package launch

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/millrace-ml/millrace/internal/storytest"
)

// TestStories shows, in testdata, what a process learns from its environment about the processes started with it.
func TestStories(t *testing.T) {
	storytest.Tell(t, "testdata/stories", func() storytest.World { return storytest.WorldFunc(learn) })
}

// learn reads an environment with a variable in each line.
func learn(_ *testing.T, d *datadriven.TestData) (string, error) {
	if d.Cmd != "environment" {
		return "", fmt.Errorf("no command %q", d.Cmd)
	}
	w, err := FromEnv(strings.Split(d.Input, "\n"))
	if err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintln(&b, w)
	for i, outer := range w.Within {
		if i == 0 {
			fmt.Fprint(&b, "which was itself started by")
		}
		fmt.Fprintf(&b, " %s", outer.title())
	}
	if len(w.Within) > 0 {
		fmt.Fprintln(&b)
	}
	if w.Size > 1 {
		fmt.Fprintf(&b, "rank 0 is met at %s, with the secret in %s; %d workers in all\n", w.Meet(), w.Token, w.Workers())
	}
	if w.RunID != "" {
		fmt.Fprintf(&b, "run %s, restarted %d times\n", w.RunID, w.Restart)
	}
	if w.Note != "" {
		fmt.Fprintln(&b, "note:", w.Note)
	}
	return b.String(), nil
}
