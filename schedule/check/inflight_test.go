package check_test

import (
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/check"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/schedule/lower"
	"github.com/millrace-ml/millrace/schedule/machine"
	"github.com/millrace-ml/millrace/schedule/scheduletest"
)

// lazily drives the Program with a Machine and returns the largest number of messages in flight on each edge. In each
// round one receiver is lazy: it moves only when no other worker can. So when a message is sent to it, it has received
// as few messages as possible.
func lazily(t *testing.T, p *schedule.Program) map[check.Edge]int {
	t.Helper()
	most := map[check.Edge]int{}
	for lazy := range p.Workers {
		m, err := machine.New(p, machine.Options{})
		if err != nil {
			t.Fatal(err)
		}
		lie, joined := make([]int, p.Workers), map[schedule.Instruction]int{}
		move := func(w int) bool {
			if !m.Poll(w).Ready() {
				return false
			}
			in, _ := m.Local(w).Head()
			m.Start(w)
			m.Issued(w, !in.Kind.IsCollective())
			if in.Kind.IsSend() {
				p.Recipients(in, func(to, _, _, _ int) bool {
					m.Arrive(to, in)
					if to == lazy {
						lie[w]++
						most[check.Edge{From: w, To: to}] = max(most[check.Edge{From: w, To: to}], lie[w])
					}
					return true
				})
			}
			if in.Kind.IsReceive() && w == lazy {
				p.Expected(in, func(_ schedule.Instruction, from int) bool {
					lie[from]--
					return true
				})
			}
			if in.Kind.IsCollective() {
				members, workers := p.Group(in)
				if joined[members[0]]++; joined[members[0]] == len(members) {
					for i, member := range members {
						m.Done(workers[i], member)
					}
				}
			}
			return true
		}
		for moved := true; moved; {
			moved = false
			for w := range p.Workers {
				for w != lazy && move(w) {
					moved = true
				}
			}
			if !moved {
				moved = move(lazy)
			}
		}
		if !m.Ended() {
			t.Fatalf("it stops: %v", m.Waits())
		}
	}
	return most
}

// orders holds the lists of a Program's workers and what each instruction waits for. A state of the workers is the
// number of instructions that each has begun.
type orders struct {
	p      *schedule.Program
	lists  [][]schedule.Instruction
	at     map[schedule.Instruction]int // the index in its worker's list
	drains [][]int                      // by worker, the indexes of its drains
}

func ordersOf(p *schedule.Program) *orders {
	o := &orders{p: p, lists: make([][]schedule.Instruction, p.Workers), at: map[schedule.Instruction]int{},
		drains: make([][]int, p.Workers)}
	for w := range p.Workers {
		p.Walk(w, func(in schedule.Instruction) bool {
			if in.Kind == schedule.DR {
				o.drains[w] = append(o.drains[w], len(o.lists[w]))
			} else {
				o.at[in] = len(o.lists[w])
			}
			o.lists[w] = append(o.lists[w], in)
			return true
		})
	}
	return o
}

// complete reports whether all members of a collective have begun it.
func (o *orders) complete(places []byte, c schedule.Instruction) bool {
	members, workers := o.p.Group(c)
	for i, m := range members {
		if int(places[workers[i]]) <= o.at[m] {
			return false
		}
	}
	return true
}

// may reports whether a worker may begin its next instruction.
func (o *orders) may(places []byte, w int) bool {
	list, here := o.lists[w], int(places[w])
	if here == len(list) {
		return false
	}
	in, ok := list[here], true
	switch {
	case in.Kind.IsReceive():
		o.p.Expected(in, func(sent schedule.Instruction, from int) bool {
			ok = int(places[from]) > o.at[sent]
			return ok
		})
	case in.Kind == schedule.DR:
		k := slices.Index(o.drains[w], here)
		for v := range o.p.Workers {
			ok = ok && int(places[v]) >= o.drains[v][k]
		}
		for _, c := range list[:here] {
			ok = ok && (!c.Kind.IsCollective() || o.complete(places, c))
		}
	case in.Kind.OfMinibatch():
		for _, c := range list[:here] {
			ok = ok && (!c.Kind.IsCollective() || !machine.AwaitsSum(o.p, in, c) || o.complete(places, c))
		}
	}
	return ok
}

// lie returns the number of messages in flight on each edge.
func (o *orders) lie(places []byte) map[check.Edge]int {
	lie := map[check.Edge]int{}
	for w, list := range o.lists {
		for _, in := range list[:places[w]] {
			if in.Kind.IsSend() {
				o.p.Recipients(in, func(to, _, _, _ int) bool { lie[check.Edge{From: w, To: to}]++; return true })
			}
			if in.Kind.IsReceive() {
				o.p.Expected(in, func(_ schedule.Instruction, from int) bool { lie[check.Edge{From: from, To: w}]--; return true })
			}
		}
	}
	return lie
}

// timings returns the largest number of messages in flight on each edge over all timings. It visits every reachable
// state of the workers, and returns nil if there are more than the given number of states.
func timings(p *schedule.Program, states int) map[check.Edge]int {
	o := ordersOf(p)
	most := map[check.Edge]int{}
	seen := map[string]bool{}
	open := [][]byte{make([]byte, p.Workers)}
	for len(open) > 0 {
		places := open[len(open)-1]
		open = open[:len(open)-1]
		for e, n := range o.lie(places) {
			most[e] = max(most[e], n)
		}
		for w := range p.Workers {
			if !o.may(places, w) {
				continue
			}
			next := slices.Clone(places)
			next[w]++
			if !seen[string(next)] {
				if seen[string(next)] = true; len(seen) > states {
					return nil
				}
				open = append(open, next)
			}
		}
	}
	return most
}

func TestInFlightIsReached(t *testing.T) {
	g := rand.New(rand.NewPCG(7, 16))
	all, values := 0, map[int]int{}
	for range 300 {
		o := scheduletest.Everything()
		o.Workers, o.Chunks, o.MicroBatches, o.Minibatches = 3, 2, 3, 2
		p := scheduletest.Random(g.IntN, o)
		p, err := lower.Lower(p, lower.Options{Clip: p.Weights.Flushes() && g.IntN(2) == 0})
		if err != nil {
			t.Fatal(err)
		}
		got, err := check.InFlight(p)
		if err != nil {
			t.Fatal(err)
		}
		if want := lazily(t, p); !maps.Equal(got, want) {
			t.Fatalf("%v; where receivers are lazy %v\n%v", got, want, p)
		}
		if want := timings(p, 1000); want != nil {
			if all++; !maps.Equal(got, want) {
				t.Fatalf("%v; over all timings %v\n%v", got, want, p)
			}
		}
		for _, n := range got {
			values[n]++
		}
	}
	t.Logf("%d over all timings; %v", all, values)
	if all < 50 || len(values) < 5 {
		t.Errorf("%d over all timings; %v", all, values)
	}
}

// TestInFlightOfFamilies: InFlight does not follow every repetition, but gives the same result as a play of all of
// them.
func TestInFlightOfFamilies(t *testing.T) {
	tried := 0
	for _, f := range family.All() {
		for _, workers := range []int{2, 3, 5} {
			for _, policy := range append([]schedule.Policy{""}, f.Policies...) {
				s := schedule.Settings{Placement: f.Placement(workers, 2), MicroBatches: 4, Repeat: 23, Weights: policy}
				p, err := family.Generate(f.Name, s)
				if err != nil {
					continue
				}
				if p, err = lower.Lower(p, lower.Options{Clip: policy.Flushes() && tried%2 == 0}); err != nil {
					t.Fatal(err)
				}
				got, err := check.InFlight(p)
				if err != nil {
					t.Fatal(err)
				}
				if want := lazily(t, p); !maps.Equal(got, want) {
					t.Errorf("%s %s on %d workers: %v, want %v", f.Name, policy, workers, got, want)
				}
				tried++
			}
		}
	}
	if tried < 40 {
		t.Errorf("%d programs", tried)
	}
}

// TestInFlightOfGroups uses a stream whose stages wait for each other's sums, even at the end of the stream. The number
// of messages in flight does not depend on the length of the stream.
func TestInFlightOfGroups(t *testing.T) {
	for _, placement := range [][][]int{{{0}, {1}}, {{0, 1}, {2, 3}}, {{0, 1}, {2}}, {{0, 1, 2}, {3}, {4}}} {
		for _, m := range []int{3, 4} {
			for _, o := range []lower.Options{{Clip: true}, {Tied: [][]int{{0, 1}}}} {
				of := func(repeat int) *schedule.Program {
					p, err := family.Generate("1f1b-rr", schedule.Settings{Placement: placement, MicroBatches: m, Repeat: repeat})
					if err == nil {
						p, err = lower.Lower(p, o)
					}
					if err != nil {
						t.Fatal(err)
					}
					return p
				}
				short := of(60)
				want := lazily(t, short)
				for _, p := range []*schedule.Program{short, of(60 + 1<<22)} {
					if got, err := check.InFlight(p); err != nil || !maps.Equal(got, want) {
						t.Errorf("%v, %d micro-batches, %+v, %d repetitions: %v, want %v; %v", placement, m, o, p.Repeat, got, want,
							err)
					}
				}
			}
		}
	}
}

// TestInFlightOfDepths: in 1F1B with depths K, at most K_i messages are in flight between stages i and i+1, in each
// direction. Stage i sends K_i forwards before it receives a gradient. When stage i+1 receives the last forward of a
// step, stage i has received all its gradients except the last K_i. Thousands of steps cost no more time than a few.
func TestInFlightOfDepths(t *testing.T) {
	for seed := range uint64(100) {
		g := rand.New(rand.NewPCG(seed, 17))
		stages, m := 2+g.IntN(15), 1+g.IntN(32)
		depths, limit := make([]int, stages), m
		for i := range depths {
			depths[i] = 1 + g.IntN(limit)
			limit = depths[i]
		}
		p, err := family.Generate("1f1b", schedule.Settings{Placement: schedule.Replicated(stages, 1), MicroBatches: m,
			Warmup: depths, Repeat: 4096})
		if err != nil {
			t.Fatal(err)
		}
		if p, err = lower.Lower(p, lower.Options{}); err != nil {
			t.Fatal(err)
		}
		want := map[check.Edge]int{}
		for i := range stages - 1 {
			want[check.Edge{From: i, To: i + 1}], want[check.Edge{From: i + 1, To: i}] = depths[i], depths[i]
		}
		if got, err := check.InFlight(p); err != nil || !maps.Equal(got, want) {
			t.Fatalf("depths %v of %d micro-batches: %v, want %v: %v", depths, m, got, want, err)
		}
	}
}

// TestInFlightRefuses: InFlight refuses a Program that is not lowered, and one that deadlocks.
func TestInFlightRefuses(t *testing.T) {
	p, err := family.Generate("1f1b", schedule.Settings{Placement: schedule.Replicated(2, 1), MicroBatches: 2, Repeat: 1})
	if err != nil {
		t.Fatal(err)
	}
	var wrong *check.Error
	if _, err := check.InFlight(p); !errors.As(err, &wrong) {
		t.Errorf("not lowered: %v", err)
	}
	if p, err = lower.Lower(p, lower.Options{}); err != nil {
		t.Fatal(err)
	}
	p.Body[0] = p.Body[0][:0]
	if _, err := check.InFlight(p); !errors.As(err, &wrong) || wrong.Worker != 1 || wrong.Position != 0 ||
		!strings.Contains(err.Error(), "worker 1, instruction 0 (1RF0): it would wait there for ever") {
		t.Errorf("without a sender: %v", err)
	}
}
