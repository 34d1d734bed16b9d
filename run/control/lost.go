package control

import (
	"fmt"
	"time"
)

// LostError reports a lost process. Its Link or a connection to it has ended, or it owes an answer for too long.
//
// It is sent to the other processes with Failed, so that each can tell the loss of a peer from a failure of its own.
type LostError struct {
	Process int    `json:"process"`
	Name    string `json:"name"` // its name in the run's errors
	Why     string `json:"why"`  // how the loss was noticed
	Err     error  `json:"-"`    // Why as an error, in the process that noticed the loss
	Due     *Due   `json:"-"`    // the longest wait of this process's workers (leader: of all workers) for it; nil: none
}

// Due is the instruction of a lost process that a worker was waiting for.
type Due struct {
	Worker      int     `json:"worker"`      // the waiting worker
	Of          int     `json:"of"`          // the worker that it waited for
	Instruction string  `json:"instruction"` // an instruction of that worker, or a collective of both
	Stage       int     `json:"stage"`       // the instruction's stage
	WaitedS     float64 `json:"waited_s"`
}

func (d *Due) String() string {
	waited := time.Duration(d.WaitedS * float64(time.Second)).Round(time.Millisecond)
	return fmt.Sprintf("worker %d had waited for %s of worker %d for %v", d.Worker, d.Instruction, d.Of, waited)
}

// NewLost returns the LostError of a process with this name.
func NewLost(process int, name string, err error) *LostError {
	return &LostError{Process: process, Name: name, Why: err.Error(), Err: err}
}

func (e *LostError) Error() string { return fmt.Sprintf("%s is lost: %s", e.Name, e.Why) }

// Unwrap returns how the loss was noticed.
func (e *LostError) Unwrap() error { return e.Err }
