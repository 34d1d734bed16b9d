// Package child starts other programs so that they, and whatever they start, end with their caller.
//
// In go a context and a command line; out comes an exec.Cmd that leads a process group of its own. The end of the
// context tells the whole group to end, kills what is left of it after a moment, and only then lets Wait return.
// Whoever ends such a command in another way calls Kill, also for a command that ended by itself and may have
// left programs behind. A program that makes a group of its own is not reached.
package child

import (
	"context"
	"os"
	"os/exec"
	"syscall"
	"time"
)

const (
	// grace is how long a group may take to end once it is told to; it is less than a stopped verb has.
	grace = 500 * time.Millisecond
	// look is how long it is until the group is looked at again.
	look = 2 * time.Millisecond
)

// Command is exec.CommandContext for a process group: the end of ctx ends the program and all that it started.
func Command(ctx context.Context, path string, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, path, args...)
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return stop(c.Process.Pid) }
	// What left the group may hold a pipe open; nobody waits for it.
	c.WaitDelay = grace
	return c
}

// Kill ends at once what is left of a started command's group.
func Kill(c *exec.Cmd) { _ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }

// stop tells a group to end, and kills it where it does not.
func stop(group int) error {
	if syscall.Kill(-group, syscall.SIGTERM) != nil {
		return os.ErrProcessDone
	}
	for told := time.Now(); time.Since(told) < grace; time.Sleep(look) {
		if syscall.Kill(-group, 0) != nil {
			return nil
		}
	}
	_ = syscall.Kill(-group, syscall.SIGKILL)
	return nil
}
