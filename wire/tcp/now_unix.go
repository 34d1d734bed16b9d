//go:build unix

package tcp

import (
	"net"
	"syscall"
)

// atOnce returns a function that writes as much as the kernel takes without waiting, possibly nothing. It returns
// nil if that is not possible.
func atOnce(c net.Conn) func(b []byte) int {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return nil
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return nil // closed; the connection's goroutine will notice
	}
	var all []byte
	n := 0
	try := func(fd uintptr) bool {
		n, _ = syscall.Write(int(fd), all)
		return true
	}
	return func(b []byte) int {
		all, n = b, 0
		_ = raw.Write(try)
		return max(n, 0)
	}
}
