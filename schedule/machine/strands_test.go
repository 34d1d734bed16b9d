package machine_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/schedule/lower"
	"github.com/millrace-ml/millrace/schedule/machine"
)

func served(t testing.TB, trainers, steps int, staleness *int) *schedule.Program {
	t.Helper()
	p, err := family.Generate("asp", schedule.Settings{Placement: schedule.Replicated(1, trainers+1), MicroBatches: 1,
		Repeat: steps, Weights: schedule.ASP, Staleness: staleness})
	if err == nil {
		p, err = lower.Lower(p, lower.Options{})
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// server is a parameter server under test. Its methods check what the server does next, and deliver messages of
// trainers.
type server struct {
	testing.TB
	*machine.Local
	p *schedule.Program
}

func (s server) does(want string) {
	s.Helper()
	for _, text := range strings.Fields(want) {
		n := s.Poll()
		if !n.Ready() || n.At.String() != text {
			s.Fatalf("it would do %v (%v); want %s", n.At, n, text)
		}
		s.Start()
		s.Issued(true)
	}
}

func (s server) lacks(want string) machine.Need {
	s.Helper()
	n := s.Poll()
	if n.Ready() || n.Blocker() != want {
		s.Fatalf("%v: %q; want %q", n, n.Blocker(), want)
	}
	return n
}

func (s server) sent(minibatches ...int32) {
	for _, m := range minibatches {
		s.Arrive(schedule.Instruction{Kind: schedule.SG, Micro: m, Replica: int16(int(m) % s.p.Trainers())})
	}
}

func newServer(t testing.TB, p *schedule.Program) server {
	l, err := machine.NewLocal(p, p.WorkerOf(1, 0, 0), machine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return server{t, l, p}
}

// A server sends weights first, takes gradients in their order of arrival, and finishes an update before it does
// anything else.
func TestStrandsAreTakenByReadiness(t *testing.T) {
	s := newServer(t, served(t, 3, 9, nil))
	s.does("p1/0SW0 p1/0SW1 p1/0SW2")
	s.lacks("0SG0")
	s.sent(2)
	s.does("p1/0RG2")
	s.sent(1, 0)
	s.does("p1/0U2 p1/0SW5 p1/0RG1 p1/0U1 p1/0SW4 p1/0RG0")
	s.sent(5)
	s.does("p1/0U0 p1/0SW3 p1/0RG5 p1/0U5 p1/0SW8")
	s.sent(8)
	s.does("p1/0RG8 p1/0U8")
	s.sent(3, 4)
	s.does("p1/0RG3 p1/0U3 p1/0SW6 p1/0RG4 p1/0U4 p1/0SW7")
	s.sent(7, 6)
	s.does("p1/0RG7 p1/0U7 p1/0RG6 p1/0U6")
	if n := s.Poll(); n.Lack != machine.Ended || s.Begun() != 8 {
		t.Errorf("it has not ended: %v", n)
	}
}

// The server does not send weights to a trainer that is too far ahead, and says that it waits for the slower trainer. A
// trainer that has finished delays no other trainer. After a stop, the rest of each trainer's strand is skipped.
func TestStrandsKeepStaleness(t *testing.T) {
	s := newServer(t, served(t, 2, 9, new(1))) // trainer 0 has minibatches 0 2 4 6 8, trainer 1 has 1 3 5 7
	s.does("p1/0SW0 p1/0SW1")
	s.sent(0)
	s.does("p1/0RG0 p1/0U0 p1/0SW2")
	s.sent(2)
	s.does("p1/0RG2 p1/0U2")
	if n := s.lacks("staleness"); n.Peer != 1 || !strings.Contains(n.String(), "ahead of worker 1") {
		t.Error(n)
	} else if chain, _ := machine.Chain(s.p, []machine.Need{n, {Worker: 1, Lack: machine.Device}}); len(chain) != 2 {
		t.Errorf("the chain of waits is %v", chain)
	}
	s.sent(1)
	s.does("p1/0RG1 p1/0U1 p1/0SW4 p1/0SW3")
	s.Hold(5)
	s.sent(3)
	s.does("p1/0RG3 p1/0U3")
	s.lacks("0SG4") // minibatch 5 is held back too
	s.Limit(6)
	s.does("p1/0SW5")
	s.sent(5, 4)
	s.does("p1/0RG5 p1/0U5 p1/0RG4 p1/0U4")
	if n := s.Poll(); n.Lack != machine.Ended {
		t.Errorf("it has not ended: %v", n)
	}
}

// Whole Programs are played in random orders and stopped at random times. All workers end, after exactly one update
// for each minibatch before the stop.
func TestServedProgramsEnd(t *testing.T) {
	for seed := range uint64(300) {
		g := rand.New(rand.NewPCG(seed, 3))
		trainers := 1 + g.IntN(4)
		p := served(t, trainers, 1+g.IntN(20), nil)
		if g.IntN(2) == 0 {
			p.Staleness = new(g.IntN(3))
		}
		m, err := machine.New(p, machine.Options{Slots: g.IntN(2), Cores: machine.Share(g.IntN(3))})
		if err != nil {
			t.Fatal(err)
		}
		stop, limit, updates := g.IntN(200), p.Minibatches(), 0
		for n := 0; ; n++ {
			if n == stop {
				limit = min(limit, (m.Begun()+trainers)/trainers*trainers)
				m.Limit(limit)
			}
			workers := g.Perm(p.Workers)
			at := slices.IndexFunc(workers, func(w int) bool { return m.Poll(w).Ready() })
			if at < 0 {
				break
			}
			w := workers[at]
			l := m.Local(w)
			in, _ := l.Head()
			var froms []int
			l.Messages(func(_ schedule.Instruction, from int) bool {
				froms = append(froms, from)
				return true
			})
			m.Start(w)
			m.Issued(w, true)
			if in.Kind.IsReceive() {
				for _, from := range froms {
					m.Credit(from, w)
				}
			}
			p.Recipients(in, func(to, _, _, _ int) bool {
				if in.Kind.IsSend() {
					m.Arrive(to, in)
				}
				return in.Kind.IsSend()
			})
			if in.Kind == schedule.U {
				updates++
			}
		}
		if !m.Ended() || updates != limit {
			t.Fatalf("seed %d: %d of %d updates; %v", seed, updates, limit, m.Waits())
		}
	}
}
