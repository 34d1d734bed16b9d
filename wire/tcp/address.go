package tcp

import (
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/millrace-ml/millrace/wire"
)

const (
	engine  = "tcp"
	plain   = "plain"
	secured = "tls"
)

// place is the content of an address: TLS or not, host and port.
type place struct {
	tls        bool
	host, port string
}

func (p place) String() string { return net.JoinHostPort(p.host, p.port) }

func (p place) address() wire.Address {
	way := plain
	if p.tls {
		way = secured
	}
	return wire.Address{Engine: engine, Version: fmt.Sprint(version), Data: []byte(way + " " + p.String())}
}

// placeOf reads what the method `address` wrote.
func placeOf(a, own wire.Address) (place, error) {
	if err := a.Check(own); err != nil {
		return place{}, err
	}
	way, at, _ := strings.Cut(string(a.Data), " ")
	host, port, err := net.SplitHostPort(at)
	if err != nil || host == "" || port == "" || way != plain && way != secured {
		return place{}, fmt.Errorf("tcp: an address is %q; it is %s or %s, and HOST:PORT", a.Data, plain, secured)
	}
	if mine, _, _ := strings.Cut(string(own.Data), " "); mine != way {
		return place{}, fmt.Errorf("tcp: %s speaks %s, and this process %s; both must be the same", at, way, mine)
	}
	return place{way == secured, host, port}, nil
}

// AddressOf returns the address of an Endpoint that listens at HOST:PORT. If t is not nil, the Endpoint uses TLS.
func AddressOf(at string, t *TLS) (wire.Address, error) {
	host, port, err := net.SplitHostPort(at)
	if err != nil || host == "" || port == "" {
		return wire.Address{}, fmt.Errorf("tcp: the address is %q; it is HOST:PORT", at)
	}
	return place{t != nil, host, port}.address(), nil
}

// listensAt completes the address to listen on. An address without a host gets the loopback. An address without a port
// gets any port.
func listensAt(at string) (string, error) {
	if at == "" {
		at = ":0"
	}
	host, port, err := net.SplitHostPort(at)
	if err != nil {
		return "", fmt.Errorf("tcp: the address to listen on is %q; it is HOST:PORT, :PORT or empty", at)
	}
	if host == "" {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port), nil
}

// advertised returns the host and port under which other processes find a listener.
func advertised(on net.Addr, host string) (string, string, error) {
	own, port, err := net.SplitHostPort(on.String())
	if err != nil {
		return "", "", fmt.Errorf("tcp: %w", err)
	}
	if host != "" {
		return host, port, nil
	}
	if ip := net.ParseIP(own); ip != nil && ip.IsUnspecified() {
		return "", "", errors.New("tcp: it listens on every address of this host; say by which one others reach it")
	}
	return own, port, nil
}
