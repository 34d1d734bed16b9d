package machine

import "fmt"

// Barrier counts workers at a drain and releases the drain when all have reached it. In a run of several processes,
// only the leader has a Barrier, which needs no more than the counts.
type Barrier struct {
	workers int
	drain   int // the next drain to release
	here    int // workers that have reached that drain
}

// NewBarrier makes a barrier for this many workers.
func NewBarrier(workers int) *Barrier { return &Barrier{workers: workers} }

// Reach adds workers that have reached a drain, and reports whether that releases the drain. Drains of a Program count
// from 0.
func (b *Barrier) Reach(drain, workers int) (released bool, err error) {
	switch {
	case drain != b.drain:
		return false, fmt.Errorf("machine: %d workers are at drain %d; the next one is drain %d", workers, drain,
			b.drain)
	case workers < 1 || b.here+workers > b.workers:
		return false, fmt.Errorf("machine: %d workers have come to drain %d, beside %d of %d", workers, drain,
			b.here, b.workers)
	}
	if b.here += workers; b.here < b.workers {
		return false, nil
	}
	b.drain, b.here = b.drain+1, 0
	return true, nil
}
