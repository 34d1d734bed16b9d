package start

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/millrace-ml/millrace/internal/crash"
	"github.com/millrace-ml/millrace/launch"
)

// ssh is the command that reaches another host. It never asks the user, and it notices a host that is gone.
var ssh = []string{"ssh", "-a", "-x", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10",
	"-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=2", "--"}

// These are the time limits of a connection.
const (
	helloWait = 30 * time.Second // for the other end to start
	sayWait   = 10 * time.Second // for sending a word
	killWait  = 5 * time.Second  // for the other end to kill its processes and leave
)

// remote runs the processes of another host.
type remote struct {
	host Host
	port string // a free port of that host
	to   heard
	cmd  *exec.Cmd
	in   *os.File
	over chan struct{} // closed when the connection has ended
	why  error         // why the connection ended; set before over is closed

	greeted bool  // the other end has sent its hello
	wrong   error // the other end has sent something wrong

	answers chan answer // the first is the hello, the second the answer to the order
	mu      sync.Mutex
	left    []int // ranks that have not ended
	ended   bool  // ssh has ended, and its process number may be reused
}

// answer is the other end's answer to the connection or to an order.
type answer struct {
	failed string
	port   string
}

// reach connects to a host, and starts Serve there.
func reach(ctx context.Context, s *Spec, h Host, to heard) (*remote, error) {
	r := &remote{host: h, to: to, over: make(chan struct{}), answers: make(chan answer, 2)}
	theirs, ours, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	r.in = ours
	words := "exec " + quoted(s.Program)
	for _, arg := range s.Remote {
		words += " " + quoted(arg)
	}
	r.cmd = exec.Command(ssh[0], slices.Concat(ssh[1:], []string{h.Name, words})...)
	r.cmd.Stdin = theirs
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // signals come only from the caller, not from the terminal
	last := &tail{}
	printed, err := begin(r.cmd, &lines{most: maxWord, print: r.hear}, last)
	theirs.Close()
	if err != nil {
		ours.Close()
		return nil, fmt.Errorf("host %s: %w", h.Name, err)
	}
	crash.Go(func() {
		_ = untilEnded(r.cmd.Process.Pid) // Wait will report an error
		r.mu.Lock()
		r.ended = true
		r.mu.Unlock()
		killGroup(r.cmd.Process.Pid)
		ended := r.cmd.Wait()
		printed.rest()
		ours.Close()
		r.why = last.explain(r.wrong, ended)
		r.mu.Lock()
		left := r.left
		r.left = nil
		r.mu.Unlock()
		close(r.over)
		for _, rank := range left {
			to.ended(end{Rank: rank, Code: launch.LostPeer, Lost: true, How: fmt.Sprintf("rank %d is lost: the connection to "+
				"host %s ended (%v)", rank, h.address(), r.why)})
		}
	})
	a, err := r.answer(ctx)
	if err != nil {
		r.end()
		<-r.over
		return nil, fmt.Errorf("host %s cannot be used: %w; there must be a login without questions (try ssh -o "+
			"BatchMode=yes %s true), and the same millrace at %s", h.Name, err, h.Name, s.Program)
	}
	r.port = a.port
	return r, nil
}

// answer waits for the other end's hello, or for its answer to an order.
func (r *remote) answer(ctx context.Context) (answer, error) {
	late := time.NewTimer(helloWait)
	defer late.Stop()
	var a answer
	select {
	case a = <-r.answers:
	case <-r.over:
		select {
		case a = <-r.answers: // the answer came just before the connection's end
		default:
			return a, r.why
		}
	case <-late.C:
		return a, fmt.Errorf("it has not answered for %v", helloWait)
	case <-ctx.Done():
		return a, context.Cause(ctx)
	}
	if a.failed != "" {
		return a, errors.New(a.failed)
	}
	return a, nil
}

// hear handles a line from the other end.
func (r *remote) hear(line []byte) error {
	var w word
	err := json.Unmarshal(line, &w)
	switch {
	case !r.greeted && (err != nil || w.Hello == nil): // the user's shell on that host may print a greeting first
	case err != nil:
		r.wrong = fmt.Errorf("it says %.100q", line)
		_ = r.cmd.Process.Kill()
		return r.wrong
	case w.Hello != nil:
		r.greeted = true
		a := answer{port: w.Hello.Port}
		if w.Hello.Version != wordsVersion {
			a.failed = fmt.Sprintf("its millrace speaks version %d, this one %d", w.Hello.Version, wordsVersion)
		}
		r.note(a)
	case w.Started != nil:
		r.note(answer{failed: w.Started.Failed})
	case w.Said != nil && r.has(w.Said.Rank):
		_ = r.to.says(w.Said.Rank, w.Said.Errs, w.Said.Line) // an error means that the reader is gone
	case w.Ended != nil && r.has(w.Ended.Rank):
		r.mu.Lock()
		r.left = slices.DeleteFunc(r.left, func(rank int) bool { return rank == w.Ended.Rank })
		r.mu.Unlock()
		r.to.ended(*w.Ended)
	}
	return nil
}

// note stores an answer; there are at most two.
func (r *remote) note(a answer) {
	select {
	case r.answers <- a:
	default:
	}
}

// has says whether a rank belongs to this host and has not ended.
func (r *remote) has(rank int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Contains(r.left, rank)
}

// say sends a word to the other end.
func (r *remote) say(w word) error {
	text, err := json.Marshal(w)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = r.in.SetWriteDeadline(time.Now().Add(sayWait)) // a pipe supports deadlines
	_, err = r.in.Write(append(text, '\n'))
	return err
}

func (r *remote) start(o order) error {
	r.mu.Lock()
	r.left = slices.Clone(o.Ranks)
	r.mu.Unlock()
	if o.Dir == "" {
		dir, err := os.Getwd()
		if err != nil {
			return err
		}
		o.Dir = dir
	}
	err := r.say(word{Order: &o})
	if _, failed := r.answer(context.Background()); failed != nil {
		err = failed // this error says more
	}
	if err != nil {
		return fmt.Errorf("host %s: %w", r.host.Name, err)
	}
	return nil
}

func (r *remote) signal(s syscall.Signal) {
	if r.say(word{Signal: int(s)}) != nil || s == syscall.SIGKILL {
		r.endIn(killWait)
	}
}

// endIn ends the connection after d, unless it has ended by itself.
func (r *remote) endIn(d time.Duration) { time.AfterFunc(d, crash.Caught(r.end)) }

// end ends the connection, if it has not ended.
func (r *remote) end() {
	_ = r.in.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.ended {
		killGroup(r.cmd.Process.Pid)
	}
}

func (r *remote) leave() error {
	_ = r.in.Close()
	r.endIn(orphanGrace + killWait)
	<-r.over
	return nil
}

// tail keeps the last bytes of the text written to it, so that errors can quote the text's last line.
type tail struct {
	mu   sync.Mutex
	text []byte
}

// maxTail is how many bytes a tail keeps.
const maxTail = 4096

func (t *tail) Write(text []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, text...)
	if n := len(t.text); n > maxTail {
		t.text = append(t.text[:0], t.text[n-maxTail:]...)
	}
	return len(text), nil
}

// explain returns why a connection ended: what was wrong with it, or otherwise the last line of ssh and its exit
// status.
func (t *tail) explain(wrong, ended error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	lines := strings.Split(string(bytes.TrimSpace(t.text)), "\n")
	said := strings.TrimSpace(lines[len(lines)-1])
	switch {
	case wrong != nil:
		return wrong
	case ended == nil:
		return errors.New("ssh ended")
	case said == "":
		return fmt.Errorf("ssh: %s", exitOf(ended))
	}
	return fmt.Errorf("ssh: %s: %s", exitOf(ended), said)
}

// quoted returns a text as a word of the shell.
func quoted(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }
