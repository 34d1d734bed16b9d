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

// gang is the processes of one start.
type gang struct {
	*Spec
	hosts []Host // that there are
	crews []crew // by host
	port  string // of rank 0, as its host proposes

	ends  chan end
	total int // of processes
	left  int // of those that have not ended

	printing sync.Mutex
	names    []string // of hosts, by rank; nil: there is one host
}

func newGang(s *Spec) *gang { return &gang{Spec: s, ends: make(chan end, MaxProcesses)} }

// gather reaches the hosts that are not known to be bad, and notes why others are.
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

// begin starts the processes of all hosts that gather has reached. Where it cannot, it notes which hosts are bad.
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

// says prints a line of a process, with its rank in front unless the line is a record in JSON.
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
	if g.Bare && !errs && rank == 0 || bytes.HasPrefix(line, []byte(`{"`)) && json.Valid(line) { // a record says its rank
		text = nil
	}
	return g.write(to, append(append(text, line...), '\n'))
}

// write writes whole lines, so that those of processes do not mix.
func (g *gang) write(to io.Writer, text []byte) error {
	g.printing.Lock()
	defer g.printing.Unlock()
	_, err := to.Write(text)
	return err
}

func (g *gang) ended(e end) { g.ends <- e }

// signal tells every process that has not ended, and what it has started.
func (g *gang) signal(s syscall.Signal) {
	for _, c := range g.crews {
		c.signal(s)
	}
}

// leave waits until nothing is left.
func (g *gang) leave() error {
	var errs []error
	for _, c := range g.crews {
		errs = append(errs, c.leave())
	}
	return errors.Join(errs...)
}

// next waits for the next process to end. It is nil where the time is over, or stopped is closed, before that.
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

// watch waits until all have ended, and says why.
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

// behind says behind how many others an end is as a cause: whoever stopped since others did or since it was told to
// stands last, in front of it who lost others, then who is lost with its host, and first who failed.
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

// end tells the rest to stop, and kills what does not in time.
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

// stopped is the outcome of processes that the end of a context has stopped.
func stopped(ctx context.Context) Outcome {
	signal := signalOf(ctx)
	return Outcome{Code: 128 + int(signal), How: fmt.Sprintf("all processes were told to stop (%v)", signal)}
}

// signalOf is what a context has ended by.
func signalOf(ctx context.Context) syscall.Signal {
	var by signalled
	if errors.As(context.Cause(ctx), &by) {
		return by.Signal()
	}
	return syscall.SIGTERM
}

// stop tells all processes to stop. They may end well; what they say by then is the outcome, unless they say
// nothing else than that they were told to.
func (g *gang) stop(ctx context.Context) Outcome {
	o := stopped(ctx)
	g.end(signalOf(ctx), func(e *end) {
		if e.Code != 0 && !launch.Retry(e.Code) && launch.Retry(o.Code) {
			o = Outcome{Code: e.Code, Rank: e.Rank, How: e.How}
		}
	})
	return o
}
