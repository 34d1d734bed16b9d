package tcp

import (
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/millrace-ml/millrace/wire"
)

// turns is one end of an exchange in which a buffer goes to the other end and comes back.
type turns struct{ send, take, end func() error }

// turns makes a worker's end: for frames over a bare carrier, for messages over a port, or over a plain connection.
func (k task) turns(all []wire.Carrier, raw func() (net.Conn, error)) (*turns, error) {
	switch k.Echo {
	case "frames":
		return framesInTurn(all, k.Rank, k.Size), nil
	case "messages":
		return messagesInTurn(all, k.Rank, k.Size)
	}
	c, err := raw()
	if err != nil {
		return nil, err
	}
	data, room := make([]byte, k.Size), make([]byte, k.Size)
	return &turns{
		send: func() error { _, err := c.Write(data); return err },
		take: func() error { _, err := io.ReadFull(c, room); return err },
		end:  c.Close,
	}, nil
}

func framesInTurn(all []wire.Carrier, rank, size int) *turns {
	edge := func(from int) wire.Edge { return wire.Edge{ID: uint32(from), From: from, To: 1 - from} }
	out, in := edge(rank), edge(1-rank)
	data, room := bufferOf(make([]byte, size)), bufferOf(make([]byte, size))
	here, gone := make(chan error, 1), make(chan error, 1)
	came, left := func(err error) { here <- err }, func(err error) { gone <- err }
	n, m := uint32(0), uint32(1)
	all[rank].Recv(in, 0, room, came)
	return &turns{
		send: func() error {
			all[rank].Send(0, out, n, []*wire.Buffer{data}, left)
			n++
			return <-gone
		},
		take: func() error {
			err := <-here
			all[rank].Recv(in, m, room, came)
			m++
			return err
		},
		end: all[rank].Close,
	}
}

func messagesInTurn(all []wire.Carrier, rank, size int) (*turns, error) {
	came, broken, room := make(chan wire.Arrival, 1), make(chan error, 1), make([]byte, size)
	ports, err := wire.NewPorts(all, []int{rank}, func(int) wire.Config {
		return wire.Config{
			Arrived: func(a wire.Arrival) { came <- a },
			Broken:  func(err error) { broken <- err },
			Room: func(_ wire.Edge, parts []wire.Buffer) error {
				parts[0].Data = room
				return nil
			},
		}
	})
	if err != nil {
		return nil, err
	}
	var table wire.Table
	var edges []wire.Edge
	for from := range 2 {
		e, err := table.Edge(wire.Name{From: from, To: 1 - from}, 2)
		if err != nil {
			return nil, err
		}
		edges = append(edges, e)
	}
	ports.Begin(0, table.Edges())()
	data, key, gone := bufferOf(make([]byte, size)), uint64(0), make(chan error, 1)
	left := func(err error) { gone <- err }
	return &turns{
		send: func() error {
			key++
			if err := ports.Port(rank).Send(edges[rank], key, 0, []wire.Buffer{*data}, left); err != nil {
				return err
			}
			return <-gone
		},
		take: func() error {
			select {
			case a := <-came:
				ports.Port(rank).Take(a.Edge, a.Key)
				return nil
			case err := <-broken:
				return err
			}
		},
		end: ports.Close,
	}, nil
}

// echo sends back what comes, k.Turns times.
func (k task) echo(all []wire.Carrier) (string, error) {
	x, err := k.turns(all, func() (net.Conn, error) { return net.Dial("tcp", k.Raw) })
	if err != nil {
		return "", err
	}
	for range k.Turns {
		if err := x.take(); err != nil {
			return "", err
		}
		if err := x.send(); err != nil {
			return "", err
		}
	}
	return "echoed", nil
}

// BenchmarkThereAndBack sends a buffer to another process and takes it back.
func BenchmarkThereAndBack(b *testing.B) {
	for _, c := range []struct {
		name string
		of   task
	}{
		{"raw", task{Echo: "raw"}}, {"frames", task{Echo: "frames"}}, {"messages", task{Echo: "messages"}},
		{"messages-2-streams", task{Echo: "messages", Streams: 2}}, {"messages-TLS", task{Echo: "messages", TLS: true}},
	} {
		for _, size := range []int{4 << 10, 1 << 20, 16 << 20} {
			b.Run(fmt.Sprintf("%s/%dKB", c.name, size>>10), func(b *testing.B) {
				l, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					b.Fatal(err)
				}
				defer l.Close()
				k := c.of
				k.Does, k.Size, k.Turns, k.Raw, k.Rank = "echo", size, b.N, l.Addr().String(), 1
				p := begin(b, k)
				k.Rank = 0
				e, err := Listen(b.Context(), k.config())
				if err != nil {
					b.Fatal(err)
				}
				defer e.Close()
				at := []wire.Address{e.Address(), p.at}
				all, err := e.Carriers(1, at, []int{0}, max(k.Streams, 1))
				if err == nil {
					err = p.in.Encode(at)
				}
				if err != nil {
					b.Fatal(err)
				}
				x, err := k.turns(all, l.Accept)
				if err != nil {
					b.Fatal(err)
				}
				b.SetBytes(2 * int64(size))
				b.ResetTimer()
				for range b.N {
					if err := x.send(); err != nil {
						b.Fatal(err)
					}
					if err := x.take(); err != nil {
						b.Fatal(err)
					}
				}
				b.StopTimer()
				if got := p.line(b); got != "echoed" {
					b.Error(got)
				}
				if err := x.end(); err != nil {
					b.Error(err)
				}
			})
		}
	}
}
