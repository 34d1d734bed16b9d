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

// output holds the pipes for a command's output. All that the command prints is read, however slow the receiving
// writers are. The pipes of os/exec would lose output that is still unread a fixed time after the command's end.
type output struct {
	reads   [2]*os.File
	reading sync.WaitGroup
}

// begin starts a command, and sends its output to two writers.
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
		_ = writes[i].Close() // the command has its own copy of the file; Close of a nil file does no harm
		if err != nil {
			_ = o.reads[i].Close()
			continue
		}
		o.reading.Go(crash.Caught(func() { drain(o.reads[i], to) }))
	}
	return &o, err
}

// rest waits until everything that the ended command has printed is written, or until a writer has failed.
func (o *output) rest() {
	for _, r := range o.reads {
		_ = r.SetReadDeadline(time.Now())
	}
	o.reading.Wait()
}

// drain copies a pipe to a writer. When the command has ended, the pipe gets a read deadline. All of the command's
// output is then in the pipe, and drain still copies it. What comes later is from processes that the command left
// behind, and is ignored.
func drain(r *os.File, to io.Writer) {
	defer r.Close()
	if _, err := io.Copy(to, r); !errors.Is(err, os.ErrDeadlineExceeded) {
		return // the pipe has ended, or the writer has failed
	}
	_ = r.SetReadDeadline(time.Time{})
	_, _ = io.CopyN(to, r, held(r))
}

// held returns how many unread bytes are in a pipe.
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
