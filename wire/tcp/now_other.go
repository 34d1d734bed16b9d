//go:build !unix

package tcp

import "net"

// atOnce returns nil: it is implemented for Unix only. Elsewhere a goroutine for each connection writes everything.
func atOnce(net.Conn) func(b []byte) int { return nil }
