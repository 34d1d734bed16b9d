package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/plan"
)

// A Program may place each of its stages on a different number of workers. The plan for the Program keeps these
// numbers, in the Program's order.
func TestAProgramMayReplicateStagesUnevenly(t *testing.T) {
	p := bare(t)
	for _, order := range []string{"1f1b --replicas 2,1", "1f1b --replicas 1,2", "1f1b --replicas 3,1",
		"1f1b --replicas 2,1,1", "afab --replicas 1,3,2", "1f1b-rr --replicas 2,1"} {
		program, err := p.Command(t, strings.Fields("schedule "+order+" --micro-batches 6 --text")).Output()
		if err != nil {
			t.Fatalf("%s: %v", order, err)
		}
		if err := os.WriteFile(filepath.Join(p.Dir, "program.txt"), program, 0o600); err != nil {
			t.Fatal(err)
		}
		var want []int
		workers := 0
		for text := range strings.SplitSeq(strings.Fields(order)[2], ",") {
			n := int(text[0] - '0')
			want, workers = append(want, n), workers+n
		}
		for _, split := range []string{"", " --split dense1"} {
			if split != "" && len(want) != 2 {
				continue
			}
			line := fmt.Sprintf("plan --model mlp --cluster dapple-a:1x%d --batch 48 --program program.txt --json", workers) +
				split
			text, err := p.Command(t, strings.Fields(line)).Output()
			var out struct{ Plan plan.Plan }
			if err != nil || json.Unmarshal(text, &out) != nil {
				t.Errorf("%s: %v: %s", order+split, err, text)
				continue
			}
			var got []int
			for _, s := range out.Plan.Stages {
				got = append(got, len(s.Devices))
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s: stages on %v workers, want %v", order+split, got, want)
			}
		}
	}
}
