package machine_test

import (
	"math/rand/v2"
	"testing"

	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/machine"
)

// channel holds the messages and sums in flight in a play with delays. Each arrives at some time, in any order.
type channel struct {
	messages []delivery
	sums     []delivery
	joined   map[schedule.Instruction]int
	left     map[schedule.Instruction]int // by send: number of its messages that have not arrived
}

type delivery struct {
	to   int
	from int
	in   schedule.Instruction
}

// begins adds to the channel what an instruction sends.
func (c *channel) begins(p *schedule.Program, w int, in schedule.Instruction) {
	for _, to := range p.Receivers(in) {
		c.messages = append(c.messages, delivery{to, w, in})
		c.left[in]++
	}
	if !in.Kind.IsCollective() {
		return
	}
	members, workers := p.Group(in)
	if c.joined[members[0]]++; c.joined[members[0]] == len(members) {
		for i, m := range members {
			c.sums = append(c.sums, delivery{to: workers[i], in: m})
		}
	}
}

func pick[T any](g *rand.Rand, list *[]T) T {
	i := g.IntN(len(*list))
	one := (*list)[i]
	(*list)[i] = (*list)[len(*list)-1]
	*list = (*list)[:len(*list)-1]
	return one
}

// TestTwin plays random Programs with random times on Machine and on the earlier Machine (before). At every step both
// agree, for every worker, on what may start and on what it waits for.
func TestTwin(t *testing.T) {
	lacks := map[machine.Lack]int{}
	for seed := range uint64(200) {
		g := rand.New(rand.NewPCG(seed, 16))
		p := anyProgram(t, g)
		was := newBefore(p)
		m, err := machine.New(p, machine.Options{})
		if err != nil {
			t.Fatal(err)
		}
		c := channel{joined: map[schedule.Instruction]int{}, left: map[schedule.Instruction]int{}}
		running := map[int]schedule.Instruction{}
		for {
			var ready, busy []int
			for w := range p.Workers {
				if in, is := running[w]; is {
					busy = append(busy, w)
					if n := m.Poll(w); n.Lack != machine.Running || n.At != in {
						t.Fatalf("seed %d: %v where worker %d runs %v\n%s", seed, n, w, in, p.Text())
					}
					continue
				}
				want, got := was.Poll(w), m.Poll(w)
				if lacks[got.Lack]++; want != got {
					t.Fatalf("seed %d: %v; before: %v\n%s", seed, got, want, p.Text())
				}
				if got.Ready() {
					ready = append(ready, w)
				}
			}
			n := g.IntN(max(1, len(ready)+len(busy)+len(c.messages)+len(c.sums)))
			switch {
			case n < len(ready):
				w := ready[n]
				in, _ := m.Local(w).Head()
				running[w] = in
				was.Start(w)
				m.Start(w)
			case n < len(ready)+len(busy):
				w := pick(g, &busy)
				in := running[w]
				delete(running, w)
				c.begins(p, w, in)
				was.End(w)
				m.Issued(w, !in.Kind.IsIssued())
			case n < len(ready)+len(busy)+len(c.messages):
				d := pick(g, &c.messages)
				was.Arrive(d.to, d.in)
				m.Arrive(d.to, d.in)
				if c.left[d.in]--; c.left[d.in] == 0 {
					m.Done(d.from, d.in)
				}
			case len(c.sums) > 0:
				d := pick(g, &c.sums)
				was.Arrive(d.to, d.in)
				m.Done(d.to, d.in)
			default:
				if !m.Ended() {
					t.Fatalf("seed %d: nothing moves: %v\n%s", seed, m.Waits(), p.Text())
				}
			}
			if m.Ended() {
				break
			}
		}
		if w, in, found := m.Left(); found {
			t.Fatalf("seed %d: %v lies at worker %d", seed, in, w)
		}
	}
	for _, l := range []machine.Lack{machine.Nothing, machine.Message, machine.Collective, machine.Drain,
		machine.Ended} {
		if lacks[l] == 0 {
			t.Errorf("no worker was ever found with lack %d: %v", l, lacks)
		}
	}
	t.Log(lacks)
}
