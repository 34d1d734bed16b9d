package bench

import (
	"fmt"

	"github.com/millrace-ml/millrace/lab/record"
)

// Memory is the result of bench memory.
type Memory struct {
	record.Head
	Model      string `json:"model"`
	MicroBatch int    `json:"micro_batch"` // in samples
	Held       []Held `json:"held"`
}

// Held is the memory that a schedule needs with this many micro-batches in a step.
type Held struct {
	Schedule     string  `json:"schedule"`
	MicroBatches int     `json:"micro_batches"`
	Predicted    []int64 `json:"predicted_bytes"` // by worker
	Measured     []int64 `json:"measured_bytes"`
}

// Kind returns the name of the benchmark, as in Head.Bench.
func (m *Memory) Kind() string { return "memory" }

// Recount returns an error for a schedule without measurements. If the results were not carried over, a schedule must
// also have predictions for as many workers as it has measurements. No number of this file is computed from others.
func (m *Memory) Recount() error {
	for i, h := range m.Held {
		if len(h.Measured) == 0 || len(h.Predicted) != len(h.Measured) && !m.Carried() {
			return fmt.Errorf("held[%d], %s with %d micro-batches, has %d workers predicted and %d measured", i, h.Schedule,
				h.MicroBatches, len(h.Predicted), len(h.Measured))
		}
	}
	return nil
}
