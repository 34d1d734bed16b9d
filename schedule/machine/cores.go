package machine

import (
	"fmt"
	"slices"
)

// Pools say which workers share processors. A worker in no pool has its own processor.
type Pools []Pool

// Pool is a set of workers that share this many processors.
type Pool struct {
	Cores   int
	Workers []int // nil means all workers of a Process
}

// Share returns one pool for all workers of a Process, or no pool if cores is 0.
func Share(cores int) Pools {
	if cores == 0 {
		return nil
	}
	return Pools{{Cores: cores}}
}

// Scarce returns the pools in which a worker may have to wait: those with fewer cores than workers. `workers` is the
// total number of workers.
func (p Pools) Scarce(workers int) Pools {
	return slices.DeleteFunc(slices.Clone(p), func(q Pool) bool {
		if q.Workers == nil {
			return q.Cores >= workers
		}
		return q.Cores >= len(q.Workers)
	})
}

// Tokens returns the number of processors in all pools.
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

// CorePool hands out the processors that workers share. Workers are served in order of arrival.
type CorePool struct {
	free  []int    // processors, in the order in which they became free
	queue []int    // workers that wait for a processor
	by    []tenure // by worker, for the workers that have joined so far
}

// tenure says whether a worker has a token. `processor` is the processor of the worker's last token.
type tenure struct {
	holds, held bool // whether the worker has a token now, and whether it ever had one
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

// Join puts a worker in the queue, or gives it a token at once if a processor is free.
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

// Return takes a worker's token back. It passes the token to the first worker in the queue, if any, and returns that
// worker with its processor.
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

// Leave removes a worker from the queue.
func (c *CorePool) Leave(worker int) {
	if at := slices.Index(c.queue, worker); at >= 0 {
		c.queue = slices.Delete(c.queue, at, at+1)
	}
}

// give gives a worker a token for a processor. It prefers the processor that the worker had last. If that one is not
// free, it chooses the processor that has been free longest.
func (c *CorePool) give(worker int) (processor int) {
	at, t := 0, &c.by[worker]
	if t.held {
		at = max(0, slices.Index(c.free, t.processor))
	}
	*t = tenure{holds: true, held: true, processor: c.free[at]}
	c.free = slices.Delete(c.free, at, at+1)
	return t.processor
}
