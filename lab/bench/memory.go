package bench

import (
	"fmt"

	"github.com/millrace-ml/millrace/lab/record"
)

// Memory is everything that bench memory found.
type Memory struct {
	record.Head
	Model      string `json:"model"`
	MicroBatch int    `json:"micro_batch"` // samples
	Held       []Held `json:"held"`
}

// Held is what a schedule holds with so many micro-batches in a step.
type Held struct {
	Schedule     string  `json:"schedule"`
	MicroBatches int     `json:"micro_batches"`
	Predicted    []int64 `json:"predicted_bytes"` // by worker
	Measured     []int64 `json:"measured_bytes"`
}

// Kind is the report's name in its file.
func (m *Memory) Kind() string { return "memory" }

// Recount refuses a schedule without a measurement, each of which stands for itself.
func (m *Memory) Recount() error {
	for i, h := range m.Held {
		if len(h.Measured) == 0 || len(h.Predicted) != len(h.Measured) && !m.Carried() {
			return fmt.Errorf("held[%d], %s with %d micro-batches, has %d workers predicted and %d measured", i, h.Schedule,
				h.MicroBatches, len(h.Predicted), len(h.Measured))
		}
	}
	return nil
}
