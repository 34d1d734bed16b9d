package bench

// Held is what a schedule holds with so many micro-batches in a step.
type Held struct {
	Schedule     string  `json:"schedule"`
	MicroBatches int     `json:"micro_batches"`
	Predicted    []int64 `json:"predicted_bytes"` // by worker
	Measured     []int64 `json:"measured_bytes"`
}
