package tcp

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// tries is how many unanswered retransmissions or probes in a row count as silence.
const tries = 3

// unanswered returns how long ago a host last acknowledged something, if it has not answered repeated probes since. It
// returns 0 if fewer than `tries` probes or retransmissions in a row went unanswered.
func unanswered(c *net.TCPConn) (quiet time.Duration) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0 // the connection is closed
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
