package tcp

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"time"
)

// errSilent is a host that acknowledges nothing.
type errSilent time.Duration

func (e errSilent) Error() string {
	return fmt.Sprintf("its host has acknowledged nothing for %v", time.Duration(e).Round(100*time.Millisecond))
}

// Timeout says that it came too late.
func (errSilent) Timeout() bool { return true }

// watch cuts connections whose other host does not answer any more. Package net's keepalive covers those on
// which nothing is under way, and a limit of TCP's own for the others (TCP_USER_TIMEOUT) would end those,
// too, whose receiver is only slow to read.
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
