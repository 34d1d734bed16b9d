package run

import "fmt"

// Binding says when workers are bound to processors, one each or in turn, where as many compute
// at once as there are processors.
//
// It helps a run that has the machine to itself. Two runs that both bind their workers share each
// processor between two workers of theirs, which nothing can move: the step of each then waits for
// whichever of its workers the kernel has put last, on every cut. So a run that binds claims its
// processors, and the next one leaves its workers to the kernel.
type Binding string

const (
	BindAlone  Binding = ""       // where no other run on this machine has claimed the processors
	BindAlways Binding = "always" // whoever else has: for runs of which one goes on at a time
	BindNever  Binding = "never"
)

// check refuses what is no Binding.
func (b Binding) check() error {
	switch b {
	case BindAlone, BindAlways, BindNever:
		return nil
	}
	return fmt.Errorf("run: workers are bound %q; it is %q, %q, or left out to bind them where no other run has", b, BindAlways, BindNever)
}

// take is the seats that a run may have of those it would, and who gives its claim on
// them back. `taken` is the processor that another run has, where that is why there are none; else none.
func (b Binding) take(s *seats) (got *seats, leave func(), taken int) {
	if s == nil || b == BindNever {
		return nil, func() {}, none
	}
	var claims []func()
	leave = func() {
		for _, c := range claims {
			c()
		}
	}
	for _, processor := range s.free { // ascending, so that of several runs one gets all
		c, ok := claimProcessor(processor)
		if !ok && b == BindAlone {
			leave()
			return nil, func() {}, processor
		}
		if ok {
			claims = append(claims, c)
		}
	}
	return s, leave, none
}
