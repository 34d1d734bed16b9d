package race

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"syscall"
	"time"

	"github.com/millrace-ml/millrace/internal/child"
	"github.com/millrace-ml/millrace/internal/crash"
)

// beside holds all processes of a rival except the first.
type beside struct {
	of        *Rival
	processes []*exec.Cmd
	ended     chan error // how each process ended
	early     chan error // error of a process that ended too early or failed; the rival's first process was then killed
}

// start starts all further processes. After an error none of them runs.
func (b *beside) start(ctx context.Context, commands []Command) error {
	for i, c := range commands {
		p := child.Command(ctx, c.Path, c.Args...)
		p.Env, p.Stderr = c.Env, b.of.said
		if err := p.Start(); err != nil {
			b.kill()
			for range b.processes {
				<-b.ended
			}
			return fmt.Errorf("process %d: %w", i+1, err)
		}
		b.processes = append(b.processes, p)
		crash.Go(func() { b.attend(i+1, p) })
	}
	return nil
}

// attend waits for a process. If this process ends early or fails, attend kills the rival's first process, because the
// first process may not notice.
func (b *beside) attend(number int, p *exec.Cmd) {
	err := p.Wait()
	child.Kill(p) // kills children of p that may still run
	if err != nil {
		err = fmt.Errorf("process %d: %w", number, err)
	}
	select {
	case <-b.of.closing:
	default:
		if err == nil {
			err = fmt.Errorf("process %d: it ended before it was told to", number)
		}
	}
	if err != nil {
		select {
		case b.early <- err:
		default:
		}
		child.Kill(b.of.process)
	}
	b.ended <- err
}

// end waits for the further processes after the first one has ended, and returns what went wrong.
//
// The argument `first` is the error of the first process. If it is nil or says that the process was killed, and a
// further process had ended too early or failed before, end returns that process's error instead. If there is an error
// by then, end kills all further processes. Otherwise it lets them end by themselves, kills those that still run after
// closeGrace, and returns the first error of any of them.
func (b *beside) end(first error) error {
	if first == nil || killed(first) {
		select {
		case first = <-b.early:
		default:
		}
	}
	if first != nil {
		b.kill()
	}
	impatient := time.AfterFunc(closeGrace, crash.Caught(b.kill))
	defer impatient.Stop()
	for range b.processes {
		if err := <-b.ended; first == nil {
			first = err
		}
	}
	return first
}

// killed reports whether a process was killed by SIGKILL, the signal that attend sends.
func killed(err error) bool {
	var ended *exec.ExitError
	if !errors.As(err, &ended) {
		return false
	}
	status, known := ended.Sys().(syscall.WaitStatus)
	return known && status.Signaled() && status.Signal() == syscall.SIGKILL
}

func (b *beside) kill() {
	for _, p := range b.processes {
		child.Kill(p)
	}
}
