package tcp

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"time"
)

// errSilent reports a host that has acknowledged nothing for this long.
type errSilent time.Duration

func (e errSilent) Error() string {
	return fmt.Sprintf("its host has acknowledged nothing for %v", time.Duration(e).Round(100*time.Millisecond))
}

// Timeout marks the error as a timeout.
func (errSilent) Timeout() bool { return true }

// watch cuts connections whose other host no longer answers. It covers connections with unacknowledged data; the
// keepalive of package net covers idle ones. TCP's own limit (TCP_USER_TIMEOUT) cannot be used, because it would also
// end connections whose receiver is only slow to read.
func (e *Endpoint) watch() {
	every := time.NewTicker(e.limits.look)
	defer every.Stop()
	for {
		select {
		case <-e.ctx.Done():
			return
		case <-every.C:
		}
		e.mu.Lock()
		all := slices.Collect(maps.Keys(e.conns))
		e.mu.Unlock()
		for _, c := range all {
			if tcp, ok := c.raw.(*net.TCPConn); ok {
				if quiet := unanswered(tcp); quiet > e.limits.silence {
					c.cut(errSilent(quiet))
				}
			}
		}
	}
}
