package start

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/millrace-ml/millrace/internal/crash"
	"github.com/millrace-ml/millrace/launch"
)

// gang holds the processes of one start.
type gang struct {
	*Spec
	hosts []Host // the hosts that are used
	crews []crew // by index of hosts
	port  string // for rank 0, proposed by its host

	ends  chan end
	total int // number of processes
	left  int // processes that have not ended

	printing sync.Mutex
	names    []string // names of hosts, by rank; nil: only one host
}

func newGang(s *Spec) *gang { return &gang{Spec: s, ends: make(chan end, MaxProcesses)} }

// gather connects to the hosts that are not known to be bad. In `bad` it records why a host cannot be reached.
func (g *gang) gather(ctx context.Context, bad []error) {
	crews, ports := make([]crew, len(g.Hosts)), make([]string, len(g.Hosts))
	var all sync.WaitGroup
	for i, h := range g.Hosts {
		if bad[i] != nil {
			continue
		}
		all.Go(crash.Caught(func() {
			if g.here(h.Name) {
				crews[i] = newLocal(g)
				ports[i], bad[i] = freePort()
				return
			}
			if r, err := reach(ctx, g.Spec, h, g); err != nil {
				bad[i] = err
			} else {
				crews[i], ports[i] = r, r.port
			}
		}))
	}
	all.Wait()
	for i, h := range g.Hosts {
		if bad[i] != nil {
			continue
		}
		if len(g.hosts) == 0 {
			g.port = ports[i]
		}
		g.hosts, g.crews = append(g.hosts, h), append(g.crews, crews[i])
	}
}

// begin starts the processes of all hosts that gather has reached. If it fails, it records the bad hosts.
func (g *gang) begin(start int, bad []error) bool {
	var orders []order
	rank := 0
	for i, h := range g.hosts {
		o := order{Program: g.Program, Args: g.Args, Dir: g.Dir}
		if len(g.hosts) > 1 {
			o.Host = h.address()
		}
		env := others(g.Env)
		if !g.here(h.Name) {
			env = toCarry(env)
		}
		o.Env = append(env, g.environment(g.hosts, i, g.port, start)...)
		for range h.Processes {
			o.Ranks = append(o.Ranks, rank)
			if o.Host != "" {
				g.names = append(g.names, o.Host)
			}
			rank++
		}
		orders = append(orders, o)
	}
	g.total, g.left = rank, rank
	errs := make([]error, len(g.hosts))
	var all sync.WaitGroup
	for i, c := range g.crews {
		all.Go(crash.Caught(func() { errs[i] = c.start(orders[i]) }))
	}
	all.Wait()
	for i, h := range g.hosts {
		if errs[i] != nil {
			bad[slices.Index(g.Hosts, h)] = errs[i]
		}
	}
	return errors.Join(errs...) == nil
}

// says prints a line of a process. If there are several processes, the rank comes first, with the host if there are
// several hosts. JSON records get no rank. If Bare is set, rank 0's lines to Stdout get no rank either.
func (g *gang) says(rank int, errs bool, line []byte) error {
	to := g.Stdout
	if errs {
		to = g.Stderr
	}
	var text []byte
	switch {
	case rank < len(g.names):
		text = fmt.Appendf(nil, "[%d %s] ", rank, g.names[rank])
	case g.total > 1:
		text = fmt.Appendf(nil, "[%d] ", rank)
	}
	if g.Bare && !errs && rank == 0 || bytes.HasPrefix(line, []byte(`{"`)) && json.Valid(line) { // a record names its rank
		text = nil
	}
	return g.write(to, append(append(text, line...), '\n'))
}

// write writes whole lines, so that lines of different processes do not mix.
func (g *gang) write(to io.Writer, text []byte) error {
	g.printing.Lock()
	defer g.printing.Unlock()
	_, err := to.Write(text)
	return err
}

func (g *gang) ended(e end) { g.ends <- e }

// signal sends a signal to every process that has not ended, and to its children.
func (g *gang) signal(s syscall.Signal) {
	for _, c := range g.crews {
		c.signal(s)
	}
}

// leave waits until everything that belongs to the crews has ended.
func (g *gang) leave() error {
	var errs []error
	for _, c := range g.crews {
		errs = append(errs, c.leave())
	}
	return errors.Join(errs...)
}

// next waits for the next process to end. It returns nil if `over` delivers a time or `stopped` is closed first.
func (g *gang) next(over <-chan time.Time, stopped <-chan struct{}) *end {
	select {
	case e := <-g.ends:
		g.left--
		return &e
	case <-over:
	case <-stopped:
	}
	return nil
}

// watch waits until all processes have ended, and returns the outcome. After the first failure it ends the other
// processes.
func (g *gang) watch(ctx context.Context) Outcome {
	var first *end
	for first == nil && g.left > 0 {
		e := g.next(nil, ctx.Done())
		if e == nil {
			return g.stop(ctx)
		}
		if e.Code != 0 {
			first = e
		}
	}
	if first == nil {
		return Outcome{}
	}
	for now := time.After(together); g.left > 0; {
		e := g.next(now, nil)
		if e == nil {
			break
		}
		if e.Code != 0 && e.behind() < first.behind() {
			first = e
		}
	}
	for over := time.After(g.Notice); g.left > 0 && g.next(over, ctx.Done()) != nil; {
	}
	g.end(syscall.SIGTERM, func(*end) {})
	return Outcome{Code: first.Code, Rank: first.Rank, How: first.How}
}

// behind returns the position of an end in the order of possible first causes. It is 0 for an ordinary failure, 1 for a
// process lost with its host, 2 for a process that has lost a peer, and 3 for a process that was stopped.
func (e *end) behind() int {
	switch {
	case e.Lost:
		return 1
	case e.Code == launch.LostPeer:
		return 2
	case e.Code == 128+int(syscall.SIGTERM), e.Code == 128+int(syscall.SIGINT), e.Code == 128+int(syscall.SIGHUP):
		return 3
	}
	return 0
}

// end tells the processes that still run to stop, and kills those that do not stop in time.
func (g *gang) end(signal syscall.Signal, ended func(*end)) {
	g.signal(signal)
	for grace := time.After(g.Grace); g.left > 0; {
		e := g.next(grace, nil)
		if e == nil {
			break
		}
		ended(e)
	}
	g.signal(syscall.SIGKILL)
	for g.left > 0 {
		g.next(nil, nil)
	}
}

// stopped returns the outcome of processes that the end of a context has stopped.
func stopped(ctx context.Context) Outcome {
	signal := signalOf(ctx)
	return Outcome{Code: 128 + int(signal), How: fmt.Sprintf("all processes were told to stop (%v)", signal)}
}

// signalOf returns the signal that has ended a context, or SIGTERM.
func signalOf(ctx context.Context) syscall.Signal {
	var by signalled
	if errors.As(context.Cause(ctx), &by) {
		return by.Signal()
	}
	return syscall.SIGTERM
}

// stop tells all processes to stop, and returns an outcome that says that they were stopped. There is one exception: if
// a process fails while it is to stop, with a code after which another start does not help, its failure is the outcome.
func (g *gang) stop(ctx context.Context) Outcome {
	o := stopped(ctx)
	g.end(signalOf(ctx), func(e *end) {
		if e.Code != 0 && !launch.Retry(e.Code) && launch.Retry(o.Code) {
			o = Outcome{Code: e.Code, Rank: e.Rank, How: e.How}
		}
	})
	return o
}
