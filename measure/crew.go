package measure

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace-ml/millrace/data"
	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/internal/crash"
	"github.com/millrace-ml/millrace/nn"
	"github.com/millrace-ml/millrace/profile/timing"
	"github.com/millrace-ml/millrace/stage"
	"github.com/millrace-ml/millrace/stage/optim"
	"github.com/millrace-ml/millrace/stage/update"
)

// crew is a group of measuring workers: locked threads, each with the whole model on its own device. The workers stay
// between tasks, because making a model and allocating memory takes longer than a pass over it.
type crew struct {
	benches []*bench
	orders  []chan func(*bench) error
	busy    atomic.Int32 // workers that have not finished the current task
	done    sync.WaitGroup
	gone    sync.WaitGroup
	errs    []error
	leave   func()

	optimizer optim.Settings
}

// hire starts r.Concurrency workers, at least one. The caller must call Close.
func (t *Timer) hire(r timing.Request) (*crew, error) {
	graph, err := stage.NewGraph(r.Model)
	if err != nil {
		return nil, err
	}
	layers, err := nn.Build(r.Model)
	if err != nil {
		return nil, err
	}
	n := max(r.Concurrency, 1)
	on, err := t.place.Take(n, 0, r.Threads)
	if err != nil {
		return nil, err
	}
	c := &crew{benches: make([]*bench, n), orders: make([]chan func(*bench) error, n), errs: make([]error, n),
		leave: on.Leave, optimizer: t.optimizer}
	for k := range n {
		c.orders[k] = make(chan func(*bench) error)
		c.done.Add(1)
		c.gone.Go(crash.Caught(func() {
			on.Settle(k)
			b := &bench{rank: k, split: t.split, float: t.engine.Float(), rows: r.MicroBatch, waiting: noMicro,
				sizes: map[int]*clock{}}
			c.benches[k] = b
			defer b.close()
			c.errs[k] = crash.Guard(func() (err error) {
				if b.dev, err = t.engine.Open(k, max(r.Threads, 1)); err != nil {
					return err
				}
				b.clock = newClock(b.dev, len(layers))
				b.stage, err = stage.New(stage.Config{
					Device: b.dev, Float: b.float, Graph: graph, Last: len(layers) - 1, Layers: layers, Seed: 1,
					States: t.optimizer.States(), Watch: b.clock,
				})
				return err
			})
			c.done.Done()
			for f := range c.orders[k] {
				c.errs[k] = crash.Guard(func() error { return f(b) })
				c.done.Done()
			}
		}))
	}
	c.done.Wait()
	if err := cmp.Or(c.errs...); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// work makes every worker run f and waits for all of them. A worker that has finished repeats `idle` until the last
// worker has finished, so that all are timed under the same load.
func (c *crew) work(ctx context.Context, f, idle func(*bench) error) error {
	c.busy.Store(int32(len(c.benches)))
	c.done.Add(len(c.benches))
	for _, order := range c.orders {
		order <- func(b *bench) error {
			err := crash.Guard(func() error { return f(b) })
			c.busy.Add(-1)
			b.clock.counts = false
			for err == nil && c.busy.Load() > 0 && ctx.Err() == nil {
				err = idle(b)
			}
			return err
		}
	}
	c.done.Wait()
	if ctx.Err() != nil {
		return fmt.Errorf("measure: measuring: %w", context.Cause(ctx))
	}
	return cmp.Or(c.errs...) // one error is enough, because all workers run the same
}

// Close ends the workers.
func (c *crew) Close() {
	for _, order := range c.orders {
		close(order)
	}
	c.gone.Wait()
	c.leave()
}

// bench is one worker of a measurement.
type bench struct {
	rank    int
	dev     engine.Device
	stage   *stage.Stage
	clock   *clock
	split   data.Split
	float   engine.DType
	rows    int
	next    int            // number of the next micro-batch
	waiting int            // micro-batch after its forward and before its backward, or noMicro
	sizes   map[int]*clock // clocks of earlier visits, by micro-batch size

	reference *stage.Stage // reference of elastic averaging, if that is timed
	averaged  []update.Updater
}

const noMicro = -1

// aStep is an update that takes as long as usual but changes almost nothing.
var aStep = update.Step{Step: optim.Step{Rate: 1e-6, GradScale: 1}, Renewal: stage.Replace}

func (b *bench) close() {
	for _, u := range b.averaged {
		u.Close()
	}
	for _, s := range []*stage.Stage{b.stage, b.reference} {
		if s != nil {
			s.Close()
		}
	}
	if b.dev != nil {
		b.dev.Close()
	}
}

// forward runs the next micro-batch through all layers.
func (b *bench) forward() (id int, err error) {
	given := stage.Tensors{}
	batch, err := b.split.Batch(b.next, b.rows, 0, b.rows)
	if err != nil {
		return 0, err
	}
	begun := b.dev.Record()
	for _, v := range b.stage.Feeds() {
		if given[v], err = stage.TensorOf(b.dev, b.float, batch, b.stage.Graph.Name(v)); err != nil {
			given.Free()
			return 0, err
		}
	}
	if b.clock.counts && !b.clock.timing {
		b.clock.feeds = append(b.clock.feeds, bracket{begun, b.dev.Record()})
	}
	id = b.next
	b.next++
	_, loss, err := b.stage.Forward(stage.Micro{ID: id, Step: id, Rows: b.rows, Version: b.stage.Versions.Newest()}, given)
	if err == nil {
		loss.Free()
	}
	return id, err
}

// backward runs a micro-batch's backward through all layers.
func (b *bench) backward(id int) error {
	_, err := b.stage.Backward(id, nil, 1)
	b.clock.first = false
	return err
}

// halves runs the backward of a micro-batch in two halves, one right after the other.
func (b *bench) halves(id int) error {
	if _, err := b.stage.BackwardInput(id, nil, 1); err != nil {
		return err
	}
	err := b.stage.BackwardWeight(id)
	b.clock.first = false
	return err
}

// drain calls `back` to run the backward of the waiting micro-batch, if there is one.
func (b *bench) drain(back func(id int) error) error {
	id := b.waiting
	if b.waiting = noMicro; id == noMicro {
		return nil
	}
	return back(id)
}

// through runs the forward of one micro-batch, which then waits. If another micro-batch was waiting before, through
// also calls `back` to run the backward of that one.
func (b *bench) through(back func(id int) error) error {
	id, err := b.forward()
	if err != nil {
		return err
	}
	before := b.waiting
	if b.waiting = id; before == noMicro {
		return nil
	}
	return back(before)
}

func (b *bench) pass() error         { return b.through(b.backward) }
func (b *bench) passInHalves() error { return b.through(b.halves) }

// update makes an optimizer step, after which there are no gradients. No micro-batch may be in flight.
func (b *bench) update(by optim.Settings) error {
	plainly, err := update.New(update.Plain, update.Config{Optimizer: by}, []*stage.Stage{b.stage})
	if err == nil {
		err = plainly[0].Update(aStep)
	}
	b.clock.first = true
	return err
}

// passes makes at least n passes over the model, and goes on until the given number of seconds has passed. The seconds
// matter for a small model: its first hundred passes run with cold code and caches, unlike training.
func (b *bench) passes(ctx context.Context, pass func() error, n int, seconds float64) error {
	begun := time.Now()
	for i := 0; i < n || time.Since(begun).Seconds() < seconds; i++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := pass(); err != nil {
			return err
		}
	}
	return nil
}

// visit times passes over micro-batches of r.MicroBatch samples, and records the times in b.clock. The first visit to a
// size also allocates the memory that later visits reuse. All visits to a size share their byte counts.
func (b *bench) visit(ctx context.Context, r timing.Request, by optim.Settings) error {
	if err := b.drain(b.backward); err != nil {
		return err
	}
	old, known := b.sizes[r.MicroBatch]
	if !known {
		if err := b.update(by); err != nil {
			return err
		}
		old = newClock(b.dev, len(r.Model.Layers))
		b.sizes[r.MicroBatch] = old
	}
	old.restart(b.clock.first)
	b.rows, b.clock, b.stage.Watch = r.MicroBatch, old, old

	// The first pass of a visit has no backward. The second pass with a new size allocates the gradients.
	uncounted := r.Warmup + 1
	if !known {
		uncounted++
	}
	if err := b.passes(ctx, b.pass, uncounted, r.AtLeastS/2); err != nil {
		return err
	}
	b.clock.counts = true
	begun, before := time.Now(), b.next
	if err := b.passes(ctx, b.pass, r.Passes, r.AtLeastS); err != nil {
		return err
	}
	// long says that a pass takes, on average, longer than r.AtLeastS, which is the least time for all passes together.
	long := time.Since(begun).Seconds() > r.AtLeastS*float64(b.next-before)
	if !known {
		// These passes in halves are not counted. The first of them allocates the gradients, and memory of sizes that
		// are new to the allocator.
		b.clock.counts = false
		if err := b.drain(b.backward); err != nil {
			return err
		}
		if err := b.update(by); err != nil {
			return err
		}
		if err := b.passes(ctx, b.passInHalves, 2, r.AtLeastS/4); err != nil {
			return err
		}
		b.clock.counts = true
	}
	// After these passes, drain runs the backward of the waiting micro-batch in halves too. If passes are long and
	// r.Passes is less than 4, this is the only timed backward in halves.
	if n := max(r.Passes/2, 1) - 1; n > 0 || !long {
		if err := b.passes(ctx, b.passInHalves, n, r.AtLeastS/2); err != nil {
			return err
		}
	}
	if err := b.drain(b.halves); err != nil || !r.Again || long && b.clock.visits != againVisit {
		return err
	}
	return b.computeAgain(ctx, long, max(r.Passes/2, 1), r.AtLeastS/2)
}

// againVisit is the number of a visit, counted from 1. If passes are long, only this visit also times recomputation.
// Timing recomputation in every visit would lengthen such a measurement by a third.
const againVisit = 2

// computeAgain times at least n passes with full recomputation. No micro-batch is in flight before or after. The first
// pass is not counted, unless passes are long.
func (b *bench) computeAgain(ctx context.Context, long bool, n int, seconds float64) error {
	b.clock.counts = false
	b.clock.timing, b.stage.Segment = true, b.stage.Last+1
	b.clock.phases, b.clock.again = b.clock.again, b.clock.phases
	defer func() {
		b.clock.timing, b.stage.Segment, b.clock.counts = false, 0, false
		b.clock.phases, b.clock.again = b.clock.again, b.clock.phases
	}()
	begun := time.Now()
	again := func() error {
		id, err := b.forward()
		if err == nil {
			err = b.backward(id)
		}
		return err
	}
	if !long {
		if err := again(); err != nil {
			return err
		}
	}
	b.clock.counts = true
	return b.passes(ctx, again, n, seconds-time.Since(begun).Seconds())
}
