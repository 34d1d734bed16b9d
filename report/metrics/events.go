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
	Waiting  = "waiting"  // nothing happens, or a step takes far longer than other steps; Lines say who waits for whom
	Slower   = "pace"     // a worker begins or ceases to be slower than in its profile, or the whole machine is slow
	Warned   = "warning"  // something is wrong that does not end the run
	Finished = "finished" // all steps are done
	Stopped  = "stopped"  // the run was stopped, and has saved its state
	Failed   = "failed"
)

// Event is something that happened in a run besides its steps.
type Event struct {
	Time  time.Time `json:"time"`
	Step  int       `json:"step"` // number of steps done
	Kind  string    `json:"kind"`
	Text  string    `json:"text"`
	Lines []string  `json:"lines,omitempty"`
}

// EventLog writes each Event at once, one on a line, so that the file can be read while the run goes on.
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
