// Package together connects the processes of a run with each other. All verbs that run in several processes use it.
//
// In: a World of several processes, read from their launcher's environment. Out: a Party, with an Endpoint for frames,
// and the links of a setup. An error's exit code tells the launcher what to do.
package together

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/internal/crash"
	"github.com/millrace-ml/millrace/launch"
	"github.com/millrace-ml/millrace/launch/rendezvous"
	"github.com/millrace-ml/millrace/launch/setup"
	"github.com/millrace-ml/millrace/run/control"
	"github.com/millrace-ml/millrace/wire"
	"github.com/millrace-ml/millrace/wire/tcp"
)

// Party holds the processes of a run that have met. The caller must close it after the run.
type Party struct {
	World    *launch.World
	Places   []rendezvous.Place // by rank
	Differ   []string           // facts in which the processes differ, where a difference is allowed
	endpoint *tcp.Endpoint
	tls      *tcp.TLS // nil: no encryption
	meeting  *rendezvous.Meeting

	mu     sync.Mutex
	asides []*tcp.Endpoint
}

// Clock is the clock that processes compare.
var Clock = time.Now

// Meet connects this process with the other processes of its world. The world must have several processes. The `facts`
// of this process are compared with those of the other processes.
func Meet(ctx context.Context, w *launch.World, facts []rendezvous.Fact) (*Party, error) {
	p := &Party{World: w}
	var err error
	if p.tls, err = encryption(w.TLS); err != nil {
		return nil, cli.BadInput(err)
	}
	if p.endpoint, err = listen(ctx, w, p.tls); err != nil {
		return nil, input(ctx, err)
	}
	if p.meeting, err = p.meet(ctx, facts); err != nil {
		return nil, errors.Join(input(ctx, err), p.endpoint.Close())
	}
	p.Places, p.Differ = p.meeting.Places, p.meeting.Differ
	return p, nil
}

func (p *Party) meet(ctx context.Context, facts []rendezvous.Fact) (*rendezvous.Meeting, error) {
	w, address := p.World, p.endpoint.Address()
	text, err := json.Marshal(address)
	if err != nil {
		return nil, err
	}
	c := rendezvous.Config{Log: slog.Default(), Wait: w.Wait, Clock: Clock, Own: rendezvous.Hello{Rank: w.Rank,
		Size: w.Size, Run: w.RunID, Restart: w.Restart, Host: cmp.Or(w.Host, cli.HostName()), Machine: machine(),
		PID:   os.Getpid(),
		Facts: facts, Address: text}}
	if w.Rank == 0 {
		return rendezvous.Lead(ctx, p.endpoint.Listener(tcp.Control), c)
	}
	at, err := tcp.AddressOf(w.Meet(), p.tls)
	if err != nil {
		return nil, err
	}
	return rendezvous.Join(ctx, func(ctx context.Context) (net.Conn, error) {
		conn, err := p.endpoint.Dial(ctx, at, tcp.Control, 0)
		if tcp.Final(err) {
			return nil, fmt.Errorf("%w; %w", err, rendezvous.ErrFinal)
		}
		return conn, err
	}, c)
}

// input marks an error that occurs before the processes have met as bad input. It does not mark a refusal by the
// meeting itself, nor an error of a process that was stopped.
func input(ctx context.Context, err error) error {
	if refused := (*rendezvous.Refused)(nil); ctx.Err() != nil || errors.As(err, &refused) {
		return err
	}
	return cli.BadInput(err)
}

// Name returns the name of a rank's process for errors.
func (p *Party) Name(rank int) string {
	return fmt.Sprintf("rank %d on host %s", rank, p.Places[rank].Host)
}

// config returns the settings of a setup.
func (p *Party) config() setup.Config {
	return setup.Config{Name: p.Name, Class: cli.ClassOf, Log: slog.Default()}
}

// Lead begins rank 0's part of the setup.
func (p *Party) Lead(ctx context.Context) *setup.Leader {
	links := make([]control.Link, len(p.meeting.Links))
	for rank, c := range p.meeting.Links {
		if c != nil {
			links[rank] = control.Over(c)
		}
	}
	return setup.Lead(ctx, links, p.config())
}

// Follow does what rank 0 asks during the setup; every process except rank 0 calls it. It returns the Link for the
// run; nil if no run follows.
func (p *Party) Follow(ctx context.Context, handlers map[string]setup.Handler) (control.Link, error) {
	link, err := setup.Follow(control.Over(p.meeting.Links[0]), p.World.Rank, handlers, p.config()).Wait(ctx)
	return link, err
}

// Hosts returns each process's host, by rank.
func (p *Party) Hosts() []string {
	var all []string
	for _, at := range p.Places {
		all = append(all, at.Host)
	}
	return all
}

// Open returns the address at which this process may listen without encryption. It is the local address of the route to
// another process, if possible a process on another host. A name would not do, because on this host it may mean the
// loopback. Open refuses if the run's connections are encrypted.
func (p *Party) Open(ctx context.Context) (host string, err error) {
	if p.tls != nil {
		return "", errors.New("the processes speak TLS, and Gloo sends gradients as they are; leave one of both out")
	}
	for rank := range p.Places {
		if rank == p.World.Rank {
			continue
		}
		at, err := p.address(rank)
		if err != nil {
			return "", err
		}
		own, err := p.endpoint.Way(ctx, at)
		if err != nil {
			return "", fmt.Errorf("the way to %s: %w", p.Name(rank), err)
		}
		if host = own.String(); !own.IsLoopback() {
			break
		}
	}
	return host, nil
}

// address returns the address of a process's Endpoint.
func (p *Party) address(rank int) (at wire.Address, err error) {
	if err := json.Unmarshal(p.Places[rank].Address, &at); err != nil {
		return at, fmt.Errorf("the address of %s: %w", p.Name(rank), err)
	}
	return at, nil
}

// Carriers returns a function that makes the carriers between the workers of a run. Workers of one process exchange
// messages in memory. `of` holds the process of each worker. `streams` is the number of connections each way between
// two workers.
func (p *Party) Carriers(of []int, streams int) func(workers int) ([]wire.Carrier, error) {
	return func(workers int) ([]wire.Carrier, error) {
		at := make([]wire.Address, workers)
		var mine []int
		for worker, rank := range of {
			if rank == p.World.Rank {
				mine = append(mine, worker)
			}
			var err error
			if at[worker], err = p.address(rank); err != nil {
				return nil, err
			}
		}
		far, err := p.endpoint.Carriers(1, at, mine, streams)
		if err != nil {
			return nil, err
		}
		if len(mine) < 2 {
			return far, nil
		}
		near, err := wire.InProcess(workers)
		if err != nil {
			return nil, err
		}
		return wire.Split(near, far, mine)
	}
}

// Serve calls `answer` for each connection that another process makes to fetch files, until the Party is closed.
func (p *Party) Serve(answer func(net.Conn)) {
	crash.Go(func() {
		for {
			c, err := p.endpoint.Listener(tcp.Files).Accept()
			if err != nil {
				return
			}
			crash.Go(func() { answer(c) })
		}
	})
}

// fetching is how long connecting to another process may take in Dial.
const fetching = 10 * time.Second

// Dial connects to a process to fetch files from it.
func (p *Party) Dial(rank int) (net.Conn, error) {
	at, err := p.address(rank)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), fetching)
	defer cancel()
	return p.endpoint.Dial(ctx, at, tcp.Files, rank)
}

// Aside makes another Endpoint of this process, on any port, for traffic outside the run. If `encrypted` is true, the
// Endpoint uses the run's certificates, or its own if the run has none. Closing the Party also closes this Endpoint.
func (p *Party) Aside(ctx context.Context, encrypted bool) (*tcp.Endpoint, error) {
	tls := p.tls
	if tls == nil && encrypted {
		tls = &tcp.TLS{}
	}
	if !encrypted {
		tls = nil
	}
	e, err := listenOn(ctx, p.World, tls, "0")
	if err == nil {
		p.mu.Lock()
		p.asides = append(p.asides, e)
		p.mu.Unlock()
	}
	return e, err
}

// Encrypted reports whether the run's messages are encrypted.
func (p *Party) Encrypted() bool { return p.tls != nil }

// Close ends all connections with the other processes.
func (p *Party) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	err := p.endpoint.Close()
	for _, e := range p.asides {
		err = errors.Join(err, e.Close())
	}
	p.asides = nil
	return err
}
