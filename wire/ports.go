package wire

import (
	"errors"
	"fmt"
	"iter"
)

// Ports holds the ports of one process's workers. They are connected with each other and with the ports of other
// processes.
type Ports struct{ all []*Port }

// NewPorts makes a port for each worker in `mine`, and connects it with all other workers. `carriers` has a carrier for
// every worker, indexed by worker. If the worker is in another process, its carrier needs only an Address. The ports
// close their carriers. If a carrier is refused, the carriers of all workers in `mine` are closed at once.
func NewPorts(carriers []Carrier, mine []int, config func(rank int) Config) (*Ports, error) {
	p := &Ports{all: make([]*Port, len(carriers))}
	for _, rank := range mine {
		port, err := connected(carriers, rank, config)
		if err != nil {
			for _, rank := range mine {
				if rank < len(carriers) {
					err = errors.Join(err, carriers[rank].Close())
				}
			}
			return nil, err
		}
		p.all[rank] = port
	}
	return p, nil
}

func connected(carriers []Carrier, rank int, config func(rank int) Config) (*Port, error) {
	if rank >= len(carriers) || carriers[rank].Rank() != rank {
		return nil, fmt.Errorf("wire: there is no carrier of worker %d", rank)
	}
	for peer, other := range carriers {
		if peer == rank {
			continue
		}
		if err := carriers[rank].Connect(peer, other.Address()); err != nil {
			return nil, err
		}
	}
	return NewPort(carriers[rank], config(rank))
}

// Port returns a worker's port, or nil for a worker of another process.
func (p *Ports) Port(rank int) *Port { return p.all[rank] }

// Begin opens edges and begins an epoch on every port. The function that it returns reports the messages that had
// already arrived.
func (p *Ports) Begin(epoch uint32, edges []Edge) (early func()) {
	var all []func()
	for port := range p.here() {
		port.Open(edges)
	}
	for port := range p.here() {
		all = append(all, port.Begin(epoch))
	}
	return func() {
		for _, tell := range all {
			tell()
		}
	}
}

// here iterates over the ports of this process.
func (p *Ports) here() iter.Seq[*Port] {
	return func(yield func(*Port) bool) {
		for _, port := range p.all {
			if port != nil && !yield(port) {
				return
			}
		}
	}
}

// Moved returns how many bytes have been sent and received at all ports; see Carrier.Moved.
func (p *Ports) Moved() int64 {
	var all int64
	for port := range p.here() {
		all += port.carrier.Moved()
	}
	return all
}

// Fail tells every port that a worker has failed.
func (p *Ports) Fail(rank int, err error) {
	for port := range p.here() {
		port.Fail(rank, err)
	}
}

// Close closes all ports.
func (p *Ports) Close() error {
	var all error
	for port := range p.here() {
		port.stop(ErrClosed)
	}
	for port := range p.here() {
		all = errors.Join(all, port.Close())
	}
	return all
}
