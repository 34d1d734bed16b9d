package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A resumed run says if evaluations have other rows or if the training data has changed. If fewer steps are asked for
// than are done, it is refused with the flag's name.
func TestResumeSaysWhatItReads(t *testing.T) {
	t.Parallel()
	p := profiled(t)
	rows := strings.Repeat("1,2,0\n4,3,1\n2,5,0\n", 100)
	write := func(text string) {
		if err := os.WriteFile(filepath.Join(p.Dir, "rows.csv"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	train := func(more string) string {
		return p.Run(t, strings.Fields("train --model mlp --set inputs=2 --set classes=2 --data rows.csv --batch 8 "+
			"--workers 1 "+more), false)
	}
	write(rows)
	train("--eval-rows 8 --steps 2 --out run")
	const on = "--resume run/checkpoints/step-00000002 --steps 3 --out "
	same := train(on + "a")
	if strings.Contains(same, "changed: eval") || strings.Contains(same, "training data") ||
		!strings.Contains(same, " eval_rows 8,") {
		t.Errorf("with the same data it says\n%s", same)
	}
	if out := train("--eval-rows 16 " + on + "b"); !strings.Contains(out, "eval_rows 16 (was 8)") {
		t.Errorf("with other evaluations it says\n%s", out)
	}
	write(rows + rows)
	if out := train(on + "c"); !strings.Contains(out, "changed: training samples 480 (was 240); they come in") {
		t.Errorf("with more rows it says\n%s", out)
	}
	write(strings.Replace(rows, "4,3", "4,9", 1))
	if out := train(on + "d"); !strings.Contains(out, "changed: the values of the training data\n") {
		t.Errorf("with another number it says\n%s", out)
	}
	if out := train("--resume run --steps 1 "); !strings.Contains(out, "2 steps are done, and --steps is 1 in all; "+
		"give 2 or more") {
		t.Errorf("of fewer steps it says\n%s", out)
	}
}
