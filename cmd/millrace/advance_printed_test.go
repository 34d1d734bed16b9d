package main

import (
	"strings"
	"testing"
)

// TestAdvanceAsPrinted: AvgPipe's Algorithm 1 begins with 1F1B, adds K-k advance forwards on GPU k (§4.2), and then one
// more. If each of three GPUs runs it by itself, their warm-ups go from 3, 2, 1 to 4, 3, 2. In the graded form the last
// stage stays at 1.
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
