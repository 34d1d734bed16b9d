package control

import (
	"slices"

	"github.com/millrace-ml/millrace/schedule/machine"
)

// Stalled reports whether no worker can continue, and what all workers wait for. A run is stalled if no process
// computes and nothing has happened in any process for afterS seconds. It is also stalled if its only process reports
// that its workers can never continue.
func (l *Leader) Stalled(afterS float64) (quietS float64, waits []Wait, stalled bool) {
	idle := true
	for i, p := range l.process {
		n := p.needs
		if n == nil || !l.under {
			return 0, nil, false
		}
		if n.Stuck {
			return 0, n.Waits, true
		}
		if n.Running || n.QuietS < afterS {
			return 0, nil, false
		}
		if idle = idle && n.Ended; i == 0 || n.QuietS < quietS {
			quietS = n.QuietS
		}
		waits = append(waits, n.Waits...)
	}
	return quietS, waits, !idle && l.answered()
}

// Quiet returns for how long nothing has happened in any process, and what each worker does or waits for. `computing`
// says whether some worker executes an instruction. If a process has not answered yet, it is false.
func (l *Leader) Quiet() (quietS float64, waits []Wait, computing bool) {
	for i, p := range l.process {
		if p.needs == nil || !l.under {
			return 0, nil, false
		}
		if i == 0 || p.needs.QuietS < quietS {
			quietS = p.needs.QuietS
		}
		waits = append(waits, p.needs.Waits...)
	}
	computing = slices.ContainsFunc(waits, func(w Wait) bool { return w.Lack == machine.Running })
	return quietS, waits, computing
}

// Owing returns the processes that have not answered a Beat or, after Leave, those that have not left.
func (l *Leader) Owing() (what string, processes []int) {
	switch {
	case l.leaving:
		return "left", l.those(func(p *told) bool { return !p.left })
	case l.Asked():
		return "answered", l.those(func(p *told) bool { return p.needs == nil })
	}
	return "", nil
}

// Still returns the processes that the leader waits for and in which nothing has happened for forS seconds. They have
// to become ready or to carry out an order; `what` says which. The seconds count up to a process's answer to the last
// Beat. A process in which anything happens is not returned, however slow it is.
func (l *Leader) Still(forS float64) (what string, processes []int) {
	still := func(p *told) bool { return p.needs != nil && p.needs.Owes && p.needs.QuietS >= forS }
	switch {
	case l.leaving || l.failed != nil:
	case !l.Ready():
		return "said that it is ready", l.those(func(p *told) bool { return !p.ready && still(p) })
	case l.order != nil:
		return "carried out a " + l.order.kind(), l.those(func(p *told) bool { return p.did == nil && still(p) })
	}
	return "", nil
}

// those returns the processes that satisfy a condition.
func (l *Leader) those(are func(*told) bool) (all []int) {
	for i := range l.process {
		if are(&l.process[i]) {
			all = append(all, i)
		}
	}
	return all
}
