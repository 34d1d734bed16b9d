package wiretest

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/wire"
)

// books records the owners of a test's buffers and counts its sends.
type books struct {
	mu     sync.Mutex
	owners []*owner
	sent   atomic.Int32 // messages accepted for sending
	done   atomic.Int32 // messages whose `done` was called
}

func (b *books) owner() *owner {
	b.mu.Lock()
	defer b.mu.Unlock()
	o := &owner{}
	b.owners = append(b.owners, o)
	return o
}

// anything runs workers that send and take messages and begin epochs, each at its own pace. Some messages are not
// taken. In some runs, one of the workers fails meanwhile. At the end all are closed. anything checks that every buffer
// on either side is freed exactly once, and that `done` of every message is called once.
func anything(t *testing.T, open Maker) {
	for seed := range uint64(8) {
		b, g := &books{}, rand.New(rand.NewPCG(seed, 5))
		w := newWorld(t, open, 3, g.IntN(3))
		w.room = b.owner
		var edges []wire.Edge
		for from := range 3 {
			for to := range 3 {
				edges = append(edges, w.edge(from, to))
			}
		}
		w.Begin(1, w.table.Edges())()
		stop := make(chan struct{})
		var all sync.WaitGroup
		for rank := range 3 {
			mine := rand.New(rand.NewPCG(seed, uint64(rank)))
			all.Go(func() { b.worker(w, mine, edges[3*rank:3*rank+3]) })
		}
		all.Go(func() {
			for n := 0; ; n++ {
				select {
				case a := <-w.came:
					if n%5 == 0 {
						continue // Begin or Close must free it
					}
					if got, here := w.Port(a.Edge.To).Take(a.Edge, a.Key); here {
						wire.FreeAll(got.Parts)
					}
				case <-stop:
					return
				}
			}
		})
		time.Sleep(time.Duration(g.IntN(3000)) * time.Microsecond)
		if seed%3 == 0 {
			w.Fail(g.IntN(3), wire.ErrClosed)
		}
		w.close()
		close(stop)
		wait(t, signal(all.Wait), "the workers")
		for i, o := range b.owners {
			if n := o.freed.Load(); n != 1 {
				t.Errorf("seed %d: buffer %d of %d was freed %d times", seed, i, len(b.owners), n)
			}
		}
		if sent, done := b.sent.Load(), b.done.Load(); sent != done {
			t.Errorf("seed %d: of %d messages %d senders were told", seed, sent, done)
		}
	}
}

// worker sends messages and begins epochs until its port ends. Some messages become complete only later.
func (b *books) worker(w *world, g *rand.Rand, edges []wire.Edge) {
	var events sync.WaitGroup
	defer events.Wait()
	for k := range uint64(10_000) {
		e := edges[g.IntN(len(edges))]
		port := w.Port(e.From)
		if g.IntN(50) == 0 {
			port.Begin(uint32(k/50 + 1))()
		}
		var parts []wire.Buffer
		for range g.IntN(3) {
			p := bufferOf(make([]byte, g.IntN(2000)))
			p.Owner = b.owner()
			if g.IntN(10) == 0 {
				ready := late{make(chan struct{})}
				p.Ready = ready
				events.Go(func() {
					time.Sleep(50 * time.Microsecond)
					close(ready.set)
				})
			}
			parts = append(parts, p)
		}
		if err := port.Send(e, k, 0, parts, func(error) { b.done.Add(1) }); err != nil {
			return
		}
		b.sent.Add(1)
	}
}
