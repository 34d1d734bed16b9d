package wire

import (
	"errors"
	"fmt"
	"slices"
)

// Split makes carriers for the workers of one process, which are listed in `mine`. These workers reach each other
// through the carriers in `near`, and all other workers through those in `far`. `near` and `far` are indexed by worker;
// `near` needs entries only for workers in `mine`. A new carrier closes both of its parts. For a worker not in `mine`,
// only the address of its carrier in `far` is used.
func Split(near, far []Carrier, mine []int) ([]Carrier, error) {
	all := slices.Clone(far)
	for _, rank := range mine {
		if rank < 0 || rank >= len(far) || rank >= len(near) || near[rank].Rank() != rank || far[rank].Rank() != rank {
			return nil, fmt.Errorf("wire: worker %d has no two carriers to be split over", rank)
		}
		all[rank] = &split{Carrier: far[rank], near: near[rank], mine: mine}
	}
	return all, nil
}

// split is a worker's carrier. The embedded Carrier reaches workers of other processes, and has all methods that split
// does not define.
type split struct {
	Carrier
	near Carrier
	mine []int
}

// to returns the carrier to a worker.
func (c *split) to(rank int) Carrier {
	if slices.Contains(c.mine, rank) {
		return c.near
	}
	return c.Carrier
}

// of returns the carrier of an edge.
func (c *split) of(e Edge) Carrier {
	if e.From == c.Rank() {
		return c.to(e.To)
	}
	return c.to(e.From)
}

// Takes implements Carrier.
func (c *split) Takes(rank int, p Place) bool { return c.to(rank).Takes(rank, p) }

// HandsOver implements Carrier.
func (c *split) HandsOver(rank int) bool { return c.to(rank).HandsOver(rank) }

// Describe implements Carrier.
func (c *split) Describe(e Edge) string { return c.of(e).Describe(e) }

// Moved returns the sum over both carriers.
func (c *split) Moved() int64 { return c.near.Moved() + c.Carrier.Moved() }

func (c *split) Send(epoch uint32, e Edge, n uint32, frames []*Buffer, done func(error)) {
	c.of(e).Send(epoch, e, n, frames, done)
}

func (c *split) Recv(e Edge, n uint32, b *Buffer, done func(error)) { c.of(e).Recv(e, n, b, done) }

// Fail implements Carrier.
func (c *split) Fail(rank int, err error) { c.to(rank).Fail(rank, err) }

// Close closes both carriers.
func (c *split) Close() error { return errors.Join(c.near.Close(), c.Carrier.Close()) }
