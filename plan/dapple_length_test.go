package plan_test

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/millrace-ml/millrace/internal/shared"
	"github.com/millrace-ml/millrace/plan"
)

// TestPipelineLengthAsPublished: a hundred cases of the published script.
func TestPipelineLengthAsPublished(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(shared.Dir(t), "oracles", "hpgo_pipeline_length_cases.json"))
	if err != nil {
		t.Skip("shared folder absent: ", err)
	}
	var file struct {
		Cases []struct {
			Name              string
			Forward, Backward []float64
			MicroBatches      int     `json:"micro_batches"`
			Warmup            []int   `json:"initial_micro_batches_per_stage"`
			Length            float64 `json:"pipeline_length"`
		}
	}
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Cases) < 100 {
		t.Fatalf("%d cases", len(file.Cases))
	}
	for _, c := range file.Cases {
		got, err := plan.PipelineLength(c.Forward, c.Backward, c.MicroBatches, c.Warmup)
		if err != nil || math.Abs(got-c.Length) > 1e-9*c.Length {
			t.Errorf("%s, M %d, %v: %g, %v; published %g", c.Name, c.MicroBatches, c.Warmup, got, err, c.Length)
		}
	}
}

func TestPipelineLengthRefuses(t *testing.T) {
	for _, c := range []struct {
		forward, backward []float64
		m                 int
		warmup            []int
	}{
		{nil, nil, 1, nil}, {[]float64{1}, []float64{1}, 0, []int{1}}, {[]float64{1}, nil, 1, []int{1}},
		{[]float64{1, 1}, []float64{1, 1}, 2, []int{1, 2}}, {[]float64{1}, []float64{1}, 1, []int{0}},
	} {
		if _, err := plan.PipelineLength(c.forward, c.backward, c.m, c.warmup); err == nil {
			t.Errorf("%v is accepted", c)
		}
	}
}
