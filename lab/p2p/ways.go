package p2p

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"unsafe"

	"github.com/millrace-ml/millrace/wire"
	"github.com/millrace-ml/millrace/wire/collective"
	"github.com/millrace-ml/millrace/wire/tcp"
)

// opener opens an end of a way. `exchange` sends this end's address and returns the other end's.
type opener func(rank int, exchange func(own string) (other string, err error)) (way, error)

// ways are the ways that are written in Go.
var ways = map[string]opener{"raw": openRaw, "millrace": openMillrace}

// raw is TCP with a length before each message, written in one call and read through a buffer.
type raw struct {
	net.Conn
	in   *bufio.Reader
	head [4]byte
	both [2][]byte
}

func openRaw(rank int, exchange func(own string) (other string, err error)) (way, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("p2p: %w", err)
	}
	defer l.Close()
	other, err := exchange(l.Addr().String())
	if err != nil {
		return nil, err
	}
	var c net.Conn
	if rank == 0 {
		c, err = net.Dial("tcp", other)
	} else {
		c, err = l.Accept()
	}
	if err != nil {
		return nil, fmt.Errorf("p2p: %w", err)
	}
	return &raw{Conn: c, in: bufio.NewReaderSize(c, 16<<10)}, nil
}

func (r *raw) send(data []byte) error {
	binary.LittleEndian.PutUint32(r.head[:], uint32(len(data)))
	r.both = [2][]byte{r.head[:], data}
	buffers := net.Buffers(r.both[:])
	_, err := buffers.WriteTo(r.Conn)
	return err
}

func (r *raw) take(room []byte) error {
	var head [4]byte
	if _, err := io.ReadFull(r.in, head[:]); err != nil {
		return err
	}
	if n := binary.LittleEndian.Uint32(head[:]); int(n) != len(room) {
		return fmt.Errorf("p2p: %d bytes come where %d are due", n, len(room))
	}
	_, err := io.ReadFull(r.in, room)
	return err
}

func (r *raw) turns(first bool, count int, data []byte) error { return inTurn(r, first, count, data) }

// inTurn alternately sends and receives messages on one goroutine, `count` of each. If `first` is true, it begins with
// a send, otherwise with a receive.
func inTurn(w way, first bool, count int, data []byte) error {
	for range count {
		if first {
			if err := w.send(data); err != nil {
				return err
			}
		}
		if err := w.take(data); err != nil {
			return err
		}
		if !first {
			if err := w.send(data); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *raw) sum([]float32) error { return errors.New("p2p: raw TCP sums nothing") }

func (r *raw) close() error { return r.Close() }

// millrace sends messages of package wire over TCP.
type millrace struct {
	rank   int
	end    *tcp.Endpoint
	ports  *wire.Ports
	to     wire.Edge
	group  *collective.Group
	key    uint64
	room   []byte // buffer for one message at a time
	came   chan wire.Arrival
	gone   chan error
	broken chan error

	mu   sync.Mutex
	told func(wire.Arrival) // called for each message; if it is nil, messages wait for the method take
}

// token is the token of all players, which only connect over the loopback interface.
var token = []byte("players of one benchmark")

func openMillrace(rank int, exchange func(own string) (other string, err error)) (way, error) {
	end, err := tcp.Listen(context.Background(), tcp.Config{Token: token, Run: "p2p", Process: rank})
	if err != nil {
		return nil, err
	}
	m := &millrace{rank: rank, end: end, came: make(chan wire.Arrival, 1),
		gone: make(chan error, 1), broken: make(chan error, 1)}
	if err := m.open(exchange); err != nil {
		return nil, errors.Join(err, end.Close())
	}
	return m, nil
}

func (m *millrace) open(exchange func(own string) (other string, err error)) error {
	own := m.end.Address()
	other, err := exchange(string(own.Data))
	if err != nil {
		return err
	}
	at := []wire.Address{own, own}
	at[1-m.rank].Data = []byte(strings.TrimSpace(other))
	all, err := m.end.Carriers(1, at, []int{m.rank}, 1)
	if err != nil {
		return err
	}
	m.ports, err = wire.NewPorts(all, []int{m.rank}, func(int) wire.Config {
		return wire.Config{
			Arrived: func(a wire.Arrival) {
				m.mu.Lock()
				defer m.mu.Unlock()
				if m.told == nil {
					m.came <- a
				} else {
					m.told(a)
				}
			},
			Broken: func(err error) { m.broken <- err },
			Room: func(_ wire.Edge, parts []wire.Buffer) error {
				n := int(parts[0].Bytes())
				m.room = slices.Grow(m.room[:0], n)
				parts[0].Data = m.room[:n]
				return nil
			},
		}
	})
	if err != nil {
		return err
	}
	var table wire.Table
	for from := range 2 {
		e, err := table.Edge(wire.Name{From: from, To: 1 - from}, 2)
		if err != nil {
			return err
		}
		if from == m.rank {
			m.to = e
		}
	}
	here := func(worker int) bool { return worker == m.rank }
	if err := collective.NameEdges(&table, 1, []int{0, 1}, here, true); err != nil {
		return err
	}
	if m.group, err = collective.NewGroup(&table, m.ports.Port(m.rank), 1, []int{0, 1}, m.rank); err != nil {
		return err
	}
	m.ports.Begin(0, table.Edges())()
	return nil
}

func (m *millrace) send(data []byte) error {
	m.key++
	parts := []wire.Buffer{{DType: wire.U8, Shape: []int64{int64(len(data))}, Data: data}}
	if err := m.ports.Port(m.rank).Send(m.to, m.key, 0, parts, func(err error) { m.gone <- err }); err != nil {
		return err
	}
	return <-m.gone
}

// turns does what inTurn does, but it sends the next message in the callback for the previous one, as millrace does in
// a training.
func (m *millrace) turns(first bool, count int, data []byte) error {
	over := make(chan error, 2)
	port, left := m.ports.Port(m.rank), count
	shape := []int64{int64(len(data))}
	sent := func(err error) {
		if err != nil {
			over <- err
		}
	}
	send := func() {
		m.key++
		parts := []wire.Buffer{{DType: wire.U8, Shape: shape, Data: data}}
		if err := port.Send(m.to, m.key, 0, parts, sent); err != nil {
			over <- err
		}
	}
	m.mu.Lock()
	m.told = func(a wire.Arrival) {
		port.Take(a.Edge, a.Key)
		if left--; left > 0 || !first {
			send()
		}
		if left == 0 {
			m.told = nil
			over <- nil
		}
	}
	if first {
		send()
	} else if len(m.came) > 0 {
		m.told(<-m.came)
	}
	m.mu.Unlock()
	select {
	case err := <-over:
		return err
	case err := <-m.broken:
		return err
	}
}

func (m *millrace) take(room []byte) error {
	select {
	case a := <-m.came:
		_, here := m.ports.Port(m.rank).Take(a.Edge, a.Key)
		if !here || a.Bytes() != int64(len(room)) {
			return fmt.Errorf("p2p: %d bytes have come where %d are due", a.Bytes(), len(room))
		}
		return nil
	case err := <-m.broken:
		return err
	}
}

func (m *millrace) sum(vector []float32) error {
	data := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(vector))), 4*len(vector))
	all := []wire.Buffer{{DType: wire.F32, Shape: []int64{int64(len(vector))}, Data: data}}
	return m.group.AllReduce(context.Background(), all, addFloats)
}

// addFloats adds floats as an engine does, in the machine's byte order, which is little-endian.
func addFloats(dst, src []byte, _ wire.DType) error {
	a := unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(dst))), len(dst)/4)
	for i, x := range unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(src))), len(a)) {
		a[i] += x
	}
	return nil
}

func (m *millrace) close() error { return errors.Join(m.ports.Close(), m.end.Close()) }
