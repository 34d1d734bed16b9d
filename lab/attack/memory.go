package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
)

// Limits of the address space of a training, in bytes. Under the least limit, the program cannot even start; under the
// largest, a training succeeds.
const (
	leastAddress = 400 << 20
	mostAddress  = 3600 << 20
)

// attackMemory runs trainings under limits of the address space, some of which are too small.
func attackMemory(ctx context.Context, a *attack, want int) (*tally, error) {
	t := &tally{want: want}
	var passed, aborted atomic.Int64
	err := a.each(ctx, want, func(i int) error {
		r := seeded(a.seed+4, uint64(i))
		part := (float64(i) + r.Float64()) / float64(want) // a random point in one of `want` equal parts
		c := command{limits: usual}
		c.limits.address = leastAddress + int64(part*(mostAddress-leastAddress))
		f, e, err := a.starve(ctx, i, c)
		if err != nil {
			return fmt.Errorf("memory %d: %w", i, err)
		}
		t.add(f)
		if e.code == 0 {
			passed.Add(1)
		} else if dumps.Match(e.err) {
			aborted.Add(1)
		}
		return nil
	})
	// If memory runs out, Go's runtime ends the process; millrace cannot prevent this.
	t.say("%d had enough, %d of the others were ended by Go's runtime", passed.Load(), aborted.Load())
	return t, err
}

func (a *attack) starve(ctx context.Context, number int, c command) (f *finding, e *ended, err error) {
	c.dir, err = os.MkdirTemp(a.scratch, "memory-")
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(c.dir)) }()
	c.home = c.dir
	c.args = a.trainArgs("--model mlp --data digits @P --schedule 1f1b --steps 8 --save-every 2", "")
	if e, err = a.run(ctx, c); err != nil {
		return nil, nil, err
	}
	name := fmt.Sprintf("memory %d, %d bytes of address space", number, c.limits.address)
	if f = a.found(name, c, e, e.starved(c.limits)); f != nil {
		err = a.keepFolder(f, c.dir)
		f.repeat = fmt.Sprintf("(ulimit -v %d; %s)", c.limits.address>>10, f.repeat)
	}
	return f, e, err
}

// noMemory matches what Go's runtime prints when it ends a process that gets no more memory or threads.
var noMemory = regexp.MustCompile(`(?m)^fatal error: .*(memory|newosproc|mmap|map pages|OS thread)` +
	`|^runtime: (out of memory|failed to create new OS thread)|^runtime/cgo: pthread_create failed`)

// starved returns the faults of a command that may have had too little memory. A crash is no fault if Go's runtime
// names memory as the cause.
func (e *ended) starved(l limits) []string {
	wrong := e.faults(l)
	if noMemory.Match(e.err) {
		wrong = slices.DeleteFunc(wrong, func(w string) bool { return strings.HasPrefix(w, crashed) })
	}
	return wrong
}
