package sim

import (
	"math"
	"testing"

	"github.com/millrace-ml/millrace/internal/shared"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/schedule/lower"
)

// TestPipelineLengthsAsPublished checks the lengths of about a hundred pipelines in a strict 1F1B order. The lengths
// are from the script of DAPPLE's published planner, which treats the network between two stages as a stage.
func TestPipelineLengthsAsPublished(t *testing.T) {
	for _, c := range shared.PipelineLengths(t) {
		S := len(c.Forward)
		for i, k := range c.Warmup { // the script's depths are not limited to the number of micro-batches
			c.Warmup[i] = min(k, c.MicroBatches)
		}
		p, err := family.Generate("1f1b", schedule.Settings{
			Placement: straight(S), MicroBatches: c.MicroBatches, Warmup: c.Warmup,
		})
		if err == nil {
			p, err = lower.Lower(p, lower.Options{})
		}
		if err != nil {
			t.Fatalf("%s: %v", c.Name, err)
		}
		costs := Uniform(S, 0, 0, 0)
		for s := range S {
			costs.Stages[s][0].ForwardS, costs.Stages[s][0].BackwardS = c.Forward[s], c.Backward[s]
		}
		_, sum, err := Run(p, costs, Options{})
		if err != nil {
			t.Fatalf("%s: %v", c.Name, err)
		}
		if math.Abs(sum.StepS-c.Length) > 1e-9*c.Length {
			t.Errorf("%s, M %d, %v: %v, published %v", c.Name, c.MicroBatches, c.Warmup, sum.StepS, c.Length)
		}
	}
}
