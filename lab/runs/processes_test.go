package runs

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The tensors of some runs with one process for each worker are those of runs on one worker. millrace-lab run
// --processes trains the whole list.
func TestProcessesLeaveWhatOneWorkerLeaves(t *testing.T) {
	root, err := git(t.Context(), "rev-parse", "--show-toplevel")
	if err != nil {
		t.Skip("no working tree to train with: ", err)
	}
	if _, err := os.Stat(filepath.Join(root, "build", library)); err != nil {
		t.Skip("no native library; make setup builds it: ", err)
	}
	only := []string{"mlp-on-one-worker", "1f1b-leaves-what-one-worker-leaves", "program-is-read-from-a-file"}
	o := Options{Jobs: 1, Processes: true, Only: "^(" + strings.Join(only, "|") + ")$"}
	var out bytes.Buffer
	fine, err := o.Run(t.Context(), &out)
	if err != nil || !fine || !strings.Contains(out.String(), "3 left; as it must be") {
		t.Errorf("%v\n%s", err, &out)
	}
}

// The number of workers is read from a command line or a Program.
func TestWorkersAreCounted(t *testing.T) {
	for _, c := range []struct {
		args    string
		program string
		want    int
	}{
		{"train --workers 3 --stages 2", "", 3}, {"train", "millrace program 1\nname x\nstages 4\nworkers 2\n", 2},
		{"train --stages 2", "", 0},
	} {
		if n, err := workersOf(strings.Fields(c.args), c.program); n != c.want || (err != nil) != (c.want == 0) {
			t.Errorf("%q, %q: %d workers, %v; want %d", c.args, c.program, n, err, c.want)
		}
	}
}
