package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/run/checkpoint"
)

// Frozen parameters keep their values and have no optimizer state, through checkpoints and two phases of fine-tuning. A
// pattern that matches no parameter, or every parameter, is refused.
func TestFrozenLayersDoNotLearn(t *testing.T) {
	t.Parallel()
	p := profiled(t)
	if out := p.Run(t, strings.Fields("profile --model mlp --freeze dense1 --sizes 4 --batch 4 --passes 1 -o frozen.json"),
		true); out != "" {
		t.Fatal(out)
	}
	const first = "--profile frozen.json --freeze dense1 --batch 4 --clip 1 "
	learn(t, p, first+"--workers 2 --stages 2 --steps 2 --save-every 1 --out run")
	const one, two = "run/checkpoints/step-00000001", "run/checkpoints/step-00000002"
	for _, name := range changed(t, p, one, two) {
		if strings.HasPrefix(name, "dense1.") {
			t.Errorf("%s is frozen and has changed", name)
		}
	}
	c, err := checkpoint.Open(filepath.Join(p.Dir, two))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	states := 0
	for _, name := range c.Names() {
		if strings.HasPrefix(name, "dense1.") && strings.Contains(name, "#") {
			t.Errorf("a state of what is frozen: %s", name)
		} else if strings.Contains(name, "#") {
			states++
		}
	}
	if states == 0 {
		t.Error("nothing has a state: the test says nothing")
	}
	learn(t, p, first+"--workers 1 --steps 3 --resume run/checkpoints --out again")
	if out := p.Run(t, strings.Fields("train --model mlp --data digits --batch 4 --profile mlp.json --steps 3 --resume "+
		"run/checkpoints --out other"), false); !strings.Contains(out, "--freeze that it was trained with") ||
		!strings.HasSuffix(out, "exit 2\n") {
		t.Errorf("resumed without --freeze: %s", out)
	}
	if out := p.Run(t, strings.Fields("checkpoint export run -o w.safetensors"), true); strings.Contains(out, "exit") {
		t.Fatal(out)
	}
	learn(t, p, "--batch 4 --workers 1 --steps 2 --save-every 1 --init w.safetensors --out second")
	names := changed(t, p, "second/checkpoints/step-00000001", "second/checkpoints/step-00000002")
	if !strings.Contains(strings.Join(names, " "), "dense1.weight") {
		t.Errorf("dense1.weight does not learn in the second phase; these do: %v", names)
	}
	for args, want := range map[string]string{
		"--freeze dens1":            `freeze "dens1" matches no parameter; near it: dense1`,
		"--freeze *":                "nothing would learn",
		"--freeze dense1,[":         "syntax error in pattern",
		"--freeze dense1 --freeze=": "it is empty",
	} {
		out := p.Run(t, strings.Fields("train --model mlp --data digits --batch 4 --steps 1 --out no "+args), false)
		if !strings.Contains(out, want) || !strings.HasSuffix(out, "exit 2\n") {
			t.Errorf("%s: %s; want it to say %q", args, out, want)
		}
	}
}
