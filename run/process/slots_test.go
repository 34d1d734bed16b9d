package process

import (
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/check"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/schedule/lower"
	"github.com/millrace-ml/millrace/schedule/machine"
	"github.com/millrace-ml/millrace/wire"
	"github.com/millrace-ml/millrace/wire/pipe"
)

// The test plays Programs with random timings. If each edge has as many slots as check.InFlight returns, no message
// waits for a credit. If one edge has one slot less, a message waits for a credit in at least one timing: the one in
// which the receiver moves only when no other worker can. A message that has not arrived counts as waiting.
func TestSlotsOfAnyTiming(t *testing.T) {
	tried := 0
	for seed := range uint64(24) {
		g := rand.New(rand.NewPCG(seed, 18))
		all := family.All()
		f := all[g.IntN(len(all))]
		p, err := family.Generate(f.Name, schedule.Settings{Placement: f.Placement(2+g.IntN(2), 2), MicroBatches: 4,
			Repeat: 2})
		if err != nil {
			continue
		}
		if p, err = lower.Lower(p, lower.Options{}); err != nil {
			t.Fatal(err)
		}
		most, err := check.InFlight(p)
		if err != nil {
			t.Fatal(err)
		}
		if late := overPipes(t, p, most, g.IntN, -1); late != nil {
			t.Fatalf("%s: %v waits with %v", f.Name, late, most)
		}
		for e, n := range most {
			if n == 1 {
				continue
			}
			less := maps.Clone(most)
			less[e] = n - 1
			if late := overPipes(t, p, less, g.IntN, e.To); late == nil || *late != e {
				t.Fatalf("%s: %v waits with %v but for one on %v", f.Name, late, most, e)
			}
			tried++
			break
		}
	}
	if tried < 8 {
		t.Errorf("%d edges with one slot less", tried)
	}
}

// pipes connects the ports of a Program's workers by pipes, with slots on each edge, and notes the messages that
// arrive.
type pipes struct {
	*testing.T
	ports    *wire.Ports
	table    wire.Table
	arrived  chan int // the receiving worker of each message
	credited chan struct{}
}

func openPipes(t *testing.T, workers int, slots map[check.Edge]int) *pipes {
	t.Helper()
	o := &pipes{T: t, arrived: make(chan int, 1), credited: make(chan struct{}, 1)}
	carriers, err := pipe.New(workers)
	if err != nil {
		t.Fatal(err)
	}
	var mine []int
	for w := range workers {
		mine = append(mine, w)
	}
	o.ports, err = wire.NewPorts(carriers, mine, func(rank int) wire.Config {
		return wire.Config{Arrived: func(wire.Arrival) { o.arrived <- rank },
			Credited: func(wire.Edge, int) { o.credited <- struct{}{} }}
	})
	if err != nil {
		t.Fatal(err)
	}
	for e, n := range slots {
		if _, err := o.table.Edge(wire.Name{From: e.From, To: e.To}, n); err != nil {
			t.Fatal(err)
		}
	}
	o.ports.Begin(0, o.table.Edges())()
	return o
}

func (o *pipes) edge(from, to int) wire.Edge {
	o.Helper()
	e, known := o.table.Find(wire.Name{From: from, To: to})
	if !known {
		o.Fatalf("no edge from %d to %d", from, to)
	}
	return e
}

// send sends a message and reports whether it arrives within patience. The Machine is told of the arrival.
func (o *pipes) send(m *machine.Machine, in schedule.Instruction, from, to int, patience time.Duration) bool {
	o.Helper()
	part := wire.Buffer{DType: wire.U8, Shape: []int64{1}, Data: []byte{1}}
	if err := o.ports.Port(from).Send(o.edge(from, to), uint64(in.Key()), 0, []wire.Buffer{part}, nil); err != nil {
		o.Fatal(err)
	}
	select {
	case at := <-o.arrived:
		m.Arrive(at, in)
		return true
	case <-time.After(patience):
		return false
	}
}

// take takes all messages of a receive, and waits until their slots are free again.
func (o *pipes) take(p *schedule.Program, in schedule.Instruction, w int) {
	o.Helper()
	p.Expected(in, func(sent schedule.Instruction, from int) bool {
		if _, here := o.ports.Port(w).Take(o.edge(from, w), uint64(sent.Key())); !here {
			o.Fatalf("%v is not there", sent)
		}
		<-o.credited
		return true
	})
}

// overPipes sends a Program's messages over pipes and returns the first edge that waits for a credit. Its Machine sets
// no bound on messages, and credits take no time. Workers move in random order, but worker `lazy` moves only when no
// other can.
func overPipes(t *testing.T, p *schedule.Program, most map[check.Edge]int, choose func(int) int, lazy int) *check.Edge {
	t.Helper()
	pipes := openPipes(t, p.Workers, most)
	defer pipes.ports.Close()
	m, err := machine.New(p, machine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	patience := 20 * time.Second
	if lazy >= 0 {
		patience = 50 * time.Millisecond
	}
	joined := map[schedule.Instruction]int{}
	for !m.Ended() {
		var may []int
		for w := range p.Workers {
			if m.Poll(w).Ready() {
				may = append(may, w)
			}
		}
		if len(may) == 0 {
			t.Fatal(m.Waits())
		}
		w := may[choose(len(may))]
		if w == lazy && len(may) > 1 {
			continue
		}
		in, _ := m.Local(w).Head()
		m.Start(w)
		if in.Kind.IsReceive() {
			pipes.take(p, in, w)
		}
		m.Issued(w, !in.Kind.IsCollective())
		if in.Kind.IsSend() {
			var late *check.Edge
			p.Recipients(in, func(to, _, _, _ int) bool {
				if !pipes.send(m, in, w, to, patience) {
					late = &check.Edge{From: w, To: to}
				}
				return late == nil
			})
			if late != nil {
				return late
			}
		}
		if in.Kind.IsCollective() {
			members, workers := p.Group(in)
			if joined[members[0]]++; joined[members[0]] == len(members) {
				for i, member := range members {
					m.Done(workers[i], member)
				}
			}
		}
	}
	return nil
}

// An edge gets more slots for a Program that needs more, and keeps them for the next Program.
func TestSlotsGrow(t *testing.T) {
	var table wire.Table
	name := wire.Name{From: 0, To: 1}
	for _, c := range [][2]int{{2, 2}, {5, 5}, {3, 5}, {0, 5}} {
		e, err := table.Edge(name, c[0])
		if err != nil || e.Slots != c[1] {
			t.Errorf("%d slots asked for: %d, want %d: %v", c[0], e.Slots, c[1], err)
		}
	}
	if n := len(table.Edges()); n != 2 {
		t.Errorf("%d edges; want one and that of its credits", n)
	}
}
