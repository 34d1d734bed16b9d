package control

import (
	"fmt"
	"time"
)

// LostError says that a process is lost: its Link has ended, or it owes an answer for too long.
//
// It goes to the other processes with Failed, so that each can tell a peer's end from a failure of its own.
type LostError struct {
	Process int    `json:"process"`
	Name    string `json:"name"` // how the run calls it
	Why     string `json:"why"`  // how it was noticed
	Err     error  `json:"-"`    // the same, in the process that noticed it
	Due     *Due   `json:"-"`    // what this process, or for the leader any, waited for longest; nil: nothing
}

// Due is the instruction of a lost process that a worker was waiting for.
type Due struct {
	Worker      int     `json:"worker"`      // that waited
	Of          int     `json:"of"`          // the worker that it waited for
	Instruction string  `json:"instruction"` // of that one, or the collective that has both
	Stage       int     `json:"stage"`       // its stage
	WaitedS     float64 `json:"waited_s"`
}

func (d *Due) String() string {
	waited := time.Duration(d.WaitedS * float64(time.Second)).Round(time.Millisecond)
	return fmt.Sprintf("worker %d had waited for %s of worker %d for %v", d.Worker, d.Instruction, d.Of, waited)
}

// NewLost is the LostError of a process that is called name.
func NewLost(process int, name string, err error) *LostError {
	return &LostError{Process: process, Name: name, Why: err.Error(), Err: err}
}

func (e *LostError) Error() string { return fmt.Sprintf("%s is lost: %s", e.Name, e.Why) }

// Unwrap is how it was noticed.
func (e *LostError) Unwrap() error { return e.Err }
