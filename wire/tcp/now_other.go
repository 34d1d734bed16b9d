//go:build !unix

package tcp

import "net"

// atOnce is known of Unix alone; elsewhere each connection has a goroutine that writes.
func atOnce(net.Conn) func(b []byte) int { return nil }
