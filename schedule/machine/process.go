package machine

import (
	"fmt"
	"maps"
	"slices"

	"github.com/millrace-ml/millrace/schedule"
)

// Process is the Locals of one process's workers and the CorePools that they share.
//
// Methods that report an event return the workers to poll again. The next call reuses the slice.
type Process struct {
	workers []int
	locals  []*Local    // by worker; nil for workers of other processes
	cores   []*CorePool // by worker; nil for a worker with its own core
	drained int         // number of workers at a drain
	wake    []int
}

// NewProcess makes a Process of the given workers of a Program. If `workers` is nil, it has all workers.
func NewProcess(p *schedule.Program, workers []int, o Options) (*Process, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	if workers == nil {
		for w := range p.Workers {
			workers = append(workers, w)
		}
	}
	s := &Process{workers: workers, locals: make([]*Local, p.Workers), cores: make([]*CorePool, p.Workers)}
	for _, w := range workers {
		l, err := NewLocal(p, w, o)
		if err != nil {
			return nil, err
		}
		if s.locals[w] != nil {
			return nil, fmt.Errorf("machine: worker %d is named twice; a process has each of its workers once", w)
		}
		s.locals[w] = l
	}
	for _, pool := range o.Cores {
		if err := s.share(pool); err != nil {
			return nil, err
		}
	}
	s.all()
	return s, nil
}

// share makes a CorePool for the workers of a pool that are in this process.
func (s *Process) share(pool Pool) error {
	mine := pool.Workers
	if mine == nil {
		mine = s.workers
	}
	mine = slices.DeleteFunc(slices.Clone(mine), func(w int) bool { return !slices.Contains(s.workers, w) })
	if len(mine) == 0 {
		return nil
	}
	shared := NewCorePool(min(pool.Cores, len(mine)))
	for _, w := range mine {
		if s.cores[w] != nil {
			return fmt.Errorf("machine: worker %d shares two pools of cores; one at most", w)
		}
		s.cores[w] = shared
	}
	return nil
}

// Load starts the next Program. It returns an error if a list has not ended or something is open, or if the Program is
// not lowered or has another number of workers.
func (s *Process) Load(p *schedule.Program) error {
	for _, w := range s.workers {
		if err := s.locals[w].mayLoad(p); err != nil {
			return err
		}
	}
	for _, w := range s.workers {
		if err := s.locals[w].Load(p); err != nil {
			return err
		}
	}
	s.all()
	return nil
}

// Local returns a worker's Local. A driver of a Process must not call the transitions of a Local.
func (s *Process) Local(worker int) *Local { return s.locals[worker] }

// Poll returns what a worker's head still needs.
func (s *Process) Poll(worker int) Need { return s.locals[worker].Poll() }

// Start begins a worker's head, which Poll has reported as ready.
func (s *Process) Start(worker int) { s.locals[worker].Start() }

// Issued says that a worker's own time on its head is over. `done` says that the head is Done as well.
func (s *Process) Issued(worker int, done bool) []int {
	s.locals[worker].Issued(done)
	return s.after(worker)
}

// Done says that an instruction that a worker has issued is complete.
func (s *Process) Done(worker int, in schedule.Instruction) []int {
	l := s.locals[worker]
	l.Done(in)
	if in.Kind.IsSend() { // only drains wait for a send
		s.count(l)
		return nil
	}
	return s.after(worker)
}

// Arrive says that a message for a worker has arrived. `in` is the send of the message.
func (s *Process) Arrive(worker int, in schedule.Instruction) []int {
	l := s.locals[worker]
	l.Arrive(in)
	if l.running || !l.head.in.Kind.IsReceive() && l.strands.all == nil {
		return nil
	}
	return s.after(worker)
}

// Credit gives one slot of the edge between two workers back to the sender.
func (s *Process) Credit(worker, to int) []int {
	l := s.locals[worker]
	l.Credit(to)
	if l.running || !l.head.in.Kind.IsSend() && l.strands.all == nil {
		return nil
	}
	return s.after(worker)
}

// Processor returns the processor of a worker's token, and false if it has none.
func (s *Process) Processor(worker int) (processor int, has bool) {
	core := s.locals[worker].token.core
	return core, core != none
}

// Begun returns the greatest minibatch that any of the workers has begun; -1 if none.
func (s *Process) Begun() int {
	begun := -1
	for _, w := range s.workers {
		begun = max(begun, s.locals[w].Begun())
	}
	return begun
}

// Hold makes instructions of minibatch n and later wait for Limit.
func (s *Process) Hold(n int) []int {
	for _, w := range s.workers {
		s.locals[w].Hold(n)
	}
	return s.all()
}

// Limit makes every worker skip the instructions of minibatch n and later; see Local.Limit.
func (s *Process) Limit(n int) []int {
	for _, w := range s.workers {
		s.locals[w].Limit(n)
	}
	return s.all()
}

// AtDrain returns the drain that all workers have reached with nothing open, and the number of these workers. `all` is
// false if some worker is not at that drain yet. A driver of a Process must call it after Load, Issued, Done and Limit,
// and tell its Barrier.
func (s *Process) AtDrain() (drain, workers int, all bool) {
	if len(s.workers) == 0 || s.drained < len(s.workers) {
		return 0, 0, false
	}
	return s.locals[s.workers[0]].drains.passed, len(s.workers), true
}

// Release lets every worker go past its drain.
func (s *Process) Release() []int {
	s.drained = 0
	for _, w := range s.workers {
		s.locals[w].Release()
	}
	return s.all()
}

// Ended reports whether every list has ended with nothing open.
func (s *Process) Ended() bool {
	for _, w := range s.workers {
		if l := s.locals[w]; l.head.more || l.Open() > 0 {
			return false
		}
	}
	return true
}

// Waits returns the Need of each worker that neither runs an instruction nor has ended.
func (s *Process) Waits() []Need {
	var needs []Need
	for _, w := range s.workers {
		if n := s.Poll(w); n.Lack != Ended && n.Lack != Running {
			needs = append(needs, n)
		}
	}
	return needs
}

// Left returns a message that arrived and was never taken: the one with the lowest Key on the first worker that has
// any.
func (s *Process) Left() (worker int, in schedule.Instruction, found bool) {
	for _, w := range s.workers {
		if box := s.locals[w].arrived; len(box) > 0 {
			return w, slices.Min(slices.Collect(maps.Keys(box))).Instruction(), true
		}
	}
	return 0, schedule.Instruction{}, false
}

// all looks at every worker, and returns the workers to poll again.
func (s *Process) all() []int {
	s.wake = append(s.wake[:0], s.workers...)
	for _, w := range s.workers {
		s.look(w)
	}
	return s.wake
}

// after looks at a worker after an event, and returns the workers to poll again.
func (s *Process) after(worker int) []int {
	s.wake = append(s.wake[:0], worker)
	s.look(worker)
	return s.wake
}

// look makes a worker return its token if the worker may not keep it. It puts the worker in the queue if the worker
// wants a token. A running worker keeps its token, and does not queue. look also counts the worker if it has reached a
// drain.
func (s *Process) look(w int) {
	l, cores := s.locals[w], s.cores[w]
	if cores != nil && !l.running {
		if l.token.core != none && !l.keeps() {
			l.token.core, l.ready = none, false
			if next, processor, passed := cores.Return(w); passed {
				s.give(next, processor)
			}
		}
		switch wants := l.token.core == none && l.wants(); {
		case wants && !l.token.stands:
			l.token.stands = true
			if processor, now := cores.Join(w); now {
				s.give(w, processor)
			}
		case !wants && l.token.stands && l.token.core == none:
			l.token.stands = false
			cores.Leave(w)
		}
	}
	s.count(l)
}

// count counts a worker that has reached a drain.
func (s *Process) count(l *Local) {
	if _, at := l.AtDrain(); at && !l.drains.counted {
		l.drains.counted = true
		s.drained++
	}
}

func (s *Process) give(w, processor int) {
	l := s.locals[w]
	l.token = token{core: processor}
	if !slices.Contains(s.wake, w) {
		s.wake = append(s.wake, w)
	}
}
