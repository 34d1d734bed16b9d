package main

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/plan"
)

// --split fixes the cuts, and the search chooses everything else. If the cuts are those of the plan that a search
// without --split finds, the new plan is no slower than that plan.
func TestASplitLeavesTheRestToTheSearch(t *testing.T) {
	p := bare(t)
	planned := func(line string) *plan.Plan {
		t.Helper()
		text, err := p.Command(t, strings.Fields(line+" --json")).Output()
		var out struct{ Plan plan.Plan }
		if err != nil || json.Unmarshal(text, &out) != nil || out.Plan.Predicted == nil {
			t.Fatalf("%s: %v: %s", line, err, text)
		}
		return &out.Plan
	}
	for _, of := range []string{
		"--model gpt --cluster dapple-a:2x4 --batch 64 --stages 2",
		"--model gpt --cluster dapple-c:4 --batch 64 --stages 3",
		"--model convnet --cluster dapple-c:2 --batch 64 --stages 2",
	} {
		free := planned("plan " + of)
		var cuts []string
		for _, s := range free.Stages[1:] {
			cuts = append(cuts, strconv.Itoa(s.FirstLayer))
		}
		if free.Order != nil || len(cuts) == 0 || len(free.Stages) > len(free.Devices()) {
			t.Fatalf("%s has %d stages on %d workers; the test needs a plain pipeline", of, len(free.Stages),
				len(free.Devices()))
		}
		split := of + " --split " + strings.Join(cuts, ",")
		for _, line := range []string{split, split + " --schedule " + free.Schedule} {
			if got := planned("plan " + line).Predicted.StepS; got > free.Predicted.StepS*1.005 {
				t.Errorf("%s takes %v s, and without the split %v s", line, got, free.Predicted.StepS)
			}
		}
	}
}
