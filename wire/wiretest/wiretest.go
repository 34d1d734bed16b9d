// Package wiretest has the tests that every carrier must pass.
//
// In: a function that makes carriers for a number of workers. Out: subtests of a *testing.T. A carrier's package calls
// Conforms from its own test, and checks for leaked goroutines itself. Recorder and Authority are for tests of
// security.
package wiretest

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/wire"
)

// Maker makes carriers for a number of workers.
type Maker func(workers int) ([]wire.Carrier, error)

// Conforms runs all tests.
func Conforms(t *testing.T, open Maker) {
	t.Run("carrier", func(t *testing.T) {
		for name, f := range map[string]func(*testing.T, Maker){
			"says what it is": saysWhatItIs, "posted in either order": postedInEitherOrder, "lengths": lengths,
			"fails at every point": failsAtEveryPoint, "closes at every point": closesAtEveryPoint,
			"close waits": closeWaits, "receives are done in order": receivesAreDoneInOrder,
		} {
			t.Run(name, func(t *testing.T) { f(t, open) })
		}
	})
	t.Run("port", func(t *testing.T) {
		for name, f := range map[string]func(*testing.T, Maker){
			"messages": messages, "credits": credits, "epochs": epochs, "epochs of collectives": epochsOfCollectives,
			"events": events, "failure": failure, "what nobody took": whatNobodyTook, "both ways": bothWays,
			"bad frames": badFrames, "bad messages": badMessages, "failed events": failedEvents,
			"anything": anything,
		} {
			t.Run(name, func(t *testing.T) { f(t, open) })
		}
	})
	t.Run("collective", func(t *testing.T) { collectives(t, open) })
}

// soon is the longest time that an expected event may take on a busy machine.
const soon = 20 * time.Second

// Split makes carriers of workers in several processes, all of which are simulated in this process. Within a simulated
// process memory changes hands. Between two of them, the carriers that `open` makes are used.
func Split(open Maker, processes []int) ([]wire.Carrier, error) {
	far, err := open(len(processes))
	if err != nil {
		return nil, err
	}
	all := make([]wire.Carrier, len(far))
	for p := range len(processes) {
		var mine []int
		for rank, of := range processes {
			if of == p {
				mine = append(mine, rank)
			}
		}
		near, err := wire.InProcess(len(processes))
		if err != nil {
			return nil, err
		}
		some, err := wire.Split(near, far, mine)
		if err != nil {
			return nil, err
		}
		for _, rank := range mine {
			all[rank] = some[rank]
		}
	}
	return all, nil
}

// wait fails the test if nothing arrives on a channel within the time `soon`.
func wait[T any](t *testing.T, c <-chan T, what string) T {
	t.Helper()
	select {
	case x := <-c:
		return x
	case <-time.After(soon):
		t.Fatalf("%s: nothing for %v", what, soon)
		panic("unreachable")
	}
}

// owner counts how often a buffer was freed.
type owner struct{ freed atomic.Int32 }

func (o *owner) Free() { o.freed.Add(1) }

func carriers(t *testing.T, open Maker, n int) []wire.Carrier {
	t.Helper()
	all, err := open(n)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func closeAll(t *testing.T, all []wire.Carrier) {
	t.Helper()
	for _, c := range all {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

// bufferOf makes a buffer of bytes.
func bufferOf(data []byte) wire.Buffer {
	return wire.Buffer{DType: wire.U8, Shape: []int64{int64(len(data))}, Data: data}
}

func random(seed uint64, n int) []byte {
	g := rand.New(rand.NewPCG(seed, 1))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(g.Uint32())
	}
	return b
}

func saysWhatItIs(t *testing.T, open Maker) {
	all := carriers(t, open, 2)
	defer closeAll(t, all)
	for rank, c := range all {
		a := c.Address()
		long := len(a.Engine) + len(a.Version) + len(a.Data)
		if c.Rank() != rank || a.Engine == "" || a.Version == "" || long > wire.MaxAddress {
			t.Errorf("carrier %d: rank %d, address %+v", rank, c.Rank(), a)
		}
		if !c.Takes(1-rank, wire.Place{}) {
			t.Error("it does not take host memory")
		}
		if c.Describe(wire.Edge{From: rank, To: 1 - rank}) == "" {
			t.Error("it says nothing of an edge")
		}
		other := all[1-rank].Address()
		if err := c.Connect(1-rank, other); err != nil {
			t.Error(err)
		}
		for _, change := range []func(*wire.Address){
			func(a *wire.Address) { a.Engine += "x" }, func(a *wire.Address) { a.Version += ".1" },
			func(a *wire.Address) { a.Data = random(1, wire.MaxAddress+1) },
		} {
			bad := other
			if change(&bad); c.Connect(1-rank, bad) == nil {
				t.Errorf("it took the address %.40v", bad)
			}
		}
	}
}

var edge = wire.Edge{ID: 7, From: 0, To: 1}

// postedInEitherOrder posts receives before or after their sends. Frames of any size, posted singly or several
// together, arrive in the order of their edge.
func postedInEitherOrder(t *testing.T, open Maker) {
	sizes := []int{1, 0, 300_000, 17, 4096, 65536, 65537}
	for _, first := range []string{"send", "receive"} {
		all := carriers(t, open, 2)
		var got [][]byte
		var room []*wire.Buffer
		var done sync.WaitGroup
		said := func(what string, n int) func(error) {
			done.Add(1)
			return func(err error) {
				if err != nil {
					t.Errorf("%s first: %s of frame %d: %v", first, what, n, err)
				}
				done.Done()
			}
		}
		send := func() {
			n := 0
			for _, together := range []int{1, 2, 1, 3} {
				var frames []*wire.Buffer
				for k := range together {
					b := bufferOf(random(uint64(n+k), sizes[n+k]))
					frames = append(frames, &b)
				}
				all[0].Send(1, edge, uint32(n), frames, said("send", n))
				n += together
			}
		}
		receive := func() {
			for n, size := range sizes {
				b := bufferOf(random(99, size))
				if all[1].HandsOver(0) {
					b.Data = nil
				}
				room = append(room, &b)
				all[1].Recv(edge, uint32(n), &b, said("receive", n))
			}
		}
		if first == "send" {
			send()
			receive()
		} else {
			receive()
			send()
		}
		over := signal(done.Wait)
		wait(t, over, first+" first")
		for n, size := range sizes {
			got = append(got, room[n].Data)
			if !bytes.Equal(got[n], random(uint64(n), size)) {
				t.Errorf("%s first: frame %d differs", first, n)
			}
		}
		closeAll(t, all)
	}
}

// signal closes a channel once f has returned.
func signal(f func()) <-chan struct{} {
	c := make(chan struct{})
	go func() {
		f()
		close(c)
	}()
	return c
}

// lengths checks that a receive of another length than its send ends with an error, whichever is posted first. If
// memory changes hands, the send ends with an error too.
func lengths(t *testing.T, open Maker) {
	for _, sizes := range [][2]int{{10, 12}, {12, 10}, {0, 1}, {1, 0}} {
		for _, sendsFirst := range []bool{false, true} {
			all := carriers(t, open, 2)
			first, came := bufferOf(random(3, 1)), bufferOf(random(4, 1))
			said := make(chan error, 2)
			all[0].Send(1, edge, 0, []*wire.Buffer{&first}, func(err error) { said <- err })
			all[1].Recv(edge, 0, &came, func(err error) { said <- err })
			for range 2 {
				if err := wait(t, said, "frame 0"); err != nil {
					t.Error(err)
				}
			}
			a, b := bufferOf(random(1, sizes[0])), bufferOf(random(2, sizes[1]))
			receive := func() { all[1].Recv(edge, 1, &b, func(err error) { said <- err }) }
			if !sendsFirst {
				receive()
			}
			all[0].Send(1, edge, 1, []*wire.Buffer{&a}, func(err error) {
				if all[0].HandsOver(1) { // other carriers may have sent the frame already
					said <- err
				}
			})
			if sendsFirst {
				receive()
			}
			var wrong *wire.LengthError
			if err := wait(t, said, "an answer"); !errors.As(err, &wrong) || wrong.Sent != int64(sizes[0]) ||
				wrong.Room != int64(sizes[1]) || wrong.N != 1 || wrong.Edge != edge {
				t.Errorf("%v, the send first is %v: %v", sizes, sendsFirst, err)
			}
			closeAll(t, all)
		}
	}
}

// world holds ports over carriers, and a table of the edges for transfers.
type world struct {
	*wire.Ports
	t       *testing.T
	table   wire.Table
	slots   int
	came    chan wire.Arrival
	credits atomic.Int32
	broken  chan error
	room    func() *owner // makes owners for received buffers
}

func newWorld(t *testing.T, open Maker, workers, slots int) *world {
	t.Helper()
	w := &world{t: t, slots: slots, came: make(chan wire.Arrival, 1<<15), broken: make(chan error, 2),
		room: func() *owner { return &owner{} }}
	var mine []int
	for rank := range workers {
		mine = append(mine, rank)
	}
	ports, err := wire.NewPorts(carriers(t, open, workers), mine, func(rank int) wire.Config {
		return wire.Config{
			Arrived:  func(a wire.Arrival) { w.came <- a },
			Credited: func(_ wire.Edge, n int) { w.credits.Add(int32(n)) },
			Broken: func(err error) {
				select {
				case w.broken <- err:
				default:
				}
			},
			Room: func(_ wire.Edge, parts []wire.Buffer) error {
				for i := range parts {
					parts[i].Data, parts[i].Owner = make([]byte, parts[i].Bytes()), w.room()
				}
				return nil
			},
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	w.Ports = ports
	return w
}

// edge returns the edge for transfers between two workers.
func (w *world) edge(from, to int) wire.Edge {
	e, err := w.table.Edge(wire.Name{From: from, To: to}, w.slots)
	if err != nil {
		w.t.Fatal(err)
	}
	return e
}

func (w *world) close() {
	if err := w.Close(); err != nil {
		w.t.Error(err)
	}
	select {
	case err := <-w.broken:
		w.t.Error("a port broke: ", err)
	default:
	}
}
