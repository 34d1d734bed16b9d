package training

import (
	"os"
	"path/filepath"
	"testing"
)

// TestResumeNamesTheRunsThereAre: for a misspelt run, the error names the nearest run. For a folder of runs, it lists
// them.
func TestResumeNamesTheRunsThereAre(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, run := range []string{"runs/cc", "runs/demo"} {
		if err := os.MkdirAll(filepath.Join(run, "checkpoints"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll("runs/notes", 0o700); err != nil {
		t.Fatal(err)
	}
	for resume, want := range map[string]string{
		"runs/ccc":  "--resume runs/ccc: there is no such run and no such checkpoint; did you mean runs/cc?",
		"else/else": "--resume else/else: there is no such run and no such checkpoint",
		"runs/":     "--resume runs/: it is no run; there are runs/cc, runs/demo",
	} {
		if _, err := runOf(resume); err == nil || err.Error() != want {
			t.Errorf("%v; want: %s", err, want)
		}
	}
}
