package main

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/run/checkpoint"
)

// A run whose stages save by themselves is killed. It resumes from the last step that all stages have saved. It then
// has the same bits as a run that drained at this step. This is tested in one process, and in two processes over TCP.
func TestAKilledRunWhoseStagesSaveGoesOn(t *testing.T) {
	t.Parallel()
	p := profiled(t)
	const stream = "--workers 2 --split dense1 --schedule 1f1b-rr --batch 4 --micro-batch 4 "
	for _, processes := range []int{1, 2} {
		out := fmt.Sprintf("killed%d", processes)
		line := "train --model mlp --data digits --profile mlp.json --eval-rows 8 " + stream +
			"--steps 20000 --save-every 25 --save-mode stage --keep 0 --out " + out
		if processes > 1 {
			line = fmt.Sprintf("launch --processes %d -- %s", processes, line)
		}
		c := p.Command(t, strings.Fields(line))
		var said bytes.Buffer
		c.Stdout, c.Stderr = &said, &said
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		for began := time.Now(); ; time.Sleep(5 * time.Millisecond) {
			whole, _ := filepath.Glob(filepath.Join(p.Dir, out, "checkpoints", "step-????????"))
			if len(whole) >= 3 {
				break
			}
			if time.Since(began) > time.Minute {
				_ = c.Process.Kill()
				t.Fatalf("%d processes: %d checkpoints within a minute: %v\n%s", processes, len(whole), c.Wait(), said.String())
			}
		}
		if err := c.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := c.Wait(); err == nil {
			t.Fatalf("%d processes: it had ended before it was killed:\n%s", processes, said.String())
		}
		steps := lastLeft(t, filepath.Join(p.Dir, out, "checkpoints"))
		if steps < 75 || processes == 1 && steps%25 != 0 { // ranks that lose their launcher save their current step
			t.Errorf("%d processes: goes on from step %d", processes, steps)
		}
		learn(t, p, fmt.Sprintf("%s--steps %d --out there%d", stream, steps, processes))
		end := fmt.Sprintf("%s--steps %d ", stream, steps+60)
		learn(t, p, fmt.Sprintf("%s--resume there%d --save-every 0 --out end%d", end, processes, processes))
		learn(t, p, fmt.Sprintf("%s--resume %s --save-every 25 --save-mode stage --out on%d", end, out, processes))
		sameTensors(t, p, fmt.Sprintf("end%d/checkpoints", processes), fmt.Sprintf("on%d/checkpoints", processes))
	}
	for line, want := range map[string]string{
		"--schedule 1f1b --stages 2 --save-every 4": "save mode stage: with weights sync nothing is in flight",
		"--schedule 1f1b-rr":                        "is of checkpoints as the run goes on; give --save-every",
	} {
		got := p.Run(t, strings.Fields("train --model mlp --data digits --profile mlp.json --workers 2 --batch 4 "+
			"--save-mode stage --out r "+line), false)
		if !strings.Contains(got, want) {
			t.Errorf("%s: %s", line, got)
		}
	}
}

// lastLeft returns the step of a run's newest checkpoint, once no more have been added for a while.
func lastLeft(t *testing.T, dir string) int {
	t.Helper()
	for before := -1; ; time.Sleep(2 * time.Second) {
		from, err := checkpoint.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		steps := from.Manifest.Steps
		if err := from.Close(); err != nil {
			t.Fatal(err)
		}
		if steps == before {
			return steps
		}
		before = steps
	}
}
