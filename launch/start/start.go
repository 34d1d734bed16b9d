// Package start starts the processes of a run, on this host or on several, watches them, and starts them again.
//
// In: a command line, hosts and how many processes on each, and an environment. Out: what the processes print,
// each line behind its rank, and an Outcome: the exit code of the first cause, and whose it was. Each process
// is given its place in the environment (package launch), where rank 0 is met, and the token, which is made
// where the environment has none. Refused: no program, no processes, an environment that is in a world of
// several already, a host that does not answer.
//
// # Hosts
//
// A host without a name is this one, and so is one that is called as it is. Every other is reached by one
// connection of the user's own ssh, which asks nothing. At its end the program itself, given Spec.Remote,
// calls Serve. Through the connection go the processes' environment, their output, signals, and how they
// ended; no variable is an argument of any command. Where the connection ends, at either end, the processes of
// that host are told to stop, and for the run they are lost. Variables that a host gets are millrace's own
// and those that say how libraries compute (carried); all others are that host's.
//
// Rank 0 is met on the loopback where all processes are on one host, or else at the name of the first host, or
// at what MILLRACE_MASTER_ADDR and MILLRACE_MASTER_PORT of the environment say.
//
// # The first cause
//
// Where a process ends with another code than 0, the rest have a while to notice by themselves. Then they are
// told to stop, and at last killed. The first cause is the first process that failed. Of those that end at about
// the same time, one that says that it lost a peer comes behind one that says anything else or is lost with its
// host, and one that says that it was stopped behind all; what ended because it was told to is none.
//
// # Another start
//
// A run starts again where the exit code says that it may help, with the same identity and another number.
// Hosts that do not answer by then, or cannot start their processes, are left out. Where none is left, the outcome is
// that of the start before.
//
// # Signals
//
// The end of the context tells every process to stop, by the Signal of its cause or else by SIGTERM, and kills
// what has not ended in Spec.Grace. Processes lead groups of their own, so that a signal to the caller's
// group comes by way of the caller alone; what a process starts ends with it. Where the caller dies, its
// processes are told.
//
// # What whoever uses it must do
//
// End the context where the caller is told to stop; print Outcome where its Code is not 0; call Serve, with
// standard input and output, where the program is given Spec.Remote.
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

// Spec is what to start.
type Spec struct {
	Program  string
	Args     []string
	Hosts    []Host
	Env      []string // what every process has, as os.Environ gives it
	Restarts int      // most times that the run starts again
	// Remote is the arguments by which Program calls Serve.
	Remote []string
	// Dir is where processes run; "": where the caller does.
	Dir string
	// Notice is how long the rest have to end by themselves after the first failure; 0: 15 seconds.
	Notice time.Duration
	// Grace is how long they have after they are told to stop; 0: a minute.
	Grace time.Duration
	// Stdout and Stderr take what the processes print, whole lines at a time; nil takes nothing.
	Stdout, Stderr io.Writer
	// Bare says that rank 0 alone prints to Stdout, which then has no ranks in front of lines.
	Bare bool
	// Again is told of every start but the first; nil: nobody is.
	Again func(start int, after Outcome)

	id, token string // of the run
	here      func(string) bool
}

// Outcome is how a run ended.
type Outcome struct {
	Code int    // exit code of the first cause
	Rank int    // whose it is, where Code is not 0
	How  string // in words
}

// signalled is the cause of a context that a signal has ended, which the processes are told to stop by.
type signalled interface {
	error
	Signal() syscall.Signal
}

// Times of a run.
const (
	defaultNotice = 15 * time.Second
	defaultGrace  = time.Minute
	together      = 500 * time.Millisecond // in which processes fail at about the same time
)

// MaxProcesses is the most in all.
const MaxProcesses = 4096

// Run starts the processes, and again where their exit code says that it may help.
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
		case err != nil: // the first cause is still that of the start before
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

// complete fills in what was left out, and refuses what cannot be started.
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

// readToken is the token of the environment, which other hosts need not have the file of, or a new one.
func (s *Spec) readToken(t launch.Token) (string, error) {
	if t == (launch.Token{}) {
		return random(32), nil
	}
	token, err := t.Read(s.Env)
	return string(token), err
}

// once starts the processes and waits until all have ended. Hosts that cannot be used fail the first start, and are
// left out of another.
func (s *Spec) once(ctx context.Context, start int) (Outcome, error) {
	for bad := make([]error, len(s.Hosts)); ; {
		g := newGang(s)
		g.gather(ctx, bad)
		if ctx.Err() != nil {
			return stopped(ctx), g.leave() // nothing has been started
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
