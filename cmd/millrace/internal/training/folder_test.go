package training

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/job"
)

// If another run has left a checkpoint in a folder since it was checked, the folder is not claimed, and does not
// change.
func TestAFolderIsLookedAtAgainWhereItIsClaimed(t *testing.T) {
	j := &job.Job{Output: job.Output{Folder: filepath.Join(t.TempDir(), "r")}}
	claim := func() (arranged bool, err error) {
		one := &training{}
		err = one.claim(j, "this", func() error { arranged = true; return nil })
		one.folder.Close()
		return arranged, err
	}
	if arranged, err := claim(); !arranged || err != nil || readRecord(j.Output.Folder).Run != "this" {
		t.Error(arranged, err)
	}
	if err := os.MkdirAll(filepath.Join(checkpoints(j), "step-00000002"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := noteRun(j.Output.Folder, "another"); err != nil {
		t.Fatal(err)
	}
	arranged, err := claim()
	if arranged || err == nil || !strings.Contains(err.Error(), "r has checkpoints of an earlier run") ||
		readRecord(j.Output.Folder).Run != "another" {
		t.Error(arranged, err)
	}
	j.Output.Overwrite = true
	if arranged, err := claim(); !arranged || err != nil {
		t.Error(arranged, err)
	}
}
