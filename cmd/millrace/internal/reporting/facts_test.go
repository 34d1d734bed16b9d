package reporting

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/report/folder"
	"github.com/millrace-ml/millrace/report/metrics"
)

// Here a run of 2 steps takes 5 s. Ten minutes after its start it is resumed for one step, which takes 2 s. An hour
// after that it is resumed again. Then no step is left, and step 3 is evaluated once more, which takes 4 s.
func TestTheDurationHasNoPauses(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	const second, third = 600, 4200
	r := &folder.Run{
		Parts: []folder.Part{{First: 0, End: 2, Start: &folder.Start{Began: at(0)}},
			{First: 2, End: 3, Start: &folder.Start{Began: at(second)}},
			{First: 3, End: -1, Start: &folder.Start{Began: at(third)}}},
		Steps:     []metrics.StepValues{{Step: 1, Time: at(2)}, {Step: 2, Time: at(4)}, {Step: 3, Time: at(second + 2)}},
		Evaluated: []metrics.EvaluationValues{{Step: 2, Time: at(5)}, {Step: 3, Time: at(third + 4)}},
	}
	if began, took := lasted(r); !began.Equal(at(0)) || took != (5+2+4)*time.Second {
		t.Errorf("began %v, took %v; want 11 s", began, took)
	}
	// Here a further start comes before the last one. It takes no step, so it does not become a part of the run. It
	// evaluates step 2, which takes 3 s. The record of this evaluation replaces that of the first start.
	const between = 1000
	r.Begins = []time.Time{at(0), at(second), at(between), at(third)}
	r.Evaluated[0].Time = at(between + 3)
	if _, took := lasted(r); took != (4+2+3+4)*time.Second {
		t.Errorf("with a start that is no part: %v; want 13 s", took)
	}
	if began, took := lasted(&folder.Run{Parts: []folder.Part{{End: -1}}}); !began.IsZero() || took != 0 {
		t.Errorf("a folder without starts: %v, %v", began, took)
	}
}

// A run that ended before its last step says how far it came; one that did all its steps says nothing of it.
func TestARunThatStoppedSaysWhere(t *testing.T) {
	dir := t.TempDir()
	text := []byte("model: {name: mlp}\ntrain: {steps: 400}\n")
	if err := os.WriteFile(filepath.Join(dir, folder.JobName), text, 0o600); err != nil {
		t.Fatal(err)
	}
	for last, want := range map[int]string{32: "32 of 400", 400: ""} {
		r := &folder.Run{Dir: dir, Parts: []folder.Part{{Dir: dir, End: -1}}, Steps: []metrics.StepValues{{Step: last}}}
		got := ""
		for _, f := range facts(r, nil) {
			if f.Name == "steps done" {
				got = f.Value
			}
		}
		if got != want {
			t.Errorf("after step %d: %q, want %q", last, got, want)
		}
	}
}

// The report of a run that failed says so, with the cause that its error.json names.
func TestTheReportSaysWhyARunFailed(t *testing.T) {
	dir := t.TempDir()
	r := &folder.Run{Dir: dir, Parts: []folder.Part{{Dir: dir, End: -1}}}
	failed := func() (cause string) {
		for _, f := range facts(r, nil) {
			if f.Name == "failed" {
				cause = f.Value
			}
		}
		return cause
	}
	if got := failed(); got != "" {
		t.Errorf("a run without an error.json failed: %q", got)
	}
	const cause = "the loss of step 2 is NaN"
	if err := os.WriteFile(filepath.Join(dir, folder.ErrorName), []byte(`{"cause": "`+cause+`"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := failed(); got != cause {
		t.Errorf("failed: %q, want %q", got, cause)
	}
}
