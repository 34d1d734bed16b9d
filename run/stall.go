package run

import (
	"fmt"
	"time"

	"github.com/millrace-ml/millrace/internal/crash"
	"github.com/millrace-ml/millrace/schedule/machine"
)

// checkStall fails the run if nobody runs, nothing is on its way and not everybody is
// done. The caller holds mu.
func (x *process) checkStall() {
	if x.err != nil || x.program == nil || x.gate.Ended() {
		return
	}
	for _, w := range x.workers {
		if w.running || x.gate.Local(w.rank).Open() > 0 {
			return
		}
	}
	x.stalled("has stalled: nobody can move and nothing is on its way")
}

// stalled ends the run with what everybody waits for. The caller holds mu.
func (x *process) stalled(how string) {
	now := time.Now()
	x.failLocked(0, machine.NewStall("run", how, x.program, x.gate.Waits(), func(worker int) string {
		free := x.workers[worker].free
		return fmt.Sprintf("it has waited for %v, since %v of the run", now.Sub(free).Round(time.Millisecond),
			x.since(free).Round(time.Millisecond))
	}))
}

// watch fails the run when nothing has happened for a set time while somebody waits and
// nobody computes: a message that is lost, a link that is cut.
func (x *process) watch(after time.Duration, stop <-chan struct{}) {
	tick := time.NewTicker(max(after/8, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		if err := crash.Guard(func() error { x.checkQuiet(after); return nil }); err != nil {
			x.fail(0, fmt.Errorf("run: looking for a stall: %w", err))
			return
		}
	}
}

// checkQuiet ends the run where nothing has happened for too long.
func (x *process) checkQuiet(after time.Duration) {
	x.mu.Lock()
	defer x.mu.Unlock()
	quiet := time.Since(x.moved)
	if x.program == nil || x.err != nil || quiet < after || x.gate.Ended() {
		return
	}
	for _, w := range x.workers {
		if w.running {
			return
		}
	}
	x.stalled(fmt.Sprintf("has stalled: nothing has happened for %v", quiet.Round(time.Millisecond)))
}
