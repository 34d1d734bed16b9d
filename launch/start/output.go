package start

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace-ml/millrace/internal/crash"
)

// output is the pipes by which a command's output is read. They are read to their ends, however slowly the writers
// take it; exec's own give up so long behind the command's end, whatever is still in them.
type output struct {
	reads   [2]*os.File
	reading sync.WaitGroup
}

// begin starts a command, whose output goes to two writers.
func begin(c *exec.Cmd, out, errs io.Writer) (*output, error) {
	var o output
	var writes [2]*os.File
	var err error
	for i := range o.reads {
		if o.reads[i], writes[i], err = os.Pipe(); err != nil {
			break
		}
	}
	if err == nil {
		c.Stdout, c.Stderr = writes[0], writes[1]
		err = c.Start()
	}
	for i, to := range []io.Writer{out, errs} {
		_ = writes[i].Close() // the command has its own; one that is nil has nothing to close
		if err != nil {
			_ = o.reads[i].Close()
			continue
		}
		o.reading.Go(crash.Caught(func() { drain(o.reads[i], to) }))
	}
	return &o, err
}

// rest returns when all is written that the command has printed, which has ended.
func (o *output) rest() {
	for _, r := range o.reads {
		_ = r.SetReadDeadline(time.Now())
	}
	o.reading.Wait()
}

// drain writes what comes through a pipe. A deadline says that the command has ended: what it has printed is in the
// pipe by then, and what comes later is of processes that it has left behind, which nobody waits for.
func drain(r *os.File, to io.Writer) {
	defer r.Close()
	if _, err := io.Copy(to, r); !errors.Is(err, os.ErrDeadlineExceeded) {
		return // at the end, or nobody takes it
	}
	_ = r.SetReadDeadline(time.Time{})
	_, _ = io.CopyN(to, r, held(r))
}

// held is how many bytes a pipe has that nobody has read.
func held(r *os.File) (n int64) {
	raw, err := r.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) {
			var has int
			has, err = unix.IoctlGetInt(int(fd), unix.TIOCINQ)
			n = int64(has)
		})
	}
	return n
}
