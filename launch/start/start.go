// Package start starts the processes of a run, on this host or on several, watches them, and starts them again.
//
// In: a command line, hosts with their numbers of processes, and an environment. Out: what the processes print, with
// the rank before each line if there are several, and an Outcome with the exit code and the rank of the first cause.
// Each process gets in its environment its rank (package launch), the address of rank 0, and the token. A token is made
// if the environment has none. Refused: no program, no processes, an environment that already belongs to a world of
// several processes, a host that does not answer.
//
// # Hosts
//
// A host without a name, or with the name of this host, is this host. Every other host is reached by one connection of
// the user's own ssh, which must not need any input. There the program itself runs with the arguments Spec.Remote and
// calls Serve. The connection carries the processes' environment, their output, signals, and how they ended. No
// variable is passed as an argument of a command. If the connection ends, the processes of that host are told to stop,
// and the run counts them as lost. A host gets millrace's own variables and those that control how libraries compute
// (carried). All other variables are that host's own.
//
// If all processes are on one host, rank 0 listens on the loopback. Otherwise its address is the name of the first
// host, or what MILLRACE_MASTER_ADDR and MILLRACE_MASTER_PORT of the environment say.
//
// # The first cause
//
// When a process ends with a code other than 0, the others have some time to notice by themselves. Then they are told
// to stop, and finally killed. The first cause is the first process that failed. Among processes that end at about the
// same time, the order is: first an ordinary failure, then a process lost with its host, then one that has lost a peer,
// and then one that was stopped. A process that ended because this package told it to stop does not count, with one
// exception: the context has ended, and then a process fails with a code after which another start does not help.
//
// # Another start
//
// A run starts again if the exit code says that another start may help, with the same identity and a new restart
// number. Hosts that do not answer by then, or cannot start their processes, are left out. If none is left, the outcome
// is that of the previous start.
//
// # Signals
//
// When the context ends, every process is told to stop, by the Signal of the context's cause or by SIGTERM. Those that
// have not ended after Spec.Grace are killed. Each process leads a process group of its own. So a signal to the
// caller's group reaches the processes only through the caller, and the children of a process end with it. If the
// caller dies, its processes get SIGTERM.
//
// # Duties of the caller
//
// End the context when the caller is told to stop. Print Outcome if its Code is not 0. Call Serve, with standard input
// and output, if the program is started with the arguments Spec.Remote.
package start

import (
	"context"
	"errors"
	"fmt"
	"io"
	"syscall"
	"time"

	"github.com/millrace-ml/millrace/launch"
)

// Spec says what to start.
type Spec struct {
	Program  string
	Args     []string
	Hosts    []Host
	Env      []string // of every process, in the form of os.Environ
	Restarts int      // how often the run may start again
	// Remote holds the arguments with which Program calls Serve.
	Remote []string
	// Dir is the folder in which processes run; "": that of the caller.
	Dir string
	// Notice is the time in which the others may end by themselves after the first failure; 0: 15 seconds.
	Notice time.Duration
	// Grace is the time between telling processes to stop and killing them; 0: a minute.
	Grace time.Duration
	// Stdout and Stderr get what the processes print, in whole lines; nil discards it.
	Stdout, Stderr io.Writer
	// Bare says that only rank 0 prints to Stdout. Its lines then have no rank before them.
	Bare bool
	// Again is called before every start except the first; it may be nil.
	Again func(start int, after Outcome)

	id, token string // of the run
	here      func(string) bool
}

// Outcome describes how a run ended.
type Outcome struct {
	Code int    // exit code of the first cause
	Rank int    // rank of the process that failed first; 0 if none did
	How  string // in words
}

// signalled is the cause of a context that a signal has ended. The processes are then sent the same signal.
type signalled interface {
	error
	Signal() syscall.Signal
}

// These are the time limits of a run.
const (
	defaultNotice = 15 * time.Second
	defaultGrace  = time.Minute
	together      = 500 * time.Millisecond // processes that fail within this time fail at about the same time
)

// MaxProcesses is the largest number of processes on all hosts.
const MaxProcesses = 4096

// Run starts the processes, and starts them again if their exit code says that another start may help.
func Run(ctx context.Context, s Spec) (Outcome, error) {
	if err := s.complete(); err != nil {
		return Outcome{}, fmt.Errorf("start: %w", err)
	}
	var before Outcome
	for start := 0; ; start++ {
		o, err := s.once(ctx, start)
		switch {
		case err != nil && start == 0:
			return o, fmt.Errorf("start: %w", err)
		case err != nil: // the first cause remains that of the previous start
			_, _ = fmt.Fprintf(s.Stderr, "no other start: %v\n", err)
			return before, nil
		}
		before = o
		if o.Code == 0 || start == s.Restarts || !launch.Retry(o.Code) || ctx.Err() != nil {
			return o, nil
		}
		if s.Again != nil {
			s.Again(start+1, o)
		}
	}
}

// complete fills in defaults, and refuses what cannot be started.
func (s *Spec) complete() error {
	n, whole := 0, s.Program != "" && len(s.Hosts) > 0
	for _, h := range s.Hosts {
		n += h.Processes
		whole = whole && h.Processes >= 1 && n <= MaxProcesses
	}
	if !whole {
		return fmt.Errorf("%d processes of program %q; give a program, and 1 to %d processes with 1 on each host at least",
			n, s.Program, MaxProcesses)
	}
	w, err := launch.FromEnv(s.Env)
	if err != nil {
		return err
	}
	if w.Size > 1 {
		return fmt.Errorf("this process is %v, and would start %d in each of those; start %d there instead", w, n, w.Size*n)
	}
	if err := s.completeHosts(); err != nil {
		return err
	}
	if s.token, err = s.readToken(w.Token); err != nil {
		return err
	}
	s.id = random(8)
	if s.Notice <= 0 {
		s.Notice = defaultNotice
	}
	if s.Grace <= 0 {
		s.Grace = defaultGrace
	}
	if s.Stdout == nil {
		s.Stdout = io.Discard
	}
	if s.Stderr == nil {
		s.Stderr = io.Discard
	}
	return nil
}

// readToken returns the token of the environment, or a new one. Other hosts get the token itself, since they may not
// have its file.
func (s *Spec) readToken(t launch.Token) (string, error) {
	if t == (launch.Token{}) {
		return random(32), nil
	}
	token, err := t.Read(s.Env)
	return string(token), err
}

// once starts the processes and waits until all have ended. Unusable hosts make the first start fail; later starts
// leave them out.
func (s *Spec) once(ctx context.Context, start int) (Outcome, error) {
	for bad := make([]error, len(s.Hosts)); ; {
		g := newGang(s)
		g.gather(ctx, bad)
		if ctx.Err() != nil {
			return stopped(ctx), g.leave() // no process was started
		}
		err := errors.Join(bad...)
		if start == 0 && err != nil || len(g.hosts) == 0 {
			return Outcome{}, errors.Join(err, g.leave())
		}
		if g.begin(start, bad) {
			if err != nil {
				_ = g.write(g.Stderr, fmt.Appendf(nil, "going on without hosts that cannot be used: %v\n", err))
			}
			o := g.watch(ctx)
			return o, g.leave()
		}
		g.signal(syscall.SIGKILL)
		if err := g.leave(); err != nil || start == 0 {
			return Outcome{}, errors.Join(append(bad, err)...)
		}
	}
}
