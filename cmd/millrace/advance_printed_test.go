package main

import (
	"strings"
	"testing"
)

// TestAdvanceAsPrinted: in AvgPipe's Algorithm 1 (§4.2), GPU k of K begins with the K-k advance forwards of 1F1B, and
// then adds one. With --advance printed, each of three GPUs does so by itself: the warm-ups go from 3, 2, 1 to 4, 3, 2.
// With --advance auto, the warm-up of the last stage stays at 1.
func TestAdvanceAsPrinted(t *testing.T) {
	p := profiled(t)
	for rule, want := range map[string]string{"printed": "next [4 3 2]", "auto": "next [4 3 1]"} {
		out, err := p.Command(t, strings.Fields("train --model mlp --data digits --profile mlp.json --batch 32 --workers 3 "+
			"--stages 3 --schedule 1f1b --micro-batches 8 --steps 12 --advance "+rule+" --out "+rule)).CombinedOutput()
		if err != nil || !strings.Contains(string(out), "advance: depths [3 2 1] took") ||
			!strings.Contains(string(out), want) {
			t.Errorf("--advance %s: %v; want %q\n%s", rule, err, want, out)
		}
	}
}
