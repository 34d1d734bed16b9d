package control

import "fmt"

// LostError says that a process is lost: its Link has ended, or it owes an answer for too long.
//
// It goes to the other processes with Failed, so that each can tell a peer's end from a failure of its own.
type LostError struct {
	Process int    `json:"process"`
	Name    string `json:"name"` // how the run calls it
	Why     string `json:"why"`  // how it was noticed
	Err     error  `json:"-"`    // the same, in the process that noticed it
}

// NewLost is the LostError of a process that is called name.
func NewLost(process int, name string, err error) *LostError {
	return &LostError{Process: process, Name: name, Why: err.Error(), Err: err}
}

func (e *LostError) Error() string { return fmt.Sprintf("%s is lost: %s", e.Name, e.Why) }

// Unwrap is how it was noticed.
func (e *LostError) Unwrap() error { return e.Err }
