package place

import (
	"fmt"
	"slices"
)

// Binding says when workers are bound to processors.
//
// Binding helps a run that has the machine to itself. If two runs both bind their workers, two workers share each
// processor and cannot move. Each step then waits at every cut for the worker that the kernel runs last. So a run
// that binds claims its processors, and the next run does not bind its workers.
type Binding string

// These values say when workers are bound.
const (
	Alone  Binding = ""       // only if no other run on this machine has claimed one of the processors
	Always Binding = "always" // in any case: for runs of which only one is active at a time
	Never  Binding = "never"
)

// Check returns an error for an unknown Binding.
func (b Binding) Check() error {
	switch b {
	case Alone, Always, Never:
		return nil
	}
	return fmt.Errorf("place: workers are bound %q; it is %q, %q, or left out to bind them where no other run has", b,
		Always, Never)
}

// Policy says what may be changed in the process for its workers. A nil Policy changes nothing.
//
// With a Policy, other threads yield to the workers, and the Go scheduler has a processor for each worker. Workers are
// bound to processors if Bind allows it, if each worker has one thread, and if exactly as many workers compute at once
// as there are processors.
type Policy struct {
	Bind Binding
	// Part is the index of this process's part of the processors, among Parts processes that may use the same ones.
	// Parts 0 means that all processors are its own.
	Part, Parts int
}

// own returns the processors of this process's part; none if they cannot be divided evenly.
func (p *Policy) own(allowed []int) []int {
	if p.Parts < 2 {
		return allowed
	}
	each := len(allowed) / p.Parts
	if each*p.Parts != len(allowed) {
		return nil
	}
	return allowed[p.Part*each : (p.Part+1)*each]
}

// Place holds the threads and processors of some workers, until Leave.
type Place struct {
	apart      bool  // the process was changed for the workers
	processors []int // the workers' processors, by core; nil means that they are not bound
	shared     bool  // workers are given cores as they compute; otherwise worker k has core k
	taken      int   // a processor that another run has claimed, or none
	leave      []func()
}

// none means no processor.
const none = -1

// Take prepares the process for workers that share some cores; with 0 cores each worker has its own. The caller must
// call Leave.
func (p *Policy) Take(workers, cores, threads int) (*Place, error) {
	if p == nil {
		return &Place{taken: none}, nil
	}
	if err := p.Bind.Check(); err != nil {
		return nil, err
	}
	if p.Part < 0 || p.Part > 0 && p.Part >= p.Parts {
		return nil, fmt.Errorf("place: part %d of %d of the processors; parts are counted from 0", p.Part, p.Parts)
	}
	out := &Place{apart: true, taken: none, leave: []func(){enter(workers)}}
	if all := allowed(); len(all) > 1 { // with one processor there is nothing to choose
		out.claim(p.Bind, processorsFor(p.own(all), workers, cores, threads))
	}
	out.shared = cores > 0 && cores < workers
	return out, nil
}

// Allowed returns the processors that this process may use; nil if the kernel does not say.
func Allowed() []int { return slices.Clone(allowed()) }

// processorsFor returns the processors that workers are bound to, one for each core. It returns none if the process
// may use more or fewer processors than cores. It returns none too if a worker has several threads, which would
// share its processor.
func processorsFor(allowed []int, workers, cores, threads int) []int {
	if cores == 0 || cores > workers {
		cores = workers
	}
	if len(allowed) != cores || threads > 1 {
		return nil
	}
	return allowed
}

// claim claims the processors for the workers, which are then bound to them. It claims and binds nothing with Never, or
// with Alone if another run has claimed one of the processors. With Always it claims those that no other run has
// claimed, and binds the workers to all of them.
func (p *Place) claim(b Binding, processors []int) {
	if b == Never {
		return
	}
	var claims []func()
	for _, processor := range processors { // in ascending order, so that one of several runs gets all
		giveUp, ok := claimProcessor(processor)
		if !ok && b == Alone {
			for _, g := range claims {
				g()
			}
			p.taken = processor
			return
		}
		if ok {
			claims = append(claims, giveUp)
		}
	}
	p.processors, p.leave = slices.Clone(processors), append(p.leave, claims...)
}

// Taken returns a processor that another run has claimed, if the workers here are not bound for this reason.
func (p *Place) Taken() (processor int, taken bool) { return p.taken, p.taken != none }

// Leave undoes all changes. The workers must have ended.
func (p *Place) Leave() {
	for _, undo := range slices.Backward(p.leave) {
		undo()
	}
	p.leave = nil
}

// Seat is the thread of one worker.
type Seat struct {
	of     *Place
	thread int
	bound  int // the processor that it is bound to, or none
}

// Settle makes the calling goroutine the worker of this number in the Place. It locks the goroutine to its thread for
// good. With a Policy it marks the thread as a computing one, and binds it if each worker has its own core.
func (p *Place) Settle(worker int) *Seat {
	lockThread(p.apart)
	s := &Seat{of: p, thread: threadID(), bound: none}
	if len(p.processors) > 0 && !p.shared {
		s.bind(worker)
	}
	return s
}

// Compute binds the worker to the processor of the core that it was given. Any goroutine may call it.
func (s *Seat) Compute(core int) {
	if len(s.of.processors) > 0 && s.of.shared {
		s.bind(core)
	}
}

func (s *Seat) bind(core int) {
	if processor := s.of.processors[core]; processor != s.bound {
		s.bound = processor
		pinTo(s.thread, processor)
	}
}
