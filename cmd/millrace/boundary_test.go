package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/internal/packing"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/trace"
)

// The flag --boundary applies to the plan, the simulated messages, the run's messages and its report. A resumed run
// keeps the setting. The flag is refused if no stage sends activations to another.
func TestBoundariesInFewerBits(t *testing.T) {
	t.Parallel()
	p := profiled(t)
	const two = "--workers 2 --split dense1 --batch 8 --micro-batches 2 --schedule 1f1b "
	bytes := map[string]int64{}
	for _, f := range []string{"f32", "i8"} {
		learn(t, p, two+"--steps 4 --boundary "+f+" --out "+f)
		for _, file := range []string{"predicted.json.gz", "timeline.json.gz"} {
			tl, err := trace.ReadFile(filepath.Join(p.Dir, f, file))
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range tl.Events {
				if e.Kind != "SF" || e.Step == 3 { // the last step includes the evaluation, whose tensors are not packed
					continue
				}
				if before, seen := bytes[f]; seen && before != e.Bytes {
					t.Errorf("%s of %s: %s has %d bytes, others %d", file, f, e.Instruction, e.Bytes, before)
				}
				bytes[f] = e.Bytes
			}
			if file == "timeline.json.gz" && (len(tl.Rounded) > 0) != (f == "i8") {
				t.Errorf("%s: rounded %+v", f, tl.Rounded)
			}
		}
	}
	// The message has n numbers, of 4 samples. In f32 each number takes 4 bytes. In i8 each number takes one byte, and
	// each sample adds one scale.
	if n := bytes["f32"] / 4; bytes["i8"] != n+4*packing.ScaleBytes {
		t.Errorf("messages of %v bytes", bytes)
	}
	out := p.Run(t, []string{"report", "i8"}, false)
	if !strings.Contains(out, "boundary i8 rounds") || !strings.Contains(out, "sent in i8: off by") {
		t.Errorf("the report says nothing of what was rounded:\n%s", out)
	}

	learn(t, p, two+"--steps 6 --resume i8 --out i8on")
	if pl, err := plan.Read(filepath.Join(p.Dir, "i8on", "plan.json")); err != nil || pl.Boundary != packing.I8 {
		t.Errorf("a run that goes on: %v, %v", pl.Boundary, err)
	}
	p.Run(t, strings.Fields("plan --model mlp --profile mlp.json "+two+"--boundary bf16 -o own.json"), true)
	if pl, err := plan.Read(filepath.Join(p.Dir, "own.json")); err != nil || pl.Boundary != packing.BF16 {
		t.Errorf("plan writes boundary %v, %v", pl.Boundary, err)
	}
	for line, want := range map[string]string{
		"--boundary fp16 --out r":                         `--boundary is "fp16"; did you mean f16?`,
		"--boundary i8 --workers 2 --stages 1 --out r":    "--boundary: i8; one stage sends no other its activations",
		"--boundary i8 --workers 3 --schedule dp --out r": "--boundary: i8; under schedule dp a worker has the whole model",
	} {
		out := p.Run(t, strings.Fields("train --model mlp --data digits --profile mlp.json "+line), false)
		if !strings.Contains(out, want) {
			t.Errorf("%s: %s", line, out)
		}
	}
}
