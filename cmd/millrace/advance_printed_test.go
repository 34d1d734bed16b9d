package main

import (
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/cmd/internal/clitest"
)

// TestAdvanceAsPrinted: AvgPipe's Algorithm 1 begins with 1F1B, K-k forwards in advance on GPU k (§4.2), and adds
// one. Each of three GPUs that runs it for itself goes from 3, 2, 1 to 4, 3, 2; graded, the last stage stays at 1.
func TestAdvanceAsPrinted(t *testing.T) {
	clitest.NeedTorch(t)
	for rule, want := range map[string]string{"printed": "next [4 3 2]", "auto": "next [4 3 1]"} {
		_, errs, code := ran(t, strings.Fields("train --model mlp --data digits --batch 16 --workers 3 --stages 3 "+
			"--schedule 1f1b --micro-batches 8 --steps 12 --advance "+rule+" --out "+t.TempDir()+"/run")...)
		if code != 0 || !strings.Contains(errs, "advance: depths [3 2 1] took") || !strings.Contains(errs, want) {
			t.Errorf("--advance %s: exit %d; want %q\n%s", rule, code, want, errs)
		}
	}
}
