package together

import (
	"encoding/json"
	"net"
	"testing"

	"github.com/millrace-ml/millrace/launch"
	"github.com/millrace-ml/millrace/launch/rendezvous"
	"github.com/millrace-ml/millrace/wire/tcp"
)

// A process tells the others an address at which they can reach its host. It is the loopback only if all others are on
// this host.
func TestWhereAProcessIsOpen(t *testing.T) {
	token := []byte("what all processes of the run know")
	at := func(host string) rendezvous.Place {
		a, err := tcp.AddressOf(net.JoinHostPort(host, "9"), nil)
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		return rendezvous.Place{Host: "b", Address: text}
	}
	far := "" // an IPv4 address of this host on a network, if it has one
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && n.IP.IsGlobalUnicast() {
			far = n.IP.String()
		}
	}
	for name, c := range map[string]struct {
		others []string
		want   string
	}{
		"one host":                   {[]string{"localhost", "127.0.0.1"}, "127.0.0.1"},
		"several":                    {[]string{far, far}, far},
		"a rank 0 that has no other": {[]string{"localhost", far}, far},
	} {
		t.Run(name, func(t *testing.T) {
			if c.want == "" {
				t.Skip("this host has the loopback alone")
			}
			e, err := tcp.Listen(t.Context(), tcp.Config{Token: token})
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			p := &Party{World: &launch.World{Rank: len(c.others), Size: len(c.others) + 1}, endpoint: e}
			for _, host := range append(c.others, "no.such.invalid") { // the last one is this process's own host
				p.Places = append(p.Places, at(host))
			}
			if got, err := p.Open(t.Context()); err != nil || got != c.want {
				t.Errorf("%q, %v; want %q", got, err, c.want)
			}
		})
	}
	p := &Party{World: &launch.World{Size: 2}, tls: &tcp.TLS{}}
	if _, err := p.Open(t.Context()); err == nil {
		t.Error("it is open though connections are to be encrypted")
	}
}
