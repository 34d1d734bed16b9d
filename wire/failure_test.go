package wire

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
)

// TestGone: some errors of a connection mean that its other end is gone; other errors are problems of this process.
func TestGone(t *testing.T) {
	on := func(op string, err error) error {
		return fmt.Errorf("to worker 1: %w", &net.OpError{Op: op, Net: "tcp", Err: err})
	}
	call := func(name string, err error) error { return on(name, os.NewSyscallError(name, err)) }
	for _, err := range []error{io.EOF, io.ErrUnexpectedEOF, call("read", syscall.ECONNRESET),
		call("write", syscall.EPIPE), call("connect", syscall.ECONNREFUSED), call("connect", syscall.EHOSTUNREACH),
		call("connect", syscall.ETIMEDOUT), call("connect", syscall.ENETUNREACH), on("read", os.ErrDeadlineExceeded),
		context.DeadlineExceeded, on("dial", &net.DNSError{Err: "no such host", Name: "b", IsNotFound: true})} {
		if !Gone(err) {
			t.Errorf("%v is taken for this process's own", err)
		}
	}
	for _, err := range []error{nil, errors.New("frame 3 comes twice"), call("socket", syscall.EMFILE),
		call("socket", syscall.ENFILE), call("connect", syscall.EADDRNOTAVAIL), call("connect", syscall.EACCES),
		call("connect", syscall.EPERM), call("socket", syscall.ENOBUFS), on("remote error", tls.AlertError(42)),
		on("read", net.ErrClosed), context.Canceled,
		on("dial", &net.DNSError{Err: "server misbehaving", Name: "b", IsTemporary: true}),
		on("dial", &net.DNSError{Err: "too many open files", Name: "b", UnwrapErr: call("socket", syscall.EMFILE)})} {
		if Gone(err) {
			t.Errorf("%v is taken for the other end's", err)
		}
	}
}
