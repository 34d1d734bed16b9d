//go:build !linux

package tcp

import (
	"net"
	"time"
)

// unanswered is known of Linux alone; elsewhere keepalive and the kernel's own limits hold.
func unanswered(*net.TCPConn) time.Duration { return 0 }
