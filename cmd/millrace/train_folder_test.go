package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/cmd/internal/clitest"
	"github.com/millrace-ml/millrace/cmd/millrace/internal/training"
	"github.com/millrace-ml/millrace/report/folder"
	"github.com/millrace-ml/millrace/run/checkpoint"
	"github.com/millrace-ml/millrace/trace"
)

const shortTraining = "--batch 8 --split 1 --micro-batches 2 --save-every 2 --keep 0 "

// A file that has the record's name but is not a record belongs to another program. New and resumed runs keep it.
func TestAFileThatIsNoRecordIsKept(t *testing.T) {
	t.Parallel()
	p := profiled(t)
	theirs := func(out string) {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(p.Dir, out, "aside-1", training.RecordName))
		if err != nil || string(text) != "mine\n" {
			t.Errorf("%s: %v: %q", out, err, text)
		}
	}
	write(t, filepath.Join(p.Dir, training.RecordName), "mine\n")
	learn(t, p, shortTraining+"--steps 2 --out .")
	theirs(".")

	learn(t, p, shortTraining+"--steps 2 --out run")
	write(t, filepath.Join(p.Dir, "run", training.RecordName), "mine\n")
	learn(t, p, "--steps 4 --out run --resume run/checkpoints")
	theirs("run")
	if ours := training.ReadRecord(filepath.Join(p.Dir, "run")); len(ours) == 0 {
		t.Error("the run that went on has no record")
	}
}

// An earlier run without a checkpoint is kept, unless --overwrite is given. The new run says where it is.
func TestAnEarlierRunWithoutACheckpointIsKept(t *testing.T) {
	t.Parallel()
	p := profiled(t)
	train := func(more string) string {
		return p.Run(t, strings.Fields("train --model mlp --data digits --profile mlp.json --eval-rows 8 --batch 8 "+
			"--split 1 --steps 2 --out run "+more), false)
	}
	if out := train("--optimizer sgd --lr 1e30 --steps 4"); !strings.Contains(out, "is NaN") {
		t.Fatal(out)
	}
	if out := train(""); !strings.Contains(out, "run has an earlier run without a checkpoint: it is kept in run/aside-1") {
		t.Errorf("it says\n%s", out)
	}
	if _, err := os.Stat(filepath.Join(p.Dir, "run/aside-1", folder.MetricsName)); err != nil {
		t.Error(err)
	}
	if err := os.RemoveAll(filepath.Join(p.Dir, "run")); err != nil {
		t.Fatal(err)
	}
	train("--optimizer sgd --lr 1e30 --steps 4")
	if out := train("--overwrite"); strings.Contains(out, "aside-1") {
		t.Errorf("with --overwrite it says\n%s", out)
	}
	if _, err := os.Stat(filepath.Join(p.Dir, "run/aside-1")); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

// Here a run resumes from a link to a checkpoint of its own folder. It gives up the later steps: the report does not
// show them, and the earlier report is set aside with the later checkpoint. If a launcher had started the run, a later
// draft is set aside too. Together with other hosts' files, this draft may be a whole checkpoint.
func TestGoingBackThroughALink(t *testing.T) {
	t.Parallel()
	for _, last := range []string{"step-00000004", checkpoint.DraftName(4, 9)} {
		p := profiled(t)
		learn(t, p, shortTraining+"--steps 4 --out run")
		whole, passing := filepath.Join(p.Dir, "run/checkpoints/step-00000004"), filepath.Join(p.Dir, "passing")
		if err := errors.Join(os.Symlink("run/checkpoints/step-00000002", filepath.Join(p.Dir, "best")),
			os.Rename(whole, passing), os.Rename(passing, filepath.Join(filepath.Dir(whole), last))); err != nil {
			t.Fatal(err)
		}
		if last != filepath.Base(whole) {
			write(t, filepath.Join(p.Dir, "run", training.RecordName), `{"version": 1, "run": "launched", "files": []}`)
		}
		back := learn(t, p, "--steps 2 --out run --resume best")
		if len(back.Evaluations) != 1 || back.Evaluations[0].Step != 2 ||
			filepath.Base(back.Checkpoint) != "step-00000002" {
			t.Errorf("%+v", back)
		}
		after, err := trace.ReadFile(filepath.Join(p.Dir, "run/timeline.json.gz"))
		if err != nil || len(after.Steps) != 0 {
			t.Errorf("%v: %+v", err, after.Steps)
		}
		before, err := trace.ReadFile(filepath.Join(p.Dir, "run/parts/step-00000000/timeline.json.gz"))
		if err != nil || len(before.Steps) != 4 {
			t.Errorf("%v: %+v", err, before)
		}
		for _, name := range []string{filepath.Join("checkpoints", last), "report.html", "metrics.jsonl"} {
			if _, err := os.Stat(filepath.Join(p.Dir, "run/aside-1", name)); err != nil {
				t.Error(err)
			}
		}
	}
}

// A run that resumes in its folder keeps the plan and the Timeline of its earlier steps in the folder, as a part. The
// report of the run shows the losses of all steps. The report of the part shows only the earlier steps. Overwriting the
// folder removes the part.
func TestARunThatGoesOnIsReportedWhole(t *testing.T) {
	t.Parallel()
	p := profiled(t)
	learn(t, p, shortTraining+"--steps 2 --out run")
	learn(t, p, "--split 2 --steps 4 --out run --resume run")
	first, err := folder.Read(filepath.Join(p.Dir, "run/parts/step-00000000"))
	if err != nil {
		t.Fatal(err)
	}
	whole, err := folder.Read(filepath.Join(p.Dir, "run"))
	if err != nil {
		t.Fatal(err)
	}
	if a, b := first.Parts[0].Plan.Stages[0].LastLayer, whole.Shown().Plan.Stages[0].LastLayer; a != 0 || b != 1 {
		t.Errorf("the parts' plans end their first stages with layers %d and %d", a, b)
	}
	if n := len(whole.Losses()); n != 4 || whole.Parts[1].Start.Done != 2 ||
		!strings.HasSuffix(whole.Parts[1].Start.From, "step-00000002") {
		t.Errorf("%d losses; %+v", n, whole.Parts[1].Start)
	}
	for run, steps := range map[string]string{"run": "step 1 to 4", "run/parts/step-00000000": "step 1 to 2"} {
		if out := p.Run(t, []string{"report", run}, false); !strings.Contains(out, steps) {
			t.Errorf("the report of %s has no losses of %s:\n%s", run, steps, out)
		}
	}
	learn(t, p, shortTraining+"--steps 2 --out run --overwrite")
	for _, gone := range []string{"run/parts", "run/aside-1"} {
		if _, err := os.Stat(filepath.Join(p.Dir, gone)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", gone, err)
		}
	}
}

// A run locks its folder before it reads the checkpoints there, so that the checkpoints cannot change while the run
// prepares.
func TestTheFolderIsHeldBeforeItsCheckpointsAreRead(t *testing.T) {
	t.Parallel()
	p := clitest.Trainer(t)
	folder, err := training.TakeFolder(filepath.Join(p.Dir, "run"))
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close()
	out := p.Run(t, strings.Fields("train --model mlp --data digits --out run "+
		"--resume run/checkpoints/step-00000002"), true)
	if !strings.Contains(out, "another run is under way there") || !strings.HasSuffix(out, "exit 2\n") {
		t.Error(out)
	}
}

// A run's folder must not be inside a checkpoint, because it would be deleted with the checkpoint.
func TestAFolderInACheckpointIsRefused(t *testing.T) {
	p := clitest.Trainer(t)
	write(t, filepath.Join(p.Dir, "manifest.json"), "{}")
	checkpoint := filepath.Join(p.Dir, "run/checkpoints/step-00000004")
	if err := os.MkdirAll(checkpoint, 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(checkpoint, "manifest.json"), "{}")
	if err := os.Symlink(checkpoint, filepath.Join(p.Dir, "link")); err != nil {
		t.Fatal(err)
	}
	for _, out := range []string{checkpoint, checkpoint + "/a/b", "link", "link/a"} {
		got := p.Run(t, strings.Fields("train --model mlp --data digits --out "+out), true)
		if !strings.Contains(got, "step-00000004 is a checkpoint") || !strings.HasSuffix(got, "exit 2\n") {
			t.Errorf("%s: %s", out, got)
		}
	}
}
