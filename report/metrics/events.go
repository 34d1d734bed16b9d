package metrics

import (
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// Kinds of an Event.
const (
	Begun    = "begun"
	Saved    = "checkpoint"
	Waiting  = "waiting"  // nothing happens, or a step takes far longer than others; Lines say who waits for whom
	Slower   = "pace"     // a worker computes slower than its profile says, or does so no more
	Warned   = "warning"  // predictions or metrics do not hold
	Finished = "finished" // all steps are done
	Stopped  = "stopped"  // it was told to stop, and has saved itself
	Failed   = "failed"
)

// Event is something that happened to a run beside its steps.
type Event struct {
	Time  time.Time `json:"time"`
	Step  int       `json:"step"` // so many are done
	Kind  string    `json:"kind"`
	Text  string    `json:"text"`
	Lines []string  `json:"lines,omitempty"`
}

// EventLog writes one Event a line, each at once, so that a file can be read while the run goes on.
type EventLog struct{ w io.Writer }

// NewEventLog writes to w, which it does not close.
func NewEventLog(w io.Writer) *EventLog { return &EventLog{w} }

// Write writes an Event.
func (l *EventLog) Write(e Event) error {
	line, err := json.Marshal(e)
	if err == nil {
		_, err = l.w.Write(append(line, '\n'))
	}
	if err != nil {
		return fmt.Errorf("report: events: %w", err)
	}
	return nil
}
