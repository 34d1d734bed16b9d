package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/cmd/internal/clitest"
	"github.com/millrace-ml/millrace/engine/torch"
	"github.com/millrace-ml/millrace/lab/curves"
)

// A training with the same settings is not repeated, even after an interruption. With other settings, a new training is
// run.
func TestCurvesGoOn(t *testing.T) {
	clitest.NeedTorch(t)
	native, _ := torch.Find()
	p := &clitest.Program{Dir: t.TempDir(), Native: native, Cache: t.TempDir()}
	draw := func(more string) string {
		t.Helper()
		words := "bench curves --model mlp --data digits --rows 320 --batch 16 --epochs 0.5 --only learn --optimizer sgd " +
			"--lr 0.1 --metric loss --target 2.2 --out curves " + more
		out, err := p.Command(t, strings.Fields(words)).CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return string(out)
	}
	for _, step := range []struct{ more, want string }{
		{"--seeds 1 --methods sync,stash", "2 trainings, 0 of them from the file"},
		{"--seeds 2 --methods sync,stash", "4 trainings, 2 of them from the file"},
		{"--seeds 2 --methods sync,stash,elastic:2 --at-once 1", "6 trainings, 4 of them from the file"},
		{"--seeds 1 --methods sync --lr 0.2", "1 trainings, 0 of them from the file"},
	} {
		if got := draw(step.more); !strings.Contains(got, step.want) {
			t.Errorf("%s: no %q in\n%s", step.more, step.want, got)
		}
	}
	text, err := os.ReadFile(filepath.Join(p.Dir, "curves", "trainings.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		var one curves.Training
		if err := json.Unmarshal(line, &one); err != nil {
			t.Fatal(err)
		}
		// 320 samples in batches of 16, with 20 evaluations in an epoch: one after each batch.
		if n := len(one.Points); n != 10 && one.Method != "elastic:2" {
			t.Errorf("%s, seed %d: %d evaluations in half an epoch; want 10", one.Method, one.Seed, n)
		}
		if last := one.Points[len(one.Points)-1]; last.Epoch != 0.5 || !(last.Loss > 0) {
			t.Errorf("%s, seed %d ends at %+v", one.Method, one.Seed, last)
		}
	}
}
