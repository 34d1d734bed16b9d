package training

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/millrace-ml/millrace/report/folder"
	"github.com/millrace-ml/millrace/run/control"
)

// The error file of an earlier start stays until a process of the new start fails. Among the processes of the new
// start, the first reason stays. A late process of the earlier start may replace that reason. The next process of the
// new start that fails then replaces it again.
func TestAnEarlierReasonGivesWayToTheFirst(t *testing.T) {
	dir := t.TempDir()
	earlier := &training{ending: ending{out: dir, start: "a"}}
	if err := earlier.leaveError(0, errors.New("the earlier one")); err == nil {
		t.Fatal("no error is left")
	}
	var all []*training
	for range 2 {
		all = append(all, &training{ending: ending{out: dir, start: "b"}})
	}
	said := func() (f errorFile) {
		text, err := os.ReadFile(filepath.Join(dir, folder.ErrorName))
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
	_ = earlier.leaveError(2, control.NewLost(0, "rank 0", errors.New("late"))) // a late process of the earlier start
	if _ = all[0].leaveError(0, errors.New("no memory")); said().Cause != "no memory" {
		t.Errorf("behind a late process of the start before it is %+v", said())
	}
	if err := all[1].leaveError(2, nil); err != nil || said().Cause != "no memory" {
		t.Errorf("one that ends well leaves %+v, %v", said(), err)
	}
}
