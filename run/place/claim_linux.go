package place

import (
	"errors"
	"fmt"
	"syscall"
)

// claimProcessor says that the caller binds threads to a processor; false where somebody has said
// so already, in this process or another.
//
// The claim is the name of a socket that nobody connects to, in Linux's abstract namespace: there
// is no file that could be left behind or belong to another user, and the kernel takes the name
// back from a process that dies. Containers with networks of their own do not see each other's.
// Where there can be no such socket, nobody's claim is known, and the caller has its.
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
