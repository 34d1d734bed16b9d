//go:build !linux

package tcp

import (
	"net"
	"time"
)

// unanswered always returns 0: it is implemented for Linux only. Elsewhere keepalive and the kernel's own limits
// apply.
func unanswered(*net.TCPConn) time.Duration { return 0 }
