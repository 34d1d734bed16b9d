package together

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/launch"
	"github.com/millrace-ml/millrace/launch/rendezvous"
	"github.com/millrace-ml/millrace/wire/tcp"
)

// If nobody knows the name of rank 0's host, a process does not wait forever. It fails with an error that names the
// process, rank 0's address, and the variable that sets this address.
func TestANameThatNobodyKnows(t *testing.T) {
	w := &launch.World{Rank: 1, Size: 2, Address: "no.such.invalid", Port: 1, Wait: 700 * time.Millisecond}
	began := time.Now()
	_, err := ownHost(t.Context(), w)
	var refused *rendezvous.Refused
	if !errors.As(err, &refused) || !refused.Retry || !strings.Contains(err.Error(), "rank 1 finds no way to rank 0 at "+
		"no.such.invalid:1") || !strings.Contains(err.Error(), launch.MasterAddrVar) {
		t.Errorf("%v", err)
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("it took %v", took)
	}
}

// listen waits for a port that is still in use, for example by a process that is ending.
func TestAPortThatIsNotFree(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &launch.World{Size: 2, Address: "127.0.0.1", Port: taken.Addr().(*net.TCPAddr).Port, Wait: 700 * time.Millisecond,
		Token: launch.Token{Variable: launch.TokenVar}}
	t.Setenv(launch.TokenVar, "0123456789abcdef")
	_, err = listen(t.Context(), w, nil)
	var refused *rendezvous.Refused
	if !errors.As(err, &refused) || !refused.Retry || !strings.Contains(err.Error(), fmt.Sprint("rank 0 cannot listen at ",
		w.Meet())) {
		t.Errorf("%v", err)
	}
	time.AfterFunc(100*time.Millisecond, func() { taken.Close() })
	w.Wait = time.Minute
	e, err := listen(t.Context(), w, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}

// localhost means the loopback on every host: processes that meet there listen on the loopback, even if the number of
// hosts is unknown.
func TestLocalhostIsTheLoopback(t *testing.T) {
	for _, name := range []string{"localhost", "127.0.0.1"} {
		for rank := range 2 {
			w := &launch.World{Rank: rank, Size: 2, LocalSize: launch.Unknown, Nodes: launch.Unknown, Address: name, Port: 9}
			if own, err := ownHost(t.Context(), w); err != nil || !strings.HasPrefix(own, "127.") && own != "::1" {
				t.Errorf("rank %d at %s: %q, %v", rank, name, own, err)
			}
		}
	}
}

// The route to rank 0 decides at which of its own addresses a process listens, whatever IP versions rank 0's name has.
// An empty address means all own addresses.
func TestWaysToRank0(t *testing.T) {
	for _, k := range []struct {
		name   string
		has    string // addresses of rank 0
		ways   string // reachable addresses of rank 0, each with this process's address on the route to it
		nodes  int
		leader string // address that rank 0 listens on
		other  string // address that another process listens on
	}{
		{"a", "10.0.0.1", "10.0.0.1>10.0.0.2", 2, "10.0.0.1", "10.0.0.2"},
		{"a", "fd00::1", "fd00::1>fd00::2", 2, "fd00::1", "fd00::2"},
		{"fe80::1%eth0", "fe80::1%eth0", "fe80::1%eth0>fe80::2%eth0", 2, "fe80::1%eth0", "fe80::2%eth0"},
		{"a", "10.0.0.1 fd00::1", "10.0.0.1>10.0.0.2 fd00::1>fd00::2", 2, "", "10.0.0.2"},
		{"a", "10.0.0.1 fd00::1", "fd00::1>fd00::2", 2, "", "fd00::2"},
		{"a", "10.0.0.1 fd00::1", "10.0.0.1>10.0.0.2", 1, "10.0.0.1", "10.0.0.2"},
		{"a", "127.0.1.1", "127.0.1.1>127.0.0.1", 2, "", ""},
		{"a", "::1", "::1>::1", 2, "", ""},
		{"a", "127.0.1.1", "127.0.1.1>127.0.0.1", 1, "127.0.1.1", "127.0.0.1"},
		{"localhost", "127.0.0.1 ::1", "127.0.0.1>127.0.0.1 ::1>::1", 2, "127.0.0.1", "127.0.0.1"},
		{"::1", "::1", "::1>::1", 2, "::1", "::1"},
		{"a", "10.0.0.1", "", 2, "no way", "no way"},
	} {
		var all []netip.Addr
		for text := range strings.FieldsSeq(k.has) {
			all = append(all, netip.MustParseAddr(text))
		}
		ways := map[netip.Addr]netip.Addr{}
		for way := range strings.FieldsSeq(k.ways) {
			to, from, _ := strings.Cut(way, ">")
			ways[netip.MustParseAddr(to)] = netip.MustParseAddr(from)
		}
		for rank, want := range []string{k.leader, k.other} {
			w := &launch.World{Rank: rank, Size: 2, LocalSize: launch.Unknown, Nodes: k.nodes, Address: k.name}
			got, err := wayTo(w, all, func(to netip.Addr) (netip.Addr, error) {
				if from, there := ways[to]; there {
					return from, nil
				}
				return netip.Addr{}, errors.New("no way")
			})
			if err != nil {
				got = err.Error()
			}
			if got != want {
				t.Errorf("%+v: rank %d listens at %q, want %q", k, rank, got, want)
			}
		}
	}
}

// Processes meet by a link-local address, which has a zone. They also meet by either IP version if rank 0 listens on
// both.
func TestMeetingByIPv6(t *testing.T) {
	t.Setenv(launch.TokenVar, "0123456789abcdef")
	addresses := map[string]int{"::1": 2}
	interfaces, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range interfaces {
		own, _ := i.Addrs() // an interface that has disappeared has no addresses
		for _, a := range own {
			if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Is6() && p.Addr().IsLinkLocalUnicast() {
				addresses[p.Addr().WithZone(i.Name).String()] = 2
			}
		}
	}
	for address, nodes := range addresses {
		free, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
		if err != nil {
			t.Skip("no IPv6: ", err)
		}
		port := free.Addr().(*net.TCPAddr).Port
		free.Close()
		met := make(chan error, 2)
		for rank := range 2 {
			w := &launch.World{Rank: rank, Size: 2, LocalSize: launch.Unknown, Nodes: nodes, Address: address, Port: port,
				Wait: 30 * time.Second, Token: launch.Token{Variable: launch.TokenVar}}
			go func() {
				p, err := Meet(t.Context(), w, nil)
				if err == nil {
					_, err = p.endpoint.Way(t.Context(), p.endpoint.Address())
					aside, wrong := p.Aside(t.Context(), false)
					if err = errors.Join(err, wrong, p.Close()); err == nil {
						_, at, _ := strings.Cut(string(aside.Address().Data), " ")
						if c, err := net.Dial("tcp", at); err == nil {
							t.Errorf("%s: what was beside a Party listens on when that is closed", at)
							c.Close()
						}
					}
				}
				met <- err
			}()
		}
		for range 2 {
			if err := <-met; err != nil {
				t.Errorf("%s: %v", address, err)
			}
		}
	}
	e, err := tcp.Listen(t.Context(), tcp.Config{Token: []byte("0123456789abcdef"), Address: "0.0.0.0:0", Advertise: "a"})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	_, at, _ := strings.Cut(string(e.Address().Data), ":")
	for _, host := range []string{"127.0.0.1", "::1"} {
		c, err := net.Dial("tcp", net.JoinHostPort(host, at))
		if err != nil {
			t.Errorf("it does not listen at %s: %v", host, err)
			continue
		}
		c.Close()
	}
}
