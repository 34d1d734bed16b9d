package machine_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/machine"
)

// timing plays a Machine with random times: at each step, one of the possible events happens. It starts only what
// Poll calls ready. Messages and credits arrive at random times.
type timing struct {
	g       *rand.Rand
	p       *schedule.Program
	m       *machine.Machine
	c       channel
	credits []delivery // slots of an edge that are on their way back to the edge's sender
	running []bool
	ahead   bool
	issued  [][]schedule.Instruction // by worker: issued computations, if devices run behind their hosts
	log     []event
	begins  func(w int, in schedule.Instruction) // called between Start and Issued; may be nil
}

type event struct {
	worker   int
	in       schedule.Instruction
	dropping bool
}

func newTiming(t *testing.T, g *rand.Rand, p *schedule.Program, o machine.Options) *timing {
	m, err := machine.New(p, o)
	if err != nil {
		t.Fatal(err)
	}
	return &timing{g: g, p: p, m: m, ahead: o.Ahead > 0, running: make([]bool, p.Workers),
		issued: make([][]schedule.Instruction, p.Workers),
		c:      channel{joined: map[schedule.Instruction]int{}, left: map[schedule.Instruction]int{}}}
}

// step lets one event happen. It returns false if none can.
func (x *timing) step() bool {
	var can []func()
	for w := range x.p.Workers {
		l := x.m.Local(w)
		switch in, _ := l.Head(); {
		case x.running[w]:
			can = append(can, func() { x.issue(w, in) })
		case x.m.Poll(w).Ready():
			can = append(can, func() { x.start(w, in) })
		}
		if len(x.issued[w]) > 0 {
			can = append(can, func() {
				in := x.issued[w][0]
				x.issued[w] = x.issued[w][1:]
				x.m.Done(w, in)
			})
		}
	}
	if len(x.c.messages) > 0 {
		can = append(can, func() {
			d := pick(x.g, &x.c.messages)
			x.m.Arrive(d.to, d.in)
			if x.c.left[d.in]--; x.c.left[d.in] == 0 {
				x.m.Done(d.from, d.in)
			}
		})
	}
	if len(x.c.sums) > 0 {
		can = append(can, func() {
			d := pick(x.g, &x.c.sums)
			x.m.Done(d.to, d.in)
		})
	}
	if len(x.credits) > 0 {
		can = append(can, func() {
			d := pick(x.g, &x.credits)
			x.m.Credit(d.from, d.to)
		})
	}
	if len(can) == 0 {
		return false
	}
	can[x.g.IntN(len(can))]()
	return true
}

func (x *timing) start(w int, in schedule.Instruction) {
	l := x.m.Local(w)
	x.log = append(x.log, event{w, in, l.Dropping()})
	if in.Kind.IsReceive() {
		l.Messages(func(_ schedule.Instruction, from int) bool {
			x.credits = append(x.credits, delivery{from: from, to: w})
			return true
		})
	}
	x.m.Start(w)
	x.running[w] = true
	if x.begins != nil {
		x.begins(w, in)
	}
}

func (x *timing) issue(w int, in schedule.Instruction) {
	x.running[w] = false
	x.c.begins(x.p, w, in)
	late := in.Kind.IsCompute() && x.ahead
	if late {
		x.issued[w] = append(x.issued[w], in)
	}
	x.m.Issued(w, !in.Kind.IsIssued() && !late)
}

// end plays until no event can happen. It fails unless all lists have ended and no message or slot remains.
func (x *timing) end(t *testing.T, seed uint64) {
	t.Helper()
	for x.step() {
	}
	if !x.m.Ended() {
		t.Fatalf("seed %d: nothing moves: %v\n%s", seed, x.m.Waits(), x.p.Text())
	}
	if w, in, found := x.m.Left(); found {
		t.Fatalf("seed %d: %v lies at worker %d\n%s", seed, in, w, x.p.Text())
	}
	for w := range x.p.Workers {
		if taken := x.m.Local(w).Taken(); slices.ContainsFunc(taken, func(n int) bool { return n != 0 }) {
			t.Fatalf("seed %d: slots of worker %d are still taken: %v", seed, w, taken)
		}
	}
}

// did returns what a worker has executed, in order. Receives whose messages were dropped are included only if `dropped`
// is true.
func (x *timing) did(w int, dropped bool) []schedule.Instruction {
	var list []schedule.Instruction
	for _, e := range x.log {
		if e.worker == w && (dropped || !e.dropping) {
			list = append(list, e.in)
		}
	}
	return list
}

// anyOptions draws options with which the Program runs to its end.
func anyOptions(t *testing.T, g *rand.Rand, p *schedule.Program) machine.Options {
	switch g.IntN(4) {
	case 0:
		return machine.Options{Cores: anyPools(g, p.Workers)}
	case 1:
		return machine.Options{Ahead: g.IntN(4)}
	case 2:
		slots, err := machine.LeastSlots(p)
		if err != nil || slots == 0 {
			t.Fatalf("%d slots: %v\n%s", slots, err, p.Text())
		}
		return machine.Options{Slots: slots + g.IntN(2), Cores: machine.Share(g.IntN(3))}
	}
	return machine.Options{}
}

// TestEveryTimingEnds: every worker executes its list in order. This also holds on shared cores, with devices that run
// behind their hosts, and with as few slots as possible.
func TestEveryTimingEnds(t *testing.T) {
	for seed := range uint64(120) {
		g := rand.New(rand.NewPCG(seed, 1))
		p := anyProgram(t, g)
		x := newTiming(t, g, p, anyOptions(t, g, p))
		x.end(t, seed)
		for w := range p.Workers {
			var list []schedule.Instruction
			p.Walk(w, func(in schedule.Instruction) bool {
				list = append(list, in)
				return true
			})
			if got := x.did(w, true); !slices.Equal(got, list) {
				t.Fatalf("seed %d: worker %d executed %v\n%s", seed, w, got, p.Text())
			}
		}
	}
}

// TestStopAnywhere: a stop is requested at a random time. Every worker executes exactly the drains and the instructions
// of minibatches below the agreed limit, and waits for no message that is not sent.
func TestStopAnywhere(t *testing.T) {
	cut := 0
	for seed := range uint64(150) {
		g := rand.New(rand.NewPCG(seed, 2))
		p := anyProgram(t, g)
		x := newTiming(t, g, p, anyOptions(t, g, p))
		for range g.IntN(1 + int(p.Instructions())) {
			x.step()
		}
		begun := x.m.Begun()
		x.m.Hold(begun + 1)
		for range g.IntN(20) {
			x.step()
		}
		if x.m.Begun() != begun {
			t.Fatalf("seed %d: minibatch %d began while %d was to be the last\n%s", seed, x.m.Begun(), begun,
				p.Text())
		}
		limit := (begun + p.Period) / p.Period * p.Period
		x.m.Limit(limit)
		x.end(t, seed)
		for w := range p.Workers {
			var list []schedule.Instruction
			p.Walk(w, func(in schedule.Instruction) bool {
				if in.Kind == schedule.DR || p.MinibatchOf(in) < limit {
					list = append(list, in)
				} else {
					cut++
				}
				return true
			})
			if got := x.did(w, true); !slices.Equal(got, list) {
				t.Fatalf("seed %d: stopped at %d, worker %d executed %v, want %v\n%s", seed, limit, w, got, list,
					p.Text())
			}
		}
	}
	if cut == 0 {
		t.Error("nothing was ever cut off")
	}
}

// TestRefusalAnywhere: a random update is refused. Every worker executes the instructions of minibatches up to that of
// the update. Of the next minibatch it executes only those before its own PV of the refused update. Every sent message
// is received, and no worker waits for ever.
func TestRefusalAnywhere(t *testing.T) {
	dropped, refused := 0, 0
	for seed := uint64(0); refused < 40; seed++ {
		g := rand.New(rand.NewPCG(seed, 3))
		p := anyProgram(t, g)
		if !p.PostValidate {
			continue
		}
		refused++
		k := g.IntN(p.Minibatches())
		x := newTiming(t, g, p, anyOptions(t, g, p))
		x.begins = func(w int, in schedule.Instruction) {
			if in.Kind == schedule.PV && int(in.Micro) == k {
				x.m.Local(w).Rollback(k)
			}
		}
		x.end(t, seed)
		for w := range p.Workers {
			var list []schedule.Instruction
			learned := false
			p.Walk(w, func(in schedule.Instruction) bool {
				if p.MinibatchOf(in) <= k || !learned {
					list = append(list, in)
				}
				learned = learned || in.Kind == schedule.PV && int(in.Micro) == k
				return true
			})
			if got := x.did(w, false); !slices.Equal(got, list) {
				t.Fatalf("seed %d: refused %d, worker %d executed %v, want %v\n%s", seed, k, w, got, list, p.Text())
			}
			dropped += len(x.did(w, true)) - len(list)
		}
	}
	if dropped == 0 {
		t.Error("no message was ever dropped")
	}
	t.Log(dropped)
}
