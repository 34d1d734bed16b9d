package shared

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// PipelineLength is one case of DAPPLE's published script: a strict 1F1B order over stages. Each link between two
// stages is a stage of its own. Length is when its last backward ends.
type PipelineLength struct {
	Name              string
	Forward, Backward []float64 // seconds of one micro-batch, by stage
	MicroBatches      int       `json:"micro_batches"`
	Warmup            []int     `json:"initial_micro_batches_per_stage"`
	Length            float64   `json:"pipeline_length"` // seconds
}

// PipelineLengths reads all hundred cases. It skips the test if the folder is absent.
func PipelineLengths(t testing.TB) []PipelineLength {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(Dir(t), "oracles", "hpgo_pipeline_length_cases.json"))
	if err != nil {
		t.Skip("shared folder absent: ", err)
	}
	var file struct{ Cases []PipelineLength }
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Cases) < 100 {
		t.Fatalf("%d pipeline lengths; there are 100", len(file.Cases))
	}
	return file.Cases
}
