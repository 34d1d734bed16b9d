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

// beside is the processes of a rival but for the first one.
type beside struct {
	of        *Rival
	processes []*exec.Cmd
	ended     chan error // of each, how
	early     chan error // of the one that ended the first one
}

// start starts them all, or leaves none.
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

// attend waits for a process. The first one is lost without it, and may not notice.
func (b *beside) attend(number int, p *exec.Cmd) {
	err := p.Wait()
	child.Kill(p) // what it may have left behind
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

// end waits until all have ended, since the first one has, and kills those that do not after a well-ended
// first. It returns how the rival ended: as the first one did, unless it was ended for another one's sake; or
// else as the first of the others that did not end well.
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

// killed says whether a process ended as attend ends the first one.
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
