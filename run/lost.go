package run

import (
	"errors"
	"fmt"
	"time"

	"github.com/millrace-ml/millrace/run/control"
	"github.com/millrace-ml/millrace/run/process"
)

// lose marks a process as lost. The error is sent to that process too, because it may still run.
func (l *leader) lose(process int, err error) {
	if l.state.HasLeft(process) {
		return
	}
	l.fail(fmt.Errorf("run: %w", control.NewLost(process, l.job.World.Name(process), err)))
	l.state.Lose(process)
}

// leave stops waiting for the leader's own process and fails the run. What the process's devices hold is not freed.
func (l *leader) leave(late time.Duration, why string) {
	l.state.Lose(0)
	late = late.Round(time.Millisecond)
	held, name := l.silence.held, l.job.World.Name(0)
	var hung error
	switch {
	case l.state.Ordered():
		hung = fmt.Errorf("run: %s hangs: %s", name, why)
	case !l.state.Ready() && l.state.Failed() == nil:
		hung = fmt.Errorf("run: a device of %s hangs: %v behind the beginning of the run %s", name, late, held())
	case l.lost():
		hung = fmt.Errorf("run: %s did not wait for its devices: %v behind the end of the run %s", name, late, held())
	default:
		hung = fmt.Errorf("run: a device of %s hangs: %v behind the end of the run %s", name, late, held())
	}
	l.silence.hung = hung
	l.fail(hung)
}

// fail ends the run with an error.
func (l *leader) fail(err error) {
	l.tell(l.state.Fail(l.job.FailedOf(err)))
}

// lost reports whether the run has ended because a process is lost.
func (l *leader) lost() bool {
	f := l.state.Failed()
	return f != nil && f.Lost != nil
}

// patience returns how long a process may take to answer.
func (l *leader) patience() time.Duration {
	if l.lost() || l.silence.hangs {
		return min(process.HurryAfter, l.config.Watch.StallAfter)
	}
	return l.config.Watch.StallAfter
}

// look gives up the processes that have owed an answer for too long. If none owes an answer, it gives up the processes
// in which nothing happens although they have to start or to carry out an order. Then it asks all processes what they
// wait for.
func (l *leader) look() {
	patience := l.patience()
	if what, processes := l.state.Owing(); len(processes) > 0 {
		if late := time.Since(l.silence.told); late >= patience {
			l.giveUp(processes, late, fmt.Sprintf("it has not %s within %v", what, late.Round(time.Millisecond)))
		}
		return
	}
	what, processes := l.state.Still(patience.Seconds())
	l.giveUp(processes, patience, fmt.Sprintf("it has not %s, and nothing has happened there for %v", what, patience))
	l.silence.told = time.Now()
	l.tell(l.state.Beat())
}

// giveUp marks processes as lost, for the reason `why`. If the leader's own process is one of them, it calls leave
// instead. `late` is how long the leader has waited for them.
func (l *leader) giveUp(processes []int, late time.Duration, why string) {
	for _, p := range processes {
		if p == 0 {
			l.leave(late, why)
			continue
		}
		l.lose(p, errors.New(why))
	}
}

// whenLost adds to the error of a lost process what the other processes were waiting for, if that is known.
func whenLost(err error, due ...*control.Due) error {
	var lost *control.LostError
	if !errors.As(err, &lost) {
		return err
	}
	for _, d := range due {
		if d != nil && (lost.Due == nil || lost.Due.WaitedS < d.WaitedS) {
			lost.Due = d
		}
	}
	if lost.Due == nil {
		return err
	}
	return fmt.Errorf("%w; %v", err, lost.Due)
}

// due returns what each process was waiting for when a process was lost.
func (p *peers) due() []*control.Due {
	var all []*control.Due
	for _, left := range p.left {
		all = append(all, left.Due)
	}
	return all
}
