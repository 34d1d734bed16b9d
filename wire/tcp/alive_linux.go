package tcp

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// tries is how many unanswered retransmissions or probes in a row count as silence.
const tries = 3

// unanswered returns for how long a host has acknowledged nothing, although it was probed repeatedly. It returns 0 if
// fewer than tries probes or retransmissions went unanswered.
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
