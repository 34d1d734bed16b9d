package tcp

import (
	"io"
	"net"
	"sync"
	"testing"

	"github.com/millrace-ml/millrace/wire"
)

// BenchmarkMessages sends a buffer there and back; an iteration is both ways.
func BenchmarkMessages(b *testing.B) {
	for name, c := range map[string]Config{"plain": {}, "2 streams": {Streams: 2}, "tls": {TLS: &TLS{}}} {
		for _, size := range []int{4 << 10, 1 << 20, 16 << 20} {
			b.Run(name+"/"+sizeOf(size), func(b *testing.B) { messages(b, c, size) })
		}
	}
}

func sizeOf(n int) string {
	if n < 1<<20 {
		return string(rune('0'+n>>10)) + "KB"
	}
	return map[int]string{1 << 20: "1MB", 16 << 20: "16MB"}[n]
}

func messages(b *testing.B, c Config, size int) {
	all, err := open(2, c)
	if err != nil {
		b.Fatal(err)
	}
	came := [2]chan wire.Arrival{make(chan wire.Arrival, 1), make(chan wire.Arrival, 1)}
	room := [2][]byte{make([]byte, size), make([]byte, size)}
	ports, err := wire.NewPorts(all, []int{0, 1}, func(rank int) wire.Config {
		return wire.Config{
			Arrived: func(a wire.Arrival) { came[rank] <- a },
			Room: func(_ wire.Edge, parts []wire.Buffer) error {
				parts[0].Data = room[rank]
				return nil
			},
		}
	})
	if err != nil {
		b.Fatal(err)
	}
	defer ports.Close()
	var table wire.Table
	var edges []wire.Edge
	for from := range 2 {
		e, err := table.Edge(wire.Name{From: from, To: 1 - from}, 2)
		if err != nil {
			b.Fatal(err)
		}
		edges = append(edges, e)
	}
	ports.Begin(0, table.Edges())()
	data := [2][]byte{make([]byte, size), make([]byte, size)}
	send := func(rank, key int) {
		if err := ports.Port(rank).Send(edges[rank], uint64(key), 0, []wire.Buffer{*bufferOf(data[rank])}, nil); err != nil {
			b.Error(err)
		}
	}
	take := func(rank int) {
		a := <-came[rank]
		ports.Port(rank).Take(a.Edge, a.Key)
	}
	var other sync.WaitGroup
	other.Go(func() {
		for i := range b.N {
			take(1)
			send(1, i)
		}
	})
	b.SetBytes(2 * int64(size))
	for i := range b.N {
		send(0, i)
		take(0)
	}
	other.Wait()
}

// BenchmarkRaw is the same over a connection with nothing above it.
func BenchmarkRaw(b *testing.B) {
	for _, size := range []int{4 << 10, 1 << 20, 16 << 20} {
		b.Run(sizeOf(size), func(b *testing.B) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				b.Fatal(err)
			}
			defer l.Close()
			c, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			d, err := l.Accept()
			if err != nil {
				b.Fatal(err)
			}
			defer d.Close()
			var other sync.WaitGroup
			other.Go(func() {
				data, room := make([]byte, size), make([]byte, size)
				for range b.N {
					if _, err := io.ReadFull(d, room); err != nil {
						b.Error(err)
						return
					}
					if _, err := d.Write(data); err != nil {
						b.Error(err)
						return
					}
				}
			})
			data, room := make([]byte, size), make([]byte, size)
			b.SetBytes(2 * int64(size))
			for range b.N {
				if _, err := c.Write(data); err != nil {
					b.Fatal(err)
				}
				if _, err := io.ReadFull(c, room); err != nil {
					b.Fatal(err)
				}
			}
			other.Wait()
		})
	}
}

// BenchmarkFrames is the same over carriers alone, without ports above them.
func BenchmarkFrames(b *testing.B) {
	for _, size := range []int{4 << 10, 1 << 20, 16 << 20} {
		b.Run(sizeOf(size), func(b *testing.B) {
			all, err := open(2, Config{})
			if err != nil {
				b.Fatal(err)
			}
			defer func() {
				for _, c := range all {
					c.Close()
				}
			}()
			edges := [2]wire.Edge{{ID: 0, From: 0, To: 1}, {ID: 1, From: 1, To: 0}}
			var here [2]chan error
			var data, room [2]*wire.Buffer
			for k := range 2 {
				here[k], data[k], room[k] = make(chan error, 1), bufferOf(make([]byte, size)), bufferOf(make([]byte, size))
			}
			turn := func(rank, n int, first bool) {
				if first {
					all[rank].Send(0, edges[rank], uint32(n), data[rank], func(error) {})
				}
				if err := <-here[rank]; err != nil {
					b.Error(err)
				}
				all[rank].Recv(edges[1-rank], uint32(n+1), room[rank], func(err error) { here[rank] <- err })
				if !first {
					all[rank].Send(0, edges[rank], uint32(n), data[rank], func(error) {})
				}
			}
			for k := range 2 {
				all[k].Recv(edges[1-k], 0, room[k], func(err error) { here[k] <- err })
			}
			var other sync.WaitGroup
			other.Go(func() {
				for n := range b.N {
					turn(1, n, false)
				}
			})
			b.SetBytes(2 * int64(size))
			for n := range b.N {
				turn(0, n, true)
			}
			other.Wait()
		})
	}
}
