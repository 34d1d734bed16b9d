package tcp

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"

	"github.com/millrace-ml/millrace/wire"
)

// Carriers makes the carriers of a session, indexed by worker. The carriers of workers in the list `mine` are open;
// those of other workers only have an address. `at` holds the address of each worker's process; the entries of the
// workers in `mine` are not used. Each worker in `mine` sends to every other worker over the given number of streams
// (connections).
func (e *Endpoint) Carriers(session uint32, at []wire.Address, mine []int, streams int) ([]wire.Carrier, error) {
	if most := mostStream - 1; streams < 1 || streams > most { // one more stream is for lent frames that come back
		return nil, fmt.Errorf("tcp: %d streams; there are 1 to %d", streams, most)
	}
	all := make([]wire.Carrier, len(at))
	places := make([]place, len(at))
	for rank, a := range at {
		if slices.Contains(mine, rank) {
			a = e.Address()
		}
		p, err := placeOf(a, e.Address())
		if err != nil {
			return nil, fmt.Errorf("%w (of worker %d)", err, rank)
		}
		places[rank], all[rank] = p, elsewhere{rank: rank, at: a}
	}
	for i, rank := range mine {
		if rank < 0 || rank >= len(at) || slices.Index(mine, rank) != i {
			return nil, fmt.Errorf("tcp: the workers here are %v; each is one of %d, and there once", mine, len(at))
		}
	}
	e.mu.Lock()
	switch {
	case e.closed:
		e.mu.Unlock()
		return nil, wire.ErrClosed
	case session <= e.session.number:
		e.mu.Unlock()
		return nil, fmt.Errorf("tcp: session %d follows session %d; each has a greater number", session, e.session.number)
	case len(e.session.carriers) > 0:
		e.mu.Unlock()
		return nil, fmt.Errorf("tcp: session %d begins, and %d carriers of the one before are open", session,
			len(e.session.carriers))
	}
	e.session.number, e.session.mine = session, slices.Clone(mine)
	e.session.members = streams * len(mine) * (len(at) - len(mine))
	e.ended.Broadcast() // the limit of handshakes may have grown
	for _, rank := range mine {
		c := newCarrier(e, session, rank, places, streams)
		e.session.carriers[rank], all[rank] = c, c
	}
	waiting := e.session.parked
	e.session.parked = nil
	e.mu.Unlock()
	for _, p := range waiting {
		if err := e.put(p.h, p.c); err != nil {
			e.log.add(p.c.RemoteAddr(), err)
			p.c.cut(err)
		}
	}
	return all, nil
}

// gone removes a closed carrier.
func (e *Endpoint) gone(c *carrier) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.session.carriers[c.rank] == c {
		delete(e.session.carriers, c.rank)
	}
}

// elsewhere is the carrier of a worker in another process. It only has an address.
type elsewhere struct {
	wire.Carrier
	rank int
	at   wire.Address
}

func (c elsewhere) Rank() int             { return c.rank }
func (c elsewhere) Address() wire.Address { return c.at }

// New makes a carrier for each worker of one process, each with its own Endpoint on the loopback. Tests use it, and
// so does train if MILLRACE_CARRIER names it.
func New(workers int) ([]wire.Carrier, error) { return open(workers, 1, Config{}) }

func open(workers, streams int, c Config) ([]wire.Carrier, error) {
	if workers < 1 {
		return nil, fmt.Errorf("tcp: carriers of %d workers; there must be at least 1", workers)
	}
	c.Token = make([]byte, 2*LeastToken)
	_, _ = rand.Read(c.Token) // it never fails
	all, at, ends := make([]wire.Carrier, workers), make([]wire.Address, workers), make([]*Endpoint, workers)
	var failed error
	for rank := range all {
		c.Process = rank
		e, err := Listen(context.Background(), c)
		if err != nil {
			failed = err
			break
		}
		ends[rank], at[rank] = e, e.Address()
	}
	for rank, e := range ends {
		if failed != nil {
			break
		}
		one, err := e.Carriers(1, at, []int{rank}, streams)
		if err != nil {
			failed = err
			break
		}
		one[rank].(*carrier).alone = true
		all[rank] = one[rank]
	}
	if failed == nil {
		return all, nil
	}
	for _, e := range ends {
		if e != nil {
			failed = errors.Join(failed, e.Close())
		}
	}
	return nil, failed
}
