package tcp

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// tries is how often the kernel has sent the same without an answer before that means anything.
const tries = 3

// unanswered is how long a host has acknowledged nothing although it was probed repeatedly; 0 where it was not probed.
func unanswered(c *net.TCPConn) (quiet time.Duration) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0 // closed
	}
	_ = raw.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		if err == nil {
			quiet = silent(info)
		}
	})
	return quiet
}

func silent(info *unix.TCPInfo) time.Duration {
	if info.Retransmits < tries && info.Probes < tries {
		return 0
	}
	return time.Duration(info.Last_ack_recv) * time.Millisecond
}
