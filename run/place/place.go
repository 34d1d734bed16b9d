package place

import (
	"fmt"
	"slices"
)

// Binding says when workers are bound to processors.
//
// It helps a run that has the machine to itself. Two runs that both bind their workers share each
// processor between two workers of theirs, which nothing can move: the step of each then waits for
// whichever of its workers the kernel has put last, on every cut. So a run that binds claims its
// processors, and the next one leaves its workers to the kernel.
type Binding string

// When workers are bound.
const (
	Alone  Binding = ""       // where no other run on this machine has claimed the processors
	Always Binding = "always" // whoever else has: for runs of which one goes on at a time
	Never  Binding = "never"
)

// Check refuses what is no Binding.
func (b Binding) Check() error {
	switch b {
	case Alone, Always, Never:
		return nil
	}
	return fmt.Errorf("place: workers are bound %q; it is %q, %q, or left out to bind them where no other run has", b,
		Always, Never)
}

// Policy is what may be changed of the process for its workers. A nil Policy changes nothing.
//
// With one, threads besides the workers' give way to those that compute, the Go scheduler has a place for
// each worker, and workers are bound to processors where as many compute at once as there are.
type Policy struct {
	Bind Binding
	// Part is this process's part of the processors, where several processes that may use the same have Parts of
	// them, one each; Parts 0: all are its own.
	Part, Parts int
}

// own is the processors of this process's part; none where they cannot be divided.
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

// Place is the threads and processors of some workers, until it is left.
type Place struct {
	apart      bool  // the process was changed for them
	processors []int // that they are bound to, by core; nil: none
	shared     bool  // cores are handed out; otherwise each worker keeps the one of its number
	taken      int   // a processor that another run has, or none
	leave      []func()
}

// none is no processor.
const none = -1

// Take prepares the process for workers that share cores, 0 for one each. Whoever takes leaves.
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
	if all := allowed(); len(all) > 1 { // or there is nothing to choose
		out.claim(p.Bind, processorsFor(p.own(all), workers, cores, threads))
	}
	out.shared = cores > 0 && cores < workers
	return out, nil
}

// Allowed lists the processors that this process may use; nil where the kernel does not say.
func Allowed() []int { return slices.Clone(allowed()) }

// processorsFor is the processors that workers are bound to, one for each core: none where those are not all
// that there are, and where a worker has threads of its own, which would share its processor.
func processorsFor(allowed []int, workers, cores, threads int) []int {
	if cores == 0 || cores > workers {
		cores = workers
	}
	if len(allowed) != cores || threads > 1 {
		return nil
	}
	return allowed
}

// claim takes all of the processors, or none where another run has one of them.
func (p *Place) claim(b Binding, processors []int) {
	if b == Never {
		return
	}
	var claims []func()
	for _, processor := range processors { // ascending, so that of several runs one gets all
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

// Taken is a processor that another run has bound its workers to, which is why these are bound to none.
func (p *Place) Taken() (processor int, taken bool) { return p.taken, p.taken != none }

// Leave undoes what was changed. The workers are gone.
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

// Settle makes the calling goroutine the worker of this number among those that the Place is for: locked to its
// thread for good, which computes.
func (p *Place) Settle(worker int) *Seat {
	lockThread(p.apart)
	s := &Seat{of: p, thread: threadID(), bound: none}
	if len(p.processors) > 0 && !p.shared {
		s.bind(worker)
	}
	return s
}

// Compute binds the worker to the processor of a core that it was given. Any goroutine may call it.
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
