package wire

import (
	"encoding/json"
	"errors"
	"fmt"
)

// ErrClosed is what calls on a closed port or carrier return.
var ErrClosed = errors.New("wire: the port is closed")

// PeerError says which worker failed, and why.
type PeerError struct {
	Rank int
	Err  error
	// Lost says that its connection has ended: it may be its process that has, and not this one's fault.
	Lost bool
}

func (e *PeerError) Error() string { return fmt.Sprintf("wire: worker %d failed: %v", e.Rank, e.Err) }

// Unwrap is the failure itself.
func (e *PeerError) Unwrap() error { return e.Err }

// failed is a PeerError between processes.
type failed struct {
	Rank int    `json:"rank"`
	Why  string `json:"why"`
}

// MarshalText writes a failure for the control connection: rank and text.
func (e *PeerError) MarshalText() ([]byte, error) {
	return json.Marshal(failed{e.Rank, e.Err.Error()})
}

// UnmarshalText reads what MarshalText wrote. Of the error itself its text is left.
func (e *PeerError) UnmarshalText(text []byte) error {
	var f failed
	if err := json.Unmarshal(text, &f); err != nil {
		return fmt.Errorf("wire: a peer's failure: %w", err)
	}
	if f.Rank < 0 || f.Why == "" {
		return fmt.Errorf("wire: a peer's failure names rank %d and %q; it needs both", f.Rank, f.Why)
	}
	e.Rank, e.Err = f.Rank, errors.New(f.Why)
	return nil
}
