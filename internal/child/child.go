// Package child starts other programs so that they and their children end with the caller.
//
// Input: a context and a command line. Output: an exec.Cmd that leads its own process group. When the context ends, the
// whole group gets SIGTERM. After a moment the remaining processes are killed, and then Wait returns. A caller that
// ends such a command in another way must call Kill. A caller must also call Kill if its command ended by itself and
// may have left child processes. A child that makes its own process group gets no signal.
package child

import (
	"context"
	"os"
	"os/exec"
	"syscall"
	"time"
)

const (
	// grace is how long a group may take to end after SIGTERM. It is less than cli.StopGrace, the time that a
	// stopped verb has to return.
	grace = 500 * time.Millisecond
	// look is the interval between two checks of whether the group has ended.
	look = 2 * time.Millisecond
)

// Command is exec.CommandContext for a process group: the end of ctx ends the program and all its children.
func Command(ctx context.Context, path string, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, path, args...)
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return stop(c.Process.Pid) }
	// A process that left the group may hold a pipe open; do not wait for it.
	c.WaitDelay = grace
	return c
}

// Kill kills the remaining processes of a started command's group.
func Kill(c *exec.Cmd) { _ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }

// stop sends SIGTERM to a group, and kills it if it does not end.
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
