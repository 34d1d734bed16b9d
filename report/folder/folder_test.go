package folder

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/trace"
)

// part writes the files of a part with the steps from `from` to `to` - 1. The loss of a step is its number plus `mark`,
// which differs between parts. Unless `lives` is set, the part was killed and has no Timeline.
func part(t *testing.T, dir string, from, to int, mark float64, lives bool) {
	t.Helper()
	start := Start{Done: from, Began: time.Unix(int64(from), 0)}
	if err := start.Write(dir); err != nil {
		t.Fatal(err)
	}
	p := plan.Plan{Version: plan.Version, Model: fmt.Sprint(mark), MicroBatch: 1, MicroBatches: 1, Schedule: "1f1b",
		Weights: "sync", Replication: "split", Stages: []plan.Stage{{LastLayer: 1, Devices: []int{0}}}}
	if err := p.Write(filepath.Join(dir, PlanName)); err != nil {
		t.Fatal(err)
	}
	for _, name := range Drawn {
		write(t, dir, name, fmt.Sprint(mark))
	}
	if !lives {
		return
	}
	tl := trace.Timeline{Version: trace.Version, Source: "run", Workers: 1, Stages: 1, Events: []trace.Event{}}
	for s := from; s < to; s++ {
		tl.Steps = append(tl.Steps, trace.StepMark{Step: s, StartS: float64(s - from), EndS: float64(s - from + 1)})
		tl.Losses = append(tl.Losses, trace.Loss{Step: s, Value: float64(s) + mark})
	}
	tl.Evaluations = []trace.Evaluation{{Step: to - 1, Loss: mark, Correct: 1, Samples: 2}}
	if err := tl.WriteFile(filepath.Join(dir, TimelineName)); err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func keep(t *testing.T, dir string, first int, aside string) {
	t.Helper()
	if err := Keep(dir, first, aside); err != nil {
		t.Fatal(err)
	}
}

func said(t *testing.T, dir string) (parts, losses string) {
	t.Helper()
	r, err := Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range r.Parts {
		parts += fmt.Sprintf(" %s:%d-%d", p.Plan.Model, p.First, p.End)
	}
	for _, l := range r.Losses() {
		losses += fmt.Sprintf(" %.2g", l.Value)
	}
	return parts, losses
}

// A training takes 3 steps. A second part resumes from the checkpoint of step 2, takes 2 steps, and is killed, so that
// only the metrics of these 2 steps remain. A third part resumes after the first of these 2 steps.
func TestPartsAreKeptAndReadAsOneRun(t *testing.T) {
	dir := t.TempDir()
	keep(t, dir, 0, "")
	part(t, dir, 0, 3, .1, true)
	if parts, losses := said(t, dir); parts != " 0.1:0--1" || losses != " 0.1 1.1 2.1" {
		t.Error(parts, losses)
	}
	keep(t, dir, 2, "")
	part(t, dir, 2, 4, .2, false)
	keep(t, dir, 3, "")
	part(t, dir, 3, 5, .3, true)
	write(t, dir, MetricsName, `{"step":0,"loss":8}
{"step":2,"loss":9}
{"step":3,"loss":2.2}
{"step":3,"evaluation_loss":7,"evaluation_correct":3,"evaluation_samples":4}
not of a run
{"step":4,"loss":9}
{"step":5,"lo`)
	if parts, losses := said(t, dir); parts != " 0.1:0-2 0.2:2-3 0.3:3--1" || losses != " 0.1 1.1 2.2 3.3 4.3" {
		t.Error(parts, losses)
	}
	r, err := Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	if r.Shown().First != 3 || len(r.Parts[0].Measured.Steps) != 2 || r.Parts[1].Measured != nil {
		t.Errorf("%+v", r.Parts)
	}
	// The evaluation after the third step is from the metrics. The evaluation of the first part is left out, because
	// its step was repeated.
	var got []string
	for _, e := range r.Evaluations() {
		got = append(got, fmt.Sprintf("%d: %v, %d of %d", e.Step, e.Loss, e.Correct, e.Samples))
	}
	if want := []string{"2: 7, 3 of 4", "4: 0.3, 1 of 2"}; !slices.Equal(got, want) {
		t.Errorf("evaluations %q, want %q", got, want)
	}
	for part, mark := range map[string]string{"parts/step-00000000": "0.1", "parts/step-00000002": "0.2", ".": "0.3"} {
		for _, name := range Drawn {
			if text, err := os.ReadFile(filepath.Join(dir, part, name)); err != nil || string(text) != mark {
				t.Errorf("%s of %s: %q, %v", name, part, text, err)
			}
		}
	}
}

// A part whose steps are all repeated is no longer valid. It moves to the folder `aside`, or is deleted if no such
// folder is given.
func TestPartsThatAreGivenUp(t *testing.T) {
	for _, given := range []bool{true, false} {
		dir, aside := t.TempDir(), ""
		if given {
			aside = filepath.Join(dir, "aside-1")
		}
		part(t, dir, 0, 6, .1, true)
		keep(t, dir, 3, "")
		part(t, dir, 3, 6, .2, true)
		keep(t, dir, 5, "")
		part(t, dir, 5, 8, .3, true)
		keep(t, dir, 3, aside)
		part(t, dir, 3, 4, .4, true)
		if parts, losses := said(t, dir); parts != " 0.1:0-3 0.4:3--1" || losses != " 0.1 1.1 2.1 3.4" {
			t.Error(parts, losses)
		}
		for _, name := range []string{"parts/step-00000003", "timeline.json.gz", "report.html"} {
			_, err := os.Stat(filepath.Join(dir, "aside-1", name))
			if (err == nil) != given {
				t.Errorf("%s aside: %v", name, err)
			}
		}
	}
}

// Drawings of steps that are no longer valid move to the folder `aside`, even if the part has other steps that remain
// valid.
func TestTheReportOfStepsThatAreGivenUp(t *testing.T) {
	dir := t.TempDir()
	part(t, dir, 0, 6, .1, true)
	keep(t, dir, 3, filepath.Join(dir, "aside-1"))
	for _, at := range []string{"aside-1/report.html", "parts/step-00000000/timeline.json.gz"} {
		if _, err := os.Stat(filepath.Join(dir, at)); err != nil {
			t.Error(err)
		}
	}
}

// A folder of an older millrace has no Start. The part's first step is then the first step of its Timeline.
func TestFoldersFromBeforeAreRead(t *testing.T) {
	dir := t.TempDir()
	part(t, dir, 4, 6, .1, true)
	if err := os.Remove(filepath.Join(dir, StartName)); err != nil {
		t.Fatal(err)
	}
	keep(t, dir, 6, "")
	part(t, dir, 6, 7, .2, true)
	if parts, losses := said(t, dir); parts != " 0.1:4-6 0.2:6--1" || losses != " 4.1 5.1 6.2" {
		t.Error(parts, losses)
	}
}

// If a move of files is interrupted, it can be repeated, because the Start moves last.
func TestAMoveIsTakenUpAgain(t *testing.T) {
	dir := t.TempDir()
	part(t, dir, 0, 3, .1, true)
	if err := move(dir, filepath.Join(dir, PartsName, nameOf(0)), Files[:5]); err != nil {
		t.Fatal(err)
	}
	keep(t, dir, 2, "")
	part(t, dir, 2, 3, .2, true)
	if parts, losses := said(t, dir); parts != " 0.1:0-2 0.2:2--1" || losses != " 0.1 1.1 2.2" {
		t.Error(parts, losses)
	}
}

// Files that millrace did not write stay where they are.
func TestRemoveLeavesWhatIsNobodys(t *testing.T) {
	dir := t.TempDir()
	part(t, dir, 0, 3, .1, true)
	keep(t, dir, 3, "")
	mine := filepath.Join(dir, PartsName, "step-00000000", "notes")
	write(t, filepath.Dir(mine), "notes", "mine")
	if err := Remove(dir); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(filepath.Dir(mine))
	if err != nil || len(left) != 1 || left[0].Name() != "notes" {
		t.Errorf("%v, %v", left, err)
	}
	if err := os.Remove(mine); err != nil {
		t.Fatal(err)
	}
	if err := Remove(dir); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("%v, %v", left, err)
	}
}

func TestReadNamesWhatIsDamaged(t *testing.T) {
	dir := t.TempDir()
	if _, err := Read(dir); err == nil || !strings.Contains(err.Error(), "is no folder of a run") {
		t.Error(err)
	}
	part(t, dir, 0, 3, .1, true)
	for name, text := range map[string]string{
		StartName: `{"version":2,"steps_done":-1}`, PlanName: "{", TimelineName: "nothing",
	} {
		dir := t.TempDir()
		part(t, dir, 0, 3, .1, true)
		write(t, dir, name, text)
		if _, err := Read(dir); err == nil || !strings.Contains(err.Error(), filepath.Join(dir, name)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	metrics := filepath.Join(dir, MetricsName)
	write(t, dir, MetricsName, strings.Repeat("x", longestLine+1))
	if _, err := Read(dir); err == nil || !strings.Contains(err.Error(), metrics+", behind 0 lines") {
		t.Errorf("a line without an end: %v", err)
	}
	if err := errors.Join(os.Remove(metrics), syscall.Mkfifo(metrics, 0o600)); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(dir); err == nil || !strings.Contains(err.Error(), metrics) {
		t.Errorf("a pipe that nobody writes to: %v", err)
	}
}
