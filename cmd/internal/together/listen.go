package together

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/millrace-ml/millrace/launch"
	"github.com/millrace-ml/millrace/launch/rendezvous"
	"github.com/millrace-ml/millrace/wire/tcp"
)

// listen makes the Endpoint at which other processes reach this one. Rank 0 listens at the address that its launcher
// set; other ranks listen on any port.
func listen(ctx context.Context, w *launch.World, tls *tcp.TLS) (*tcp.Endpoint, error) {
	if w.Rank > 0 {
		return listenOn(ctx, w, tls, "0")
	}
	var e *tcp.Endpoint
	err := patiently(ctx, w, "cannot listen", func() (again bool, err error) {
		e, err = listenOn(ctx, w, tls, strconv.Itoa(w.Port))
		return errors.Is(err, syscall.EADDRINUSE), err // a process of an earlier start may still use the port
	})
	return e, err
}

// listenOn does what listen does, on a given port.
func listenOn(ctx context.Context, w *launch.World, tls *tcp.TLS, port string) (*tcp.Endpoint, error) {
	token, err := w.Token.Read(os.Environ())
	if err != nil {
		return nil, err
	}
	c := tcp.Config{Token: token, Run: fmt.Sprintf("%s %d", w.RunID, w.Restart), Process: w.Rank, TLS: tls,
		Log: slog.Default()}
	own, err := ownHost(ctx, w)
	if err != nil {
		return nil, err
	}
	everywhere := net.JoinHostPort("0.0.0.0", port) // listens on IPv4 and IPv6
	// Other processes get `own` itself, because a system may drop the zone from the address that a listener reports.
	if c.Address, c.Advertise = net.JoinHostPort(own, port), own; own == "" {
		c.Address, c.Advertise = everywhere, w.Address
	}
	e, err := tcp.Listen(ctx, c)
	if w.Rank == 0 && errors.Is(err, syscall.EADDRNOTAVAIL) { // the address is of a device that forwards to this host
		c.Address, c.Advertise = everywhere, w.Address
		e, err = tcp.Listen(ctx, c)
	}
	return e, err
}

// encryption returns the TLS settings that a World asks for; nil for none. If the World names authorities, every
// process must show a certificate.
func encryption(asked *launch.TLS) (*tcp.TLS, error) {
	switch {
	case asked == nil:
		return nil, nil
	case asked.Certificate == "":
		return &tcp.TLS{}, nil
	}
	t, err := tcp.ReadTLS(asked.Certificate, asked.Key, asked.Roots)
	if err != nil {
		return nil, fmt.Errorf("%s, %s, %s: %w", launch.TLSCertVar, launch.TLSKeyVar, launch.TLSRootsVar, err)
	}
	t.Mutual = asked.Roots != ""
	return t, nil
}

// tryAgain is the time between two attempts. tellAgain is the time between two log lines about attempts.
const (
	tryAgain  = 500 * time.Millisecond
	tellAgain = 10 * time.Second
)

// patiently calls `try` until no further attempt can help, but no longer than processes wait for each other.
func patiently(ctx context.Context, w *launch.World, trouble string, try func() (again bool, err error)) error {
	wait := cmp.Or(w.Wait, rendezvous.DefaultWait)
	late := time.After(wait)
	var told time.Time
	for {
		again, err := try()
		if !again {
			return err
		}
		if time.Since(told) >= tellAgain {
			told = time.Now()
			slog.Info(trouble+" yet; trying again", "rank", w.Rank, "address", w.Meet(), "error", err)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-late:
			return &rendezvous.Refused{Retry: true, Reasons: []string{fmt.Sprintf("rank %d %s at %s within %v: %v; %s and %s "+
				"say where rank 0 is met", w.Rank, trouble, w.Meet(), wait, err, launch.MasterAddrVar, launch.MasterPortVar)}}
		case <-time.After(tryAgain):
		}
	}
}

// isLocalhost reports whether a name means the local host on every host (RFC 6761, section 6.3).
func isLocalhost(name string) bool {
	name = strings.TrimSuffix(strings.ToLower(name), ".")
	return name == "localhost" || strings.HasSuffix(name, ".localhost")
}

// ownHost returns the address of this host that other processes can reach. For rank 0 it is the first of its own
// addresses that can be reached. For other ranks it is the local address of the route to rank 0. In two cases ownHost
// returns "", and the others must use rank 0's name instead. In the first case, the name leads to the loopback although
// there are several hosts. In the second, this is rank 0, and its name has addresses of both IP versions; other hosts
// may have only one version.
func ownHost(ctx context.Context, w *launch.World) (own string, err error) {
	err = patiently(ctx, w, "finds no way to rank 0", func() (again bool, err error) {
		all, err := addressesOf(ctx, w.Address)
		if err == nil {
			own, err = wayTo(w, all, func(to netip.Addr) (netip.Addr, error) {
				var dialer net.Dialer
				at := netip.AddrPortFrom(to, uint16(w.Port)).String()
				conn, err := dialer.DialContext(ctx, "udp", at) // a UDP dial sends nothing
				if err != nil {
					return netip.Addr{}, err
				}
				defer conn.Close()
				return conn.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap(), nil
			})
		}
		return err != nil, err // name servers may learn rank 0's name later
	})
	return own, err
}

// addressesOf returns the addresses of a host, IPv4 first. A host with both versions is then reachable for hosts
// that have only IPv4.
func addressesOf(ctx context.Context, host string) ([]netip.Addr, error) {
	if literal, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{literal.Unmap()}, nil
	}
	all, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	for i := range all {
		all[i] = all[i].Unmap()
	}
	slices.SortStableFunc(all, func(a, b netip.Addr) int { return cmp.Compare(a.BitLen(), b.BitLen()) })
	return all, err
}

// wayTo returns ownHost's result for the first of rank 0's addresses that can be reached. The function `from` returns
// the local address of the route to an address.
func wayTo(w *launch.World, all []netip.Addr, from func(netip.Addr) (netip.Addr, error)) (string, error) {
	_, err := netip.ParseAddr(w.Address)
	named := err != nil && !isLocalhost(w.Address)
	families := map[bool]bool{}
	for _, to := range all {
		families[to.Is4()] = true
	}
	err = fmt.Errorf("%s has no address", w.Address)
	for _, to := range all {
		var own netip.Addr
		if own, err = from(to); err != nil {
			continue
		}
		switch {
		case named && to.IsLoopback() && !w.OnOneHost():
			return "", nil
		case named && w.Rank == 0 && len(families) > 1 && !w.OnOneHost():
			return "", nil
		case w.Rank == 0:
			return to.String(), nil
		}
		return own.String(), nil
	}
	return "", err
}
