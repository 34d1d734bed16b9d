package main

import (
	"strings"
	"testing"
)

// A run that begins with another run's final weights, and hardly changes them, has the same evaluation as that run,
// also on more stages. Files without the model's weights are refused before anything is measured.
func TestTrainingBeginsWithGivenValues(t *testing.T) {
	t.Parallel()
	p := profiled(t)
	done := func(args string) {
		t.Helper()
		if out := p.Run(t, strings.Fields(args), true); strings.Contains(out, "exit") {
			t.Fatalf("%s: %s", args, out)
		}
	}
	whole := learn(t, p, "--workers 1 --steps 4 --batch 4 --out whole")
	done("checkpoint export whole -o w.safetensors")
	const still = " --steps 1 --batch 4 --lr 1e-30 --init w.safetensors"
	for _, how := range []string{"--workers 1", "--workers 2 --stages 2", "--workers 3 --stages 3"} {
		begun := learn(t, p, how+still+" --out begun --overwrite")
		if a, b := whole.Evaluations[0], begun.Evaluations[0]; a.Loss != b.Loss || a.Correct != b.Correct {
			t.Errorf("%s: begins at %v, %v right, where %v, %v were left", how, b.Loss, b.Correct, a.Loss, a.Correct)
		}
	}
	for args, want := range map[string]string{
		"--set hidden=64":     "millrace: init: w.safetensors: head.weight is F32[10 32]; head.weight of this",
		"--set hidden=64,33":  "millrace: init: w.safetensors: dense1.weight is F32[32 64]; dense1.weight of this model ",
		"--init whole":        "millrace: init: whole: it has neither model.safetensors",
		"--init w.safetensor": "millrace: init: w.safetensor: there is no such file",
	} {
		out := p.Run(t, strings.Fields("train --model mlp --data digits"+still+" "+args), false)
		if !strings.HasPrefix(out, want) || !strings.HasSuffix(out, "exit 2\n") {
			t.Errorf("%s: %s; want it to say %q", args, out, want)
		}
	}
}
