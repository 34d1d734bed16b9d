package control

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/schedule/lower"
	"github.com/millrace-ml/millrace/schedule/machine"
)

// world is a leader and processes whose workers execute a Program without tensors or goroutines, in random order.
type world struct {
	g       *rand.Rand
	p       *schedule.Program
	refused int // the minibatch whose update is taken back, or -1
	leader  *Leader
	of      []int // the process of each worker
	process []*side
	flying  []arrival
	joined  map[schedule.Instruction]int
	did     [][]schedule.Instruction // by worker: what it executed
	starts  int
	at      func(start int) // called after each start
}

// arrival is a message between workers in flight, or a completed collective. It has no effect before its Program runs.
type arrival struct {
	at     *side
	epoch  uint32
	happen func()
}

// side is one process of a world.
type side struct {
	*machine.Process
	follower      *Follower
	workers       []int
	toLeader      []Message
	fromLeader    []Message
	limit, undone int
	drains        int
	ended, failed bool
	told          *Failed
	answered      int // the minibatch of its answer to a Stop; -2 means no answer
}

func newWorld(g *rand.Rand, of []int) *world {
	w := &world{g: g, of: of, refused: -1, joined: map[schedule.Instruction]int{},
		did: make([][]schedule.Instruction, len(of))}
	n := slices.Max(of) + 1
	w.leader = NewLeader(n, len(of))
	for i := range n {
		s := &side{follower: NewFollower(i, 1)}
		for k, p := range of {
			if p == i {
				s.workers = append(s.workers, k)
			}
		}
		w.process = append(w.process, s)
		s.say(Ready{})
	}
	return w
}

func (s *side) say(body Body) {
	if m, useful := s.follower.Say(body); useful {
		s.toLeader = append(s.toLeader, m)
	}
}

func (w *world) tell(all []Message) {
	for _, m := range all {
		for _, s := range w.process {
			s.fromLeader = append(s.fromLeader, m)
		}
	}
}

// step makes one random event happen; it returns false if none is possible.
func (w *world) step() (bool, error) {
	var can []func() error
	for i, s := range w.process {
		if len(s.toLeader) > 0 {
			can = append(can, func() error {
				m := s.toLeader[0]
				s.toLeader = s.toLeader[1:]
				answer, err := w.leader.Receive(m)
				w.tell(answer)
				return err
			})
		}
		if len(s.fromLeader) > 0 {
			can = append(can, func() error { return w.obey(i) })
		}
		if s.Process != nil && !s.failed {
			for _, k := range s.workers {
				if s.Poll(k).Ready() {
					can = append(can, func() error { w.execute(s, k); return nil })
				}
			}
		}
	}
	for i, a := range w.flying {
		if a.at.follower.Epoch() == a.epoch {
			can = append(can, func() error {
				w.flying = slices.Delete(w.flying, i, i+1)
				a.happen()
				return nil
			})
		}
	}
	if len(can) == 0 {
		return false, nil
	}
	err := can[w.g.IntN(len(can))]()
	for _, s := range w.process {
		s.look(w.p)
	}
	return true, err
}

// look tells the leader if the process has reached a drain or has ended the Program.
func (s *side) look(p *schedule.Program) {
	if s.Process == nil || s.failed {
		return
	}
	if drain, n, all := s.AtDrain(); all && drain == s.drains {
		s.drains++
		s.say(Reached{Drain: drain, Workers: n})
	}
	if !s.ended && s.Ended() {
		s.ended = true
		s.say(Ended{Minibatches: min(s.limit, s.undone, p.Minibatches())})
	}
}

func (w *world) obey(i int) error {
	s := w.process[i]
	m := s.fromLeader[0]
	s.fromLeader = s.fromLeader[1:]
	body, err := s.follower.Receive(m)
	if err != nil {
		return err
	}
	switch body := body.(type) {
	case Load, Evaluate, Save:
		if s.Process == nil {
			s.Process, err = machine.NewProcess(w.p, s.workers, machine.Options{})
		} else {
			err = s.Process.Load(w.p)
		}
		s.limit, s.undone, s.drains, s.ended, s.answered = w.p.Minibatches(), w.p.Minibatches(), 0, false, -2
		return err
	case Stop:
		s.answered = s.Begun()
		s.Hold(s.answered + 1)
		s.say(Begun{Minibatch: s.answered})
	case Limit:
		if b := s.Begun(); b > s.answered {
			return fmt.Errorf("process %d has said that it has begun minibatch %d, and then begun %d", i, s.answered, b)
		}
		s.limit = min(s.limit, body.Minibatches)
		s.Process.Limit(body.Minibatches)
	case Release:
		s.Process.Release()
	case Failed:
		s.failed, s.told = true, &body
	case Leave:
		s.say(Left{})
	}
	return nil
}

// execute makes a worker execute the next instruction of its list.
func (w *world) execute(s *side, k int) {
	in, _ := s.Local(k).Head()
	s.Start(k)
	if dropping := s.Local(k).Dropping(); !dropping {
		w.did[k] = append(w.did[k], in)
	}
	if in.Kind == schedule.PV && int(in.Micro) == w.refused {
		s.Local(k).Rollback(w.refused)
		s.undone = min(s.undone, w.refused+1)
	}
	s.Issued(k, !in.Kind.IsCollective())
	switch {
	case in.Kind.IsSend():
		w.p.Recipients(in, func(to, _, _, _ int) bool {
			at := w.process[w.of[to]]
			w.flying = append(w.flying, arrival{at, s.follower.Epoch(), func() { at.Arrive(to, in) }})
			return true
		})
	case in.Kind.IsCollective():
		members, workers := w.p.Group(in)
		if w.joined[members[0]]++; w.joined[members[0]] == len(members) {
			delete(w.joined, members[0])
			for i, member := range members {
				at := w.process[w.of[workers[i]]]
				w.flying = append(w.flying, arrival{at, s.follower.Epoch(), func() { at.Done(workers[i], member) }})
			}
		}
	}
	if w.starts++; w.at != nil {
		w.at(w.starts)
	}
}

// play runs a Program to its end, or as far as possible.
func (w *world) play(p *schedule.Program, body Body) error {
	for !w.leader.Ready() {
		if more, err := w.step(); err != nil || !more {
			return fmt.Errorf("the processes do not get ready: %v", err)
		}
	}
	w.p, w.starts = p, 0
	for k := range w.did {
		w.did[k] = nil
	}
	w.tell(w.leader.Begin(body, p.Period))
	for {
		if more, err := w.step(); err != nil || !more {
			return err
		}
	}
}

// done compares what each worker did with the instructions of the first minibatches in its list.
func (w *world) done(minibatches int) error {
	for k := range w.p.Workers {
		var want []schedule.Instruction
		w.p.Walk(k, func(in schedule.Instruction) bool {
			if in.Kind == schedule.DR || w.p.MinibatchOf(in) < minibatches {
				want = append(want, in)
			}
			return true
		})
		if !slices.Equal(w.did[k], want) {
			return fmt.Errorf("worker %d did\n%v, and not the first %d minibatches of its list\n%v", k, w.did[k], minibatches,
				want)
		}
	}
	for _, s := range w.process {
		if k, in, left := s.Left(); left {
			return fmt.Errorf("worker %d was sent %v and has not taken it", k, in)
		}
	}
	return nil
}

// split assigns workers to the processes 0 to processes-1 at random, at least one to each process.
func split(g *rand.Rand, workers, processes int) []int {
	of := make([]int, workers)
	for k := range of {
		of[k] = g.IntN(processes)
	}
	for p, k := range g.Perm(workers)[:processes] {
		of[k] = p
	}
	return of
}

// everyFamily returns small Programs of each family under each of its policies.
func everyFamily(t *testing.T) map[string]*schedule.Program {
	t.Helper()
	all := map[string]*schedule.Program{}
	for _, f := range family.All() {
		for _, policy := range append([]schedule.Policy{schedule.Sync}, f.Policies...) {
			for _, validate := range []bool{false, true} {
				for _, of := range []struct{ replicas, micros, repeat int }{{1, 3, 4}, {2, 3, 4}, {2, 1, 12}} {
					s := schedule.Settings{Placement: f.Placement(3, of.replicas), MicroBatches: of.micros, Repeat: of.repeat,
						Weights: policy}
					if of.replicas > 1 && f.Chunks <= 1 {
						s.Placement = [][]int{{0, 1}, {2}}
					}
					if policy == schedule.Elastic {
						s.Elastic = plan.NewElastic(2)
					}
					p, err := family.Generate(f.Name, s)
					if err == nil {
						p, err = lower.Lower(p, lower.Options{Clip: policy.Flushes() &&
							policy != schedule.Elastic, PostValidate: validate})
					}
					if err == nil && p.PostValidate == validate {
						all[fmt.Sprintf("%s %s %v validated later: %v", f.Name, policy, of, validate)] = p
					}
				}
			}
		}
	}
	grouped := 0
	for _, p := range all {
		if p.Period > 1 {
			grouped++
		}
	}
	if len(all) < 3*len(family.All())/2 || grouped == 0 {
		t.Fatalf("only %d programs of %d families, %d whose updates cover several minibatches", len(all), len(family.All()),
			grouped)
	}
	return all
}
