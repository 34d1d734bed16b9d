package main

import (
	"strings"
	"testing"
)

// A run under asp, whose order depends on timing, is replayed from its record bit by bit. Evaluations and checkpoints
// are replayed too, and so is a run that was resumed.
func TestARunOfASPIsReplayed(t *testing.T) {
	t.Parallel()
	p := profiled(t)
	const asp = "--schedule asp --workers 3 --batch 4 --steps 40 --eval-every 15 --save-every 15 "
	if got := learn(t, p, asp+"--out first"); got.Steps != 40 {
		t.Errorf("%+v", got)
	}
	learn(t, p, asp+"--replay first --out again")
	sameTensors(t, p, "first/checkpoints", "again/checkpoints")

	p.Run(t, strings.Fields("train --resume again --steps 45"), true) // here steps 41 to 45 are not replayed
	learn(t, p, asp+"--steps 45 --replay again --out third")
	sameTensors(t, p, "again/checkpoints", "third/checkpoints")

	learn(t, p, "--resume first --steps 60 --out first")
	learn(t, p, asp+"--steps 60 --replay first --out longer")
	sameTensors(t, p, "first/checkpoints", "longer/checkpoints")

	for line, want := range map[string]string{
		asp + "--replay first --save-every 7 --eval-every 0 --out w": "evaluate and save as often as the run that it is of",
		"--replay first --out x":                                     "an order of updates to replay, with weights sync",
		asp + "--replay mlp.json --out y":                            "--replay: mlp.json is no folder of a run",
		"--steps 3 --staleness 1 --schedule dp --out z":              "a worker is ahead of others under schedule asp alone",
	} {
		out := p.Run(t, strings.Fields("train --model mlp --data digits --profile mlp.json "+line), false)
		if !strings.Contains(out, want) {
			t.Errorf("%s: %s", line, out)
		}
	}
}
