package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/millrace-ml/millrace/internal/crash"
)

// limits limit one process. 0 means no limit.
type limits struct {
	wall     time.Duration
	address  int64 // address space of each process, in bytes
	resident int64 // memory of the process and its children, in bytes
	file     int64 // size of a file, in bytes
}

// usual are the limits for commands that set no limits of their own. They are far more than the inputs need, but little
// enough that two commands fit on one machine.
var usual = limits{wall: 60 * time.Second, address: 12 << 30, resident: 3 << 30}

// command is one call of millrace.
type command struct {
	dir    string // the folder that it runs in
	home   string // the folder for its cache and temporary files
	env    []string
	args   []string
	limits limits
	// meanwhile is called once the process runs. It may send the process a signal.
	meanwhile func(pid int)
}

// ended is how a process ended and what it printed.
type ended struct {
	code      int            // as in a shell: 128 plus the signal's number if a signal ended it
	signal    syscall.Signal // the signal that ended the process; 0: it ended by itself
	hung      bool
	overgrown bool
	peak      int64
	took      time.Duration
	out, err  []byte
}

func (e *ended) last() string {
	lines := strings.Split(strings.TrimSpace(string(e.err)), "\n")
	return clipped(lines[len(lines)-1], 300)
}

// keptOutput is how many bytes of each stream are kept and searched.
const keptOutput = 4 << 20

// stream keeps the beginning of what a process writes.
type stream struct{ bytes.Buffer }

func (s *stream) Write(p []byte) (int, error) {
	if room := keptOutput - s.Len(); room > 0 {
		s.Buffer.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}

// run runs millrace until it ends, exceeds a limit, or the context is done.
func (a *attack) run(ctx context.Context, c command) (*ended, error) {
	if c.limits == (limits{}) {
		c.limits = usual
	}
	temporary := filepath.Join(c.home, "tmp")
	if err := os.MkdirAll(temporary, 0o755); err != nil {
		return nil, err
	}
	// A shell sets the limits and then replaces itself with millrace by exec. So a signal to the started process
	// reaches millrace.
	script := "ulimit -c 0; "
	if c.limits.address > 0 {
		script += fmt.Sprintf("ulimit -v %d; ", c.limits.address>>10)
	}
	if c.limits.file > 0 {
		script += fmt.Sprintf("ulimit -f %d; ", c.limits.file>>9)
	}
	p := exec.Command("/bin/sh", append([]string{"-c", script + `exec "$0" "$@"`, a.program(c)}, c.args...)...)
	p.Dir = c.dir
	p.Env = append(append(os.Environ(), "MILLRACE_NATIVE="+a.native, "HOME="+c.home,
		"XDG_CACHE_HOME="+filepath.Join(c.home, "cache"), "TMPDIR="+temporary), c.env...)
	p.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	var out, errs stream
	p.Stdout, p.Stderr = &out, &errs
	p.WaitDelay = 2 * time.Second // for a child that keeps the streams open
	began := time.Now()
	if err := p.Start(); err != nil {
		return nil, err
	}
	pid := p.Process.Pid
	watch := watcher{limits: c.limits, pid: pid, began: began, over: make(chan struct{})}
	crash.Go(func() { watch.until(ctx) })
	if c.meanwhile != nil {
		c.meanwhile(pid)
	}
	err := p.Wait()
	close(watch.over)
	_ = syscall.Kill(-pid, syscall.SIGKILL) // children that may still run
	e := &ended{took: time.Since(began), out: out.Bytes(), err: errs.Bytes(),
		hung: watch.hung.Load(), overgrown: watch.overgrown.Load()}
	if p.ProcessState == nil {
		return nil, fmt.Errorf("waiting for millrace: %w", err)
	}
	state, ok := p.ProcessState.Sys().(syscall.WaitStatus)
	if !ok {
		return nil, fmt.Errorf("waiting for millrace: it ended with %v", p.ProcessState)
	}
	e.code = state.ExitStatus()
	if state.Signaled() {
		e.signal = state.Signal()
		e.code = 128 + int(state.Signal())
	}
	e.peak = watch.peak.Load() // the kernel's peak would count this program's memory, which the process had before exec
	return e, ctx.Err()
}

// program returns the program that has the command's verb.
func (a *attack) program(c command) string {
	if len(c.args) > 0 && (c.args[0] == "bench" || c.args[0] == "reproduce") {
		return a.lab
	}
	return a.millrace
}

// quoted returns a command as a user would type it.
func (c command) quoted(program string) string {
	words := []string{"cd " + shellWord(c.dir) + " &&"}
	for _, e := range c.env {
		name, value, _ := strings.Cut(e, "=")
		words = append(words, name+"="+shellWord(value))
	}
	words = append(words, shellWord(program))
	for _, arg := range c.args {
		words = append(words, shellWord(arg))
	}
	return strings.Join(words, " ")
}

// shellWord quotes a word for a shell.
func shellWord(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' ||
			strings.ContainsRune("-_./,:=+@%", r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	if strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }) || strings.ToValidUTF8(s, "") != s {
		return "$'" + strings.NewReplacer(`"`, `"`, `'`, `\'`).Replace(strings.Trim(strconv.QuoteToASCII(s), `"`)) + "'"
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
