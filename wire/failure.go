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

// ErrClosed is returned by calls on a closed port or carrier.
var ErrClosed = errors.New("wire: the port is closed")

// PeerError says which worker failed, and why.
type PeerError struct {
	Rank int
	Err  error
	// Lost says that the connection to the worker has ended (Gone). The cause is then probably the worker's process,
	// not this one.
	Lost bool
}

func (e *PeerError) Error() string { return fmt.Sprintf("wire: worker %d failed: %v", e.Rank, e.Err) }

// Unwrap returns the failure itself.
func (e *PeerError) Unwrap() error { return e.Err }

// gone lists errors which mean that the other end of a connection, or the route to it, no longer exists.
var gone = []error{io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, syscall.EPIPE, syscall.ECONNREFUSED,
	syscall.ECONNABORTED, syscall.EHOSTUNREACH, syscall.EHOSTDOWN, syscall.ENETUNREACH, syscall.ENETDOWN}

// Gone says whether an error means that the other end of a connection, or the route to it, is gone. Then the connection
// was closed, nobody listens there, the host or its name cannot be found, or nothing arrived in time. Every other error
// is a problem of this process or of the data. Examples are too many open files, no free port, a firewall or resolver
// of this host, or a refused certificate.
func Gone(err error) bool {
	var late interface{ Timeout() bool }
	var name *net.DNSError
	return slices.ContainsFunc(gone, func(end error) bool { return errors.Is(err, end) }) ||
		errors.As(err, &late) && late.Timeout() || errors.As(err, &name) && name.IsNotFound
}

// failed is a PeerError as JSON, for sending between processes.
type failed struct {
	Rank int    `json:"rank"`
	Why  string `json:"why"`
}

// MarshalText encodes the rank and the text of the error, for the control connection.
func (e *PeerError) MarshalText() ([]byte, error) {
	return json.Marshal(failed{e.Rank, e.Err.Error()})
}

// UnmarshalText reads what MarshalText wrote. Only the rank and the text of the error survive.
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
