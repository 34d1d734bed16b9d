package training

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/millrace-ml/millrace/run/control"
)

// What an earlier start has said stays until somebody of this run has a reason, or the folder is its own; of several
// processes that have one the first stays, be it in front of the first step, as where a process is stopped while one
// measures, and goes on later.
func TestAnEarlierReasonGivesWayToTheFirst(t *testing.T) {
	dir := t.TempDir()
	earlier := &training{out: dir}
	if err := earlier.leaveError(0, errors.New("the earlier one")); err == nil {
		t.Fatal("no error is left")
	}
	var all []*training
	for range 2 {
		one := &training{}
		one.writesTo(dir)
		all = append(all, one)
	}
	said := func() (f errorFile) {
		text, err := os.ReadFile(filepath.Join(dir, ErrorName))
		if err := errors.Join(err, json.Unmarshal(text, &f)); err != nil {
			t.Error(err)
		}
		return f
	}
	if f := said(); f.Cause != "the earlier one" {
		t.Errorf("a run that begins says %q", f.Cause)
	}
	for i, one := range all {
		_ = one.leaveError(i+1, control.NewLost(0, "rank 0", errors.New("EOF")))
		if f := said(); f.Rank != 1 || f.Lost == nil {
			t.Errorf("behind process %d it is %+v", i+1, f)
		}
	}
}
