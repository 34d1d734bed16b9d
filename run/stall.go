package run

import (
	"fmt"
	"strings"
	"time"

	"github.com/millrace-ml/millrace/internal/crash"
	"github.com/millrace-ml/millrace/schedule"
)

// StallError says that a run cannot go on although nobody has failed, and who waits for
// what.
type StallError struct {
	Program string
	After   time.Duration // nothing happened for so long; 0: nobody can ever move
	Waits   []Wait
}

// Wait is what one worker waits for, and for how long it has.
type Wait struct {
	schedule.Need
	Waited time.Duration // since its last instruction ended
	Since  time.Duration // of the run, when that was
}

func (w Wait) String() string {
	return fmt.Sprintf("%v; it has waited for %v, since %v of the run", w.Need, w.Waited.Round(time.Millisecond), w.Since.Round(time.Millisecond))
}

func (e *StallError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "run: program %s has stalled", e.Program)
	if e.After > 0 {
		fmt.Fprintf(&b, ": nothing has happened for %v", e.After)
	} else {
		b.WriteString(": nobody can move and nothing is on its way")
	}
	for _, n := range e.chain() {
		b.WriteString("\n  " + n.String())
	}
	return b.String()
}

// chain is Waits in the order in which one leads to the next: each worker is followed by
// the one whose message it waits for.
func (e *StallError) chain() []Wait {
	byWorker := map[int]Wait{}
	for _, n := range e.Waits {
		byWorker[n.Worker] = n
	}
	var ordered []Wait
	for _, n := range e.Waits {
		for {
			if _, left := byWorker[n.Worker]; !left {
				break
			}
			delete(byWorker, n.Worker)
			ordered = append(ordered, n)
			next, waits := byWorker[n.From]
			if n.Lack != schedule.Message || !waits {
				break
			}
			n = next
		}
	}
	return ordered
}

// checkStall fails the run if nobody runs, nothing is on its way and not everybody is
// done. The caller holds mu.
func (x *executor) checkStall() {
	if x.flying > 0 || x.err != nil || x.program == nil || x.idle == len(x.workers) {
		return
	}
	for _, w := range x.workers {
		if w.running {
			return
		}
	}
	x.failLocked(0, &StallError{Program: x.program.Name, Waits: x.waits()})
}

// waits is what everybody waits for. The caller holds mu.
func (x *executor) waits() []Wait {
	now := time.Now()
	var all []Wait
	for _, n := range x.gate.Waits() {
		free := x.workers[n.Worker].free
		all = append(all, Wait{Need: n, Waited: now.Sub(free), Since: x.since(free)})
	}
	return all
}

// watch fails the run when nothing has happened for a set time while somebody waits and
// nobody computes: a message that is lost, a link that is cut.
func (x *executor) watch(after time.Duration, stop <-chan struct{}) {
	tick := time.NewTicker(max(after/8, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		if err := crash.Guard(func() error { x.look(after); return nil }); err != nil {
			x.fail(0, fmt.Errorf("run: looking for a stall: %w", err))
			return
		}
	}
}

// look ends the run where nothing has happened for too long.
func (x *executor) look(after time.Duration) {
	x.mu.Lock()
	defer x.mu.Unlock()
	quiet := time.Since(x.moved)
	stalled := x.program != nil && x.err == nil && x.idle < len(x.workers) && quiet >= after
	for _, w := range x.workers {
		stalled = stalled && !w.running
	}
	if stalled {
		x.failLocked(0, &StallError{Program: x.program.Name, After: quiet.Round(time.Millisecond), Waits: x.waits()})
	}
}
