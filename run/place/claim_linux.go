package place

import (
	"errors"
	"fmt"
	"syscall"
)

// claimProcessor claims a processor for binding threads to it. `ok` is false if this or another process has claimed it.
//
// The claim is the name of a socket without connections, in Linux's abstract namespace. No file can be left behind or
// belong to another user, and the kernel frees the name when the process dies. Containers with their own networks do
// not see each other's claims. If no such socket can be made, the claim succeeds.
func claimProcessor(n int) (giveUp func(), ok bool) {
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_DGRAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return func() {}, true
	}
	err = syscall.Bind(fd, &syscall.SockaddrUnix{Name: fmt.Sprintf("@millrace/processor/%d", n)})
	if errors.Is(err, syscall.EADDRINUSE) {
		syscall.Close(fd)
		return nil, false
	}
	return func() { syscall.Close(fd) }, true
}
