package machine

import (
	"fmt"
	"slices"
)

// Pools say which workers share processors. A worker that is in none has a processor of its own.
type Pools []Pool

// Pool is workers that share so many processors.
type Pool struct {
	Cores   int
	Workers []int // nil: all that a Process has
}

// Share is one pool for all workers of a Process; 0 is none.
func Share(cores int) Pools {
	if cores == 0 {
		return nil
	}
	return Pools{{Cores: cores}}
}

// Scarce is the pools in which some of so many workers in all ever wait: those with fewer cores than workers.
func (p Pools) Scarce(workers int) Pools {
	return slices.DeleteFunc(slices.Clone(p), func(q Pool) bool {
		if q.Workers == nil {
			return q.Cores >= workers
		}
		return q.Cores >= len(q.Workers)
	})
}

// Tokens is how many processors there are in all pools.
func (p Pools) Tokens() int {
	n := 0
	for _, q := range p {
		n += q.Cores
	}
	return n
}

func (p Pools) check() error {
	for _, q := range p {
		if q.Cores < 1 {
			return fmt.Errorf("machine: a pool of %d cores; give 1 or more, or leave it out for a core of each worker's own",
				q.Cores)
		}
	}
	return nil
}

// CorePool hands out the processors that workers share, first come first served.
type CorePool struct {
	free  []int    // processors, in the order in which they became free
	queue []int    // workers that stand for one
	by    []tenure // by worker, as far as one has joined
}

// tenure is a worker's token, if it holds one, and what its last one named.
type tenure struct {
	holds, held bool // now; ever
	processor   int
}

// NewCorePool makes a pool of the processors 0 to cores-1.
func NewCorePool(cores int) *CorePool {
	if cores < 1 {
		panic(fmt.Sprintf("machine: a pool of %d cores; give 1 or more", cores))
	}
	c := &CorePool{}
	for processor := range cores {
		c.free = append(c.free, processor)
	}
	return c
}

// Join has a worker stand in the queue, or gives it a token at once where a processor is free.
func (c *CorePool) Join(worker int) (processor int, now bool) {
	for worker >= len(c.by) {
		c.by = append(c.by, tenure{})
	}
	if c.by[worker].holds || slices.Contains(c.queue, worker) {
		panic(fmt.Sprintf("machine: worker %d joins a queue for cores that it is in already", worker))
	}
	if len(c.free) == 0 {
		c.queue = append(c.queue, worker)
		return 0, false
	}
	return c.give(worker), true
}

// Return takes a worker's token back, and says which worker has it now, if one stood in the queue.
func (c *CorePool) Return(worker int) (next, processor int, passed bool) {
	if worker >= len(c.by) || !c.by[worker].holds {
		panic(fmt.Sprintf("machine: worker %d returns a core that it does not have", worker))
	}
	c.by[worker].holds = false
	c.free = append(c.free, c.by[worker].processor)
	if len(c.queue) == 0 {
		return 0, 0, false
	}
	next = c.queue[0]
	c.queue = slices.Delete(c.queue, 0, 1)
	return next, c.give(next), true
}

// Leave has a worker stand no longer.
func (c *CorePool) Leave(worker int) {
	if at := slices.Index(c.queue, worker); at >= 0 {
		c.queue = slices.Delete(c.queue, at, at+1)
	}
}

// give gives a worker a token: its last processor if that is free, or the one that has been free for longest.
func (c *CorePool) give(worker int) (processor int) {
	at, t := 0, &c.by[worker]
	if t.held {
		at = max(0, slices.Index(c.free, t.processor))
	}
	*t = tenure{holds: true, held: true, processor: c.free[at]}
	c.free = slices.Delete(c.free, at, at+1)
	return t.processor
}
