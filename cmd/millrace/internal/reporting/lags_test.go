package reporting

import (
	"fmt"
	"testing"

	"github.com/millrace-ml/millrace/plan"
)

// By PipeDream §3.3, stage s of S stages uses weights that are S-1-s updates old with weight stashing. With vertical
// sync, the weights are S-1 updates old on every stage. With latest weights a forward's weights are as old as with
// stashing, but a backward uses the newest weights. A plan that flushes has no lags.
func TestLagsAreThoseOfThePapers(t *testing.T) {
	p := &plan.Plan{Version: plan.Version, Model: "m", MicroBatch: 1, MicroBatches: 1, Schedule: "1f1b-rr",
		Replication: "round_robin"}
	for s := range 3 {
		p.Stages = append(p.Stages, plan.Stage{FirstLayer: s, LastLayer: s, Devices: []int{s}})
	}
	for weights, want := range map[string]string{"stash": "2/2 1/1 0/0", "vertical": "2/2 2/2 2/2",
		"latest": "2/0 1/0 0/0", "sync": ""} {
		p.Weights = weights
		got := ""
		for i, l := range lags(p) {
			if l.Stage != i || l.Span != 1 {
				t.Errorf("%s: %+v", weights, l)
			}
			got += fmt.Sprintf(" %d/%d", l.Forward, l.Backward)
		}
		if got != "" {
			got = got[1:]
		}
		if got != want {
			t.Errorf("%s: forward and backward of the stages are %q updates behind, want %q", weights, got, want)
		}
	}
}
