package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"syscall"
)

// ErrClosed is what calls on a closed port or carrier return.
var ErrClosed = errors.New("wire: the port is closed")

// PeerError says which worker failed, and why.
type PeerError struct {
	Rank int
	Err  error
	// Lost says that its connection has ended (Gone): it may be its process that has, and not this one's fault.
	Lost bool
}

func (e *PeerError) Error() string { return fmt.Sprintf("wire: worker %d failed: %v", e.Rank, e.Err) }

// Unwrap is the failure itself.
func (e *PeerError) Unwrap() error { return e.Err }

// gone is what a connection's end says whose other end, or the way there, is not there any more.
var gone = []error{io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, syscall.EPIPE, syscall.ECONNREFUSED,
	syscall.ECONNABORTED, syscall.EHOSTUNREACH, syscall.EHOSTDOWN, syscall.ENETUNREACH, syscall.ENETDOWN}

// Gone says whether an error of a connection is that its other end, or the way there, is not there any more: it ends,
// nobody is there, or nothing comes in time. All else is a trouble of this process's own or of what was said, such as
// no files or ports left, a firewall or a resolver of this host's, or a certificate that is refused.
func Gone(err error) bool {
	var late interface{ Timeout() bool }
	var name *net.DNSError
	return slices.ContainsFunc(gone, func(end error) bool { return errors.Is(err, end) }) ||
		errors.As(err, &late) && late.Timeout() || errors.As(err, &name) && name.IsNotFound
}

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
