package wiretest

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/wire"
)

// sent is a message as its receiver must get it.
type sent struct {
	edge  wire.Edge
	key   uint64
	parts []wire.Buffer
}

// randomMessage makes a message with 0 to 40 tensors, some of them empty.
func randomMessage(g *rand.Rand, owners *[]*owner) []wire.Buffer {
	var parts []wire.Buffer
	for range []int{0, 1, 1, 2, 3, 40}[g.IntN(6)] {
		dtype := []wire.DType{wire.F32, wire.F64, wire.I64, wire.U8, wire.Bool}[g.IntN(5)]
		b := wire.Buffer{Value: g.Uint32(), DType: dtype}
		for range g.IntN(4) {
			b.Shape = append(b.Shape, int64(g.IntN(9)))
		}
		b.Data = random(g.Uint64(), int(b.Bytes()))
		o := &owner{}
		*owners = append(*owners, o)
		b.Owner = o
		parts = append(parts, b)
	}
	return parts
}

// messages checks messages that are sent on several edges at the same time. They arrive whole, are reported once, and
// can be taken by Key in any order. If bytes are copied, the sender's buffers are freed once. If memory changes hands,
// the buffers belong to the receiver.
func messages(t *testing.T, open Maker) {
	for seed := range uint64(6) {
		for _, slots := range []int{0, 3} {
			g := rand.New(rand.NewPCG(seed, uint64(slots)))
			const workers = 3
			w := newWorld(t, open, workers, slots)
			var edges []wire.Edge
			for from := range workers {
				for to := range workers {
					edges = append(edges, w.edge(from, to)) // also to itself
				}
			}
			w.Begin(1, w.table.Edges())()
			var owners []*owner
			var all []sent
			var done sync.WaitGroup
			for k := range 60 {
				e := edges[g.IntN(len(edges))]
				parts := randomMessage(g, &owners)
				all = append(all, sent{e, uint64(k), slices.Clone(parts)})
				done.Add(1)
				err := w.Port(e.From).Send(e, uint64(k), uint32(k), parts, func(err error) {
					if err != nil {
						t.Errorf("message %d: %v", k, err)
					}
					done.Done()
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			for range all { // take each message as it comes, since slots may be few
				a := wait(t, w.came, "a message")
				got, here := w.Port(a.Edge.To).Take(a.Edge, a.Key)
				if _, twice := w.Port(a.Edge.To).Take(a.Edge, a.Key); !here || twice {
					t.Fatalf("message %d: here %v, twice %v", a.Key, here, twice)
				}
				want := all[a.Key]
				if got.Edge != want.edge || got.Step != uint32(a.Key) || got.Epoch != 1 || len(got.Parts) != len(want.parts) {
					t.Fatalf("message %d is %+v", a.Key, got)
				}
				for i, p := range got.Parts {
					x := want.parts[i]
					if p.Value != x.Value || p.DType != x.DType || !slices.Equal(p.Shape, x.Shape) ||
						!bytes.Equal(p.Data, x.Data) || p.Owner == nil {
						t.Fatalf("message %d, tensor %d: %+v; want %+v", a.Key, i, p, x)
					}
				}
				wire.FreeAll(got.Parts)
			}
			wait(t, signal(done.Wait), "the senders")
			if n := len(w.came); n > 0 {
				t.Errorf("seed %d: %d messages were told twice", seed, n)
			}
			for i, o := range owners {
				if n := o.freed.Load(); n != 1 {
					t.Errorf("seed %d: tensor %d was freed %d times", seed, i, n)
				}
			}
			w.close()
		}
	}
}

// credits checks that with n slots, at most n messages arrive before a message is taken. Other edges are not blocked
// meanwhile.
func credits(t *testing.T, open Maker) {
	for slots := 1; slots <= 3; slots++ {
		w := newWorld(t, open, 3, slots)
		one, other := w.edge(0, 1), w.edge(0, 2)
		w.Begin(1, w.table.Edges())()
		const n = 10
		for k := range uint64(n) {
			b := bufferOf(random(k, 100))
			if err := w.Port(0).Send(one, k, 0, []wire.Buffer{b}, nil); err != nil {
				t.Fatal(err)
			}
		}
		for k := range uint64(slots) {
			if a := wait(t, w.came, "the first"); a.Key != k {
				t.Fatalf("message %d came where %d is due", a.Key, k)
			}
		}
		// A message that waits for a credit blocks no other edge.
		if err := w.Port(0).Send(other, 77, 0, nil, nil); err != nil {
			t.Fatal(err)
		}
		if a := wait(t, w.came, "the other edge's"); a.Key != 77 {
			t.Fatalf("message %d came without a slot", a.Key)
		}
		for k := range uint64(n) {
			if _, here := w.Port(1).Take(one, k); !here {
				t.Fatalf("message %d is not here", k)
			}
			if k+uint64(slots) < n {
				if a := wait(t, w.came, "the next"); a.Key != k+uint64(slots) {
					t.Fatalf("message %d came where %d is due", a.Key, k+uint64(slots))
				}
			}
		}
		deadline := time.Now().Add(soon)
		for w.credits.Load() != n && time.Now().Before(deadline) {
			time.Sleep(time.Millisecond)
		}
		if got := w.credits.Load(); got != n {
			t.Errorf("%d slots: %d credits came back for %d messages", slots, got, n)
		}
		w.close()
	}
}

// epochs checks that messages of a later epoch wait for it. Messages of an earlier epoch are dropped, and their slots
// are returned to the sender.
func epochs(t *testing.T, open Maker) {
	w := newWorld(t, open, 2, 2)
	e := w.edge(0, 1)
	w.Begin(1, w.table.Edges())()
	sender, receiver := w.Port(0), w.Port(1)
	send := func(key uint64) {
		t.Helper()
		if err := sender.Send(e, key, 0, []wire.Buffer{bufferOf(random(key, 50))}, nil); err != nil {
			t.Fatal(err)
		}
	}
	sender.Begin(2)()
	send(1)
	send(2)
	select {
	case a := <-w.came:
		t.Fatalf("message %d of the next epoch was told", a.Key)
	case <-time.After(20 * time.Millisecond):
	}
	receiver.Begin(2)()
	for _, key := range []uint64{1, 2} {
		if a := wait(t, w.came, "the next epoch's"); a.Key != key || a.Epoch != 2 {
			t.Fatalf("%+v", a)
		}
	}
	receiver.Begin(3)() // the waiting messages were not taken
	sender.Begin(2)()
	send(3)
	send(4)
	sender.Begin(3)()
	send(5) // arrives only if the slots of all four messages came back
	if a := wait(t, w.came, "the third epoch's"); a.Key != 5 || a.Epoch != 3 {
		t.Fatalf("%+v", a)
	}
	if _, here := receiver.Take(e, 1); here {
		t.Error("a message of an old epoch was kept")
	}
	w.close()
}

// epochsOfCollectives checks the order of a collective's messages: messages that arrived before their epoch began are
// received before messages that arrive later.
func epochsOfCollectives(t *testing.T, open Maker) {
	w := newWorld(t, open, 2, 0)
	e, err := w.table.Edge(wire.Name{From: 0, To: 1, Group: 9}, 0)
	if err != nil {
		t.Fatal(err)
	}
	w.Begin(1, w.table.Edges())()
	sender, receiver := w.Port(0), w.Port(1)
	lie := func(n int) {
		t.Helper()
		deadline := time.Now().Add(soon)
		for receiver.Waiting(e) < n {
			if time.Now().After(deadline) {
				t.Fatalf("%d of %d messages have come", receiver.Waiting(e), n)
			}
			time.Sleep(100 * time.Microsecond)
		}
	}
	send := func(epoch uint32, key uint64) {
		t.Helper()
		sender.Begin(epoch)()
		if err := sender.Send(e, key, 0, []wire.Buffer{bufferOf(random(key, 50))}, nil); err != nil {
			t.Fatal(err)
		}
	}
	for _, m := range []struct{ epoch, key uint64 }{{2, 1}, {3, 4}, {2, 2}} {
		send(uint32(m.epoch), m.key)
	}
	lie(3)
	early := receiver.Begin(2)
	send(2, 3)
	lie(4)
	early()
	for want := range uint64(3) {
		if a, err := receiver.Receive(t.Context(), e); err != nil || a.Key != want+1 || a.Epoch != 2 {
			t.Fatalf("%+v, %v where message %d is due", a, err, want+1)
		}
	}
	receiver.Begin(3)()
	if a, err := receiver.Receive(t.Context(), e); err != nil || a.Key != 4 || a.Epoch != 3 {
		t.Fatalf("%+v, %v where message 4 is due", a, err)
	}
	sent, _ := sender.Traffic()
	if _, received := receiver.Traffic(); received != sent || sent != 4*50 {
		t.Errorf("%d bytes were sent and %d received; want 200", sent, received)
	}
	w.close()
}

// late is an event that the test sets.
type late struct{ set chan struct{} }

func (l late) Done() bool {
	select {
	case <-l.set:
		return true
	default:
		return false
	}
}

func (l late) Wait() error {
	<-l.set
	return nil
}

// events checks that a message is not sent before its buffers are complete, and that later messages of its edge wait
// for it. Other edges do not wait.
func events(t *testing.T, open Maker) {
	w := newWorld(t, open, 3, 0)
	one, other := w.edge(0, 1), w.edge(0, 2)
	w.Begin(1, w.table.Edges())()
	ready := late{make(chan struct{})}
	b := bufferOf(random(1, 50))
	b.Ready = ready
	for key, parts := range [][]wire.Buffer{{b}, {bufferOf(random(2, 50))}} {
		if err := w.Port(0).Send(one, uint64(key), 0, parts, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Port(0).Send(other, 9, 0, nil, nil); err != nil {
		t.Fatal(err)
	}
	if a := wait(t, w.came, "the other edge's"); a.Key != 9 {
		t.Fatalf("message %d left before it was complete", a.Key)
	}
	copy(b.Data, random(3, 50))
	close(ready.set)
	for key := range uint64(2) {
		a := wait(t, w.came, "a message")
		if a.Key != key || !bytes.Equal(a.Parts[0].Data, random(3-key, 50)) {
			t.Errorf("message %d, with the right bytes: %v", a.Key, bytes.Equal(a.Parts[0].Data, random(3-key, 50)))
		}
	}
	w.close()
}

// bothWays makes two workers send each other more than any pipe can hold, before either takes a message.
func bothWays(t *testing.T, open Maker) {
	w := newWorld(t, open, 2, 0)
	edges := []wire.Edge{w.edge(0, 1), w.edge(1, 0)}
	w.Begin(1, w.table.Edges())()
	for k := range uint64(20) {
		for _, e := range edges {
			if err := w.Port(e.From).Send(e, k, 0, []wire.Buffer{bufferOf(random(k, 100_000))}, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	for range 40 {
		a := wait(t, w.came, "a message")
		if !bytes.Equal(a.Parts[0].Data, random(a.Key, 100_000)) {
			t.Errorf("message %d differs", a.Key)
		}
	}
	w.close()
}
