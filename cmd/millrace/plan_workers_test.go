package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// If no number of workers is given, a plan for four workers trains on four, even if it continues a run on two. A flag
// or a job file that gives fewer workers is refused.
func TestAPlanSaysHowManyWorkers(t *testing.T) {
	t.Parallel()
	p := profiled(t)
	if code, out := started(t, p, "plan --model mlp --profile mlp.json --batch 8 --workers 4 --stages 4 --schedule 1f1b "+
		"-o p4.json"); code != 0 {
		t.Fatalf("code %d\n%s", code, out)
	}
	write(t, filepath.Join(p.Dir, "two.yaml"), "workers: 2\n")
	const line = "train --data digits --profile mlp.json --eval-rows 8 --steps 1 --plan p4.json --out "
	if code, out := started(t, p, line+"four"); code != 0 {
		t.Fatalf("code %d\n%s", code, out)
	}
	text, err := os.ReadFile(filepath.Join(p.Dir, "four/job.yaml"))
	if err != nil || !strings.Contains(string(text), `"workers": 4`) {
		t.Errorf("the job: %v\n%s", err, text)
	}
	const says = "the plan in p4.json has a worker on device 3, counted from 0; "
	for given, want := range map[string]string{
		"--workers 3":    says + "--workers takes 3 devices: give 4 or more",
		"--job two.yaml": says + "workers in two.yaml takes 2 devices: give 4 or more",
	} {
		if code, out := started(t, p, line+"fewer "+given); code != 2 || !strings.Contains(out, want) {
			t.Errorf("%s: code %d, want %q in\n%s", given, code, want, out)
		}
	}
	two := strings.Replace(line, "--plan p4.json", "--model mlp --batch 8 --workers 2", 1)
	if code, out := started(t, p, two+"two"); code != 0 {
		t.Fatalf("code %d\n%s", code, out)
	}
	if code, out := started(t, p, "train --resume two --plan p4.json --steps 2"); code != 0 ||
		!strings.Contains(out, "4 workers") {
		t.Errorf("two, resumed: code %d\n%s", code, out)
	}
	if code, out := started(t, p, line+"more --workers 5"); code != 0 {
		t.Errorf("five workers: code %d\n%s", code, out)
	}
}
