// Package trace is the record that sim and run both write: the Timeline.
//
// In: events as they happen, on a virtual or a real clock. Out: a value that
// can be saved as versioned JSON, compared and drawn. Refused: files of
// another version, events that end before they start, workers out of range.
// It knows no other room: an instruction is kept as its text.
package trace

// Version of the JSON form.
const Version = 1

// Event is one instruction on one worker. Times are seconds since the Timeline began.
type Event struct {
	Worker      int     `json:"worker"`
	Lane        Lane    `json:"lane"`
	Instruction string  `json:"instruction"` // with absolute ids
	Kind        string  `json:"kind"`        // F, B, SF, ...
	Step        int     `json:"step"`
	ReadyS      float64 `json:"ready_s"` // the worker had reached it: all before it in the list had ended
	StartS      float64 `json:"start_s"`
	EndS        float64 `json:"end_s"`
	Bytes       int64   `json:"bytes,omitempty"`
	// BlockedBy is what the event waited for between ReadyS and StartS: an instruction,
	// "core", "link", or empty where it did not wait.
	BlockedBy string `json:"blocked_by,omitempty"`
}

// Lane is the part of a worker that an event occupies.
type Lane string

// A worker computes, and moves data beside that.
const (
	Compute Lane = "compute"
	Comm    Lane = "comm"
)

// MemorySample is what a worker holds at a moment.
type MemorySample struct {
	Worker int     `json:"worker"`
	AtS    float64 `json:"at_s"`
	Bytes  int64   `json:"bytes"`
}

// StepMark is one training step: from the first compute start to the last update's end.
type StepMark struct {
	Step   int     `json:"step"`
	StartS float64 `json:"start_s"`
	EndS   float64 `json:"end_s"`
}

// Loss is the mean loss over the samples of one step.
type Loss struct {
	Step  int     `json:"step"`
	Value float64 `json:"value"`
}

// Timeline is a run, real or simulated.
type Timeline struct {
	Version          int            `json:"version"`
	Source           string         `json:"source"` // "sim" or "run"
	Model            string         `json:"model,omitempty"`
	Workers          int            `json:"workers"`
	Stages           int            `json:"stages"`
	Cores            int            `json:"cores,omitempty"` // cores the workers share; 0: one each
	ThreadsPerWorker int            `json:"threads_per_worker,omitempty"`
	Events           []Event        `json:"events"`
	Memory           []MemorySample `json:"memory,omitempty"`
	PeakBytes        []int64        `json:"peak_bytes,omitempty"`       // by worker
	PeakActivations  []int          `json:"peak_activations,omitempty"` // by worker: micro-batches held at once
	Steps            []StepMark     `json:"steps,omitempty"`
	Losses           []Loss         `json:"losses,omitempty"`
}
