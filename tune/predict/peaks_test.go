package predict

import (
	"slices"
	"testing"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/plan/plantest"
)

// Measured devices in processes of their own have the bounds that they have in one process. Described devices that
// share no memory have none.
func TestProcessesHaveBoundsOfMemory(t *testing.T) {
	pl := &plan.Plan{Version: plan.Version, Model: "chain", Replication: "split", MicroBatch: 1, MicroBatches: 4,
		Schedule: "1f1b", Weights: "sync", Stages: []plan.Stage{{LastLayer: 3, Devices: []int{0}},
			{FirstLayer: 4, LastLayer: 7, Devices: []int{1}}}}
	apart := func(engine string, one bool) plan.Predicted {
		p := plantest.Chain(8, 1)
		p.Engine = engine
		c := cluster.Local("cpu", 2, 0, 0, 0, 1e9, 1e9)
		c.Levels = slices.Clone(c.Levels)
		c.Levels[0].OneMemory = one
		predicted, err := Plan(p, c, pl, false)
		if err != nil {
			t.Fatal(err)
		}
		return predicted
	}
	threads, processes, described := apart("torch", true), apart("torch", false), apart("", false)
	if threads.AtMostBytes == nil || !slices.Equal(processes.AtMostBytes, threads.AtMostBytes) ||
		!slices.Equal(processes.EvaluationBytes, threads.EvaluationBytes) {
		t.Errorf("in processes at most %d and %d; in one %d and %d", processes.AtMostBytes, processes.EvaluationBytes,
			threads.AtMostBytes, threads.EvaluationBytes)
	}
	if described.AtMostBytes != nil {
		t.Errorf("described devices: at most %d", described.AtMostBytes)
	}
}
