package wire

import (
	"errors"
	"fmt"
)

// Ports is the ports of one process's workers, connected with each other.
type Ports struct{ all []*Port }

// NewPorts makes a port of each carrier, and connects them. They close the carriers, at once where one is refused.
func NewPorts(carriers []Carrier, config func(rank int) Config) (*Ports, error) {
	p := &Ports{}
	for rank, c := range carriers {
		if c.Rank() != rank {
			return nil, errors.Join(fmt.Errorf("wire: carrier %d is worker %d's", rank, c.Rank()), closeAll(carriers))
		}
		for peer, other := range carriers {
			if peer == rank {
				continue
			}
			if err := c.Connect(peer, other.Address()); err != nil {
				return nil, errors.Join(err, closeAll(carriers))
			}
		}
		port, err := NewPort(c, config(rank))
		if err != nil {
			return nil, errors.Join(err, closeAll(carriers))
		}
		p.all = append(p.all, port)
	}
	return p, nil
}

func closeAll(carriers []Carrier) error {
	var all error
	for _, c := range carriers {
		all = errors.Join(all, c.Close())
	}
	return all
}

// Size is the number of workers.
func (p *Ports) Size() int { return len(p.all) }

// Port is a worker's.
func (p *Ports) Port(rank int) *Port { return p.all[rank] }

// Begin opens edges and begins an epoch on every port.
func (p *Ports) Begin(epoch uint32, edges []Edge) {
	for _, port := range p.all {
		port.Open(edges)
	}
	for _, port := range p.all {
		port.Begin(epoch)
	}
}

// Fail tells every port that a worker has failed.
func (p *Ports) Fail(rank int, err error) {
	for _, port := range p.all {
		port.Fail(rank, err)
	}
}

// Close closes all ports.
func (p *Ports) Close() error {
	var all error
	for _, port := range p.all {
		port.stop(ErrClosed)
	}
	for _, port := range p.all {
		all = errors.Join(all, port.Close())
	}
	return all
}
