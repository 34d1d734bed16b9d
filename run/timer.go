package run

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace-ml/millrace/data"
	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/nn"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/run/optim"
	"github.com/millrace-ml/millrace/run/stage"
)

// Timer measures what layers cost, for package profile, on the code that trains: the
// whole model as one stage, each worker a locked thread with a device of its own, all of
// them computing at once. Passes go over all layers, forward and then backward with
// another micro-batch in flight, so that caches are as they will be.
type Timer struct {
	engine    engine.Engine
	split     data.Split
	optimizer optim.Settings
}

// NewTimer makes a Timer. split gives the samples that layers are timed on, because what
// an embedding costs depends on them.
func NewTimer(e engine.Engine, split data.Split, optimizer optim.Settings) (*Timer, error) {
	if e == nil || split == nil {
		return nil, fmt.Errorf("run: a timer needs an engine and data")
	}
	if err := optimizer.Check(); err != nil {
		return nil, fmt.Errorf("run: %w", err)
	}
	return &Timer{engine: e, split: split, optimizer: optimizer}, nil
}

var _ profile.Timer = (*Timer)(nil)

// Engine names what computes, Device the type it computes on.
func (t *Timer) Engine() string { return t.engine.Name() }
func (t *Timer) Device() string { return "cpu" }

// clock is a stage.Watch that times every layer.
type clock struct {
	dev    engine.Device
	counts bool                      // passes count now
	phases [stage.Phases][][]float64 // seconds by layer, one for each pass
	bytes  []layerBytes
	begun  time.Time
	live   int64
	first  bool // no backward since the last update: the next one makes the parameters' gradients
}

// layerBytes is what an allocator has counted of one layer. peaks are the high-water marks of each phase
// above what was live as it began, firsts those of phases that made the parameters' gradients.
type layerBytes struct {
	output, saved, pending int64
	inputLeaves            int64 // by how much an input's half that makes no gradients of parameters changes what is live
	peaks, firsts          [stage.Phases]int64
}

func newClock(dev engine.Device, layers int) *clock {
	c := &clock{dev: dev, bytes: make([]layerBytes, layers), first: true}
	for p := range c.phases {
		c.phases[p] = make([][]float64, layers)
	}
	return c
}

func (c *clock) Begin(p stage.Phase, layer int) {
	c.dev.ResetPeak()
	c.live = c.dev.Memory().LiveBytes
	c.begun = time.Now()
}

func (c *clock) End(p stage.Phase, layer int, made nn.Bundle) {
	took := time.Since(c.begun).Seconds()
	if c.counts {
		c.phases[p][layer] = append(c.phases[p][layer], took)
	}
	m, b := c.dev.Memory(), &c.bytes[layer]
	most := &b.peaks
	if c.first && p != stage.Forward {
		most = &b.firsts
	}
	most[p] = max(most[p], m.PeakBytes-c.live)
	switch {
	case p == stage.Forward:
		b.saved, b.output = m.LiveBytes-c.live, 0
		for _, n := range made {
			b.output += n.Tensor.Bytes()
		}
	case p == stage.InputHalf && !c.first:
		b.inputLeaves = m.LiveBytes - c.live
	case p == stage.WeightHalf && !c.first:
		b.pending = c.live - m.LiveBytes
	}
}

// bench is one worker of a measurement.
type bench struct {
	rank  int
	dev   engine.Device
	stage *stage.Stage
	clock *clock
	split data.Split
	float engine.DType
	rows  int
	next  int // micro-batch

	reference *stage.Stage // of elastic averaging, where that is timed
}

// crew runs f on as many locked threads as r says workers compute at once, each with the
// whole model on a device of its own, and waits for all of them. A worker that
// is done keeps computing by `idle` until the last is, so that all are timed under the same load.
func (t *Timer) crew(ctx context.Context, r profile.Request, f func(*bench) error, idle func(*bench) error) ([]*clock, error) {
	graph, err := stage.NewGraph(r.Model)
	if err != nil {
		return nil, err
	}
	layers, err := nn.Build(r.Model)
	if err != nil {
		return nil, err
	}
	n := max(r.Concurrency, 1)
	defer enter(n)()
	clocks, errs := make([]*clock, n), make([]error, n)
	var busy atomic.Int32
	busy.Store(int32(n))
	ready, wg := newGathering(n), sync.WaitGroup{}
	seats, leave, _ := BindAlone.take(newSeats(allowedCores(), n, 0, r.Threads))
	defer leave()
	for k := range n {
		wg.Go(func() {
			becomeWorker()
			seats.settle(k)
			errs[k] = guarded(func() error {
				dev, err := t.engine.Open(k, max(r.Threads, 1))
				if err != nil {
					busy.Add(-1)
					ready.leave()
					return err
				}
				defer dev.Close()
				b := &bench{rank: k, dev: dev, clock: newClock(dev, len(r.Model.Layers)), split: t.split, float: t.engine.Float(), rows: r.MicroBatch}
				clocks[k] = b.clock
				b.stage, err = stage.New(stage.Config{
					Device: dev, Float: b.float, Graph: graph, Last: len(layers) - 1, Layers: layers, Seed: 1,
					States: t.optimizer.States(), Watch: b.clock,
				})
				ready.meet()
				if err == nil {
					defer b.close()
					err = f(b)
				}
				busy.Add(-1)
				b.clock.counts = false
				for err == nil && busy.Load() > 0 && ctx.Err() == nil {
					err = idle(b)
				}
				return err
			})
		})
	}
	wg.Wait()
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("run: measuring: %w", context.Cause(ctx))
	}
	return clocks, errors.Join(errs...)
}

func (b *bench) close() {
	b.stage.Close()
	if b.reference != nil {
		b.reference.Close()
	}
}

// forward passes another micro-batch through all layers.
func (b *bench) forward() (id int, err error) {
	given := stage.Tensors{}
	batch, err := b.split.Batch(b.next, b.rows, 0, b.rows)
	if err != nil {
		return 0, err
	}
	for _, v := range b.stage.Feeds() {
		array := batch.Input
		if b.stage.Graph.Name(v) == "target" {
			array = batch.Target
		}
		if given[v], err = tensorOf(b.dev, b.float, array); err != nil {
			given.Free()
			return 0, err
		}
	}
	id = b.next
	b.next++
	_, _, err = b.stage.Forward(stage.Micro{ID: id, Step: id, Rows: b.rows, Version: b.stage.Version()}, given)
	return id, err
}

// pass is a forward of one micro-batch and a backward of the one before.
func (b *bench) pass() error {
	id, err := b.forward()
	if err != nil || id == 0 {
		return err
	}
	return b.backward(id - 1)
}

// backward goes back through all layers.
func (b *bench) backward(id int) error {
	_, err := b.stage.Backward(id, nil, 1)
	b.clock.first = false
	return err
}

// passInHalves is a pass whose backward comes in two halves, one right after the other.
func (b *bench) passInHalves() error {
	id, err := b.forward()
	if err != nil {
		return err
	}
	if _, err = b.stage.BackwardInput(id-1, nil, 1); err != nil {
		return err
	}
	err = b.stage.BackwardWeight(id - 1)
	b.clock.first = false
	return err
}

// update steps the optimizer, which leaves no gradients. No micro-batch may be under way.
func (b *bench) update(by optim.Settings) error {
	err := b.stage.Update(by, optim.Step{Count: b.next, Rate: 1e-6, GradScale: 1}, stage.Replace)
	b.clock.first = true
	return err
}

// passes goes over the model n times, and on until it has taken that many seconds: a small
// model's first hundred passes find code and caches cold, as training soon does not.
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

// Layers implements profile.Timer.
func (t *Timer) Layers(ctx context.Context, r profile.Request) ([]profile.LayerTiming, error) {
	clocks, err := t.crew(ctx, r, func(b *bench) error {
		// The first pass has no backward, and the second's makes the gradients.
		if err := b.passes(ctx, b.pass, r.Warmup+2, r.AtLeastS/2); err != nil {
			return err
		}
		b.clock.counts = true
		if err := b.passes(ctx, b.pass, r.Passes, r.AtLeastS); err != nil {
			return err
		}
		// The first pass in halves makes the gradients, and finds no memory of the sizes that halves ask for.
		b.clock.counts = false
		if err := b.backward(b.next - 1); err != nil {
			return err
		}
		if err := b.update(t.optimizer); err != nil {
			return err
		}
		if _, err := b.forward(); err != nil {
			return err
		}
		if err := b.passes(ctx, b.passInHalves, 1, r.AtLeastS/4); err != nil {
			return err
		}
		b.clock.counts = true
		return b.passes(ctx, b.passInHalves, max(r.Passes/2, 1), r.AtLeastS/2)
	}, (*bench).pass)
	if err != nil {
		return nil, err
	}
	out := make([]profile.LayerTiming, len(r.Model.Layers))
	for _, c := range clocks {
		for l := range out {
			o := &out[l]
			o.ForwardS = append(o.ForwardS, c.phases[stage.Forward][l]...)
			o.BackwardS = append(o.BackwardS, c.phases[stage.Backward][l]...)
			o.BackwardInputS = append(o.BackwardInputS, c.phases[stage.InputHalf][l]...)
			o.BackwardWeightS = append(o.BackwardWeightS, c.phases[stage.WeightHalf][l]...)
		}
	}
	for l, b := range clocks[0].bytes {
		o := &out[l]
		o.OutputBytes, o.SavedBytes, o.PendingBytes = b.output, b.saved, b.pending
		o.ForwardPeakBytes, o.BackwardPeakBytes, o.FirstBackwardPeakBytes = b.peaks[stage.Forward], b.peaks[stage.Backward], b.firsts[stage.Backward]
		o.InputLeavesBytes = b.inputLeaves
		o.HalvesPeakBytes = profile.HalvesPeaks{
			Input: b.peaks[stage.InputHalf], FirstInput: b.firsts[stage.InputHalf],
			Weight: b.peaks[stage.WeightHalf], FirstWeight: b.firsts[stage.WeightHalf],
		}
	}
	return out, nil
}

// Updates implements profile.Timer.
func (t *Timer) Updates(ctx context.Context, r profile.Request) (updateS []float64, optimizer string, states int, err error) {
	step := func(b *bench) error {
		id, err := b.forward()
		if err != nil {
			return err
		}
		if err := b.backward(id); err != nil {
			return err
		}
		return b.update(t.optimizer)
	}
	clocks, err := t.crew(ctx, r, func(b *bench) error {
		for i := range r.Warmup + r.Passes {
			if err := ctx.Err(); err != nil {
				return err
			}
			b.clock.counts = i >= r.Warmup
			if err := step(b); err != nil {
				return err
			}
		}
		return nil
	}, step)
	if err != nil {
		return nil, "", 0, err
	}
	updateS = make([]float64, len(r.Model.Layers))
	for l := range updateS {
		var all []float64
		for _, c := range clocks {
			all = append(all, c.phases[stage.Update][l]...)
		}
		updateS[l] = middle(all)
	}
	return updateS, t.optimizer.Kind, len(t.optimizer.States()), nil
}

// middle is the median, 0 of nothing.
func middle(xs []float64) float64 {
	if len(xs) == 0 {
		return 0
	}
	xs = slices.Clone(xs)
	slices.Sort(xs)
	return (xs[(len(xs)-1)/2] + xs[len(xs)/2]) / 2
}

// gathering lets workers begin together.
type gathering struct {
	left atomic.Int32
	all  chan struct{}
}

func newGathering(n int) *gathering {
	g := &gathering{all: make(chan struct{})}
	g.left.Store(int32(n))
	return g
}

func (g *gathering) leave() {
	if g.left.Add(-1) == 0 {
		close(g.all)
	}
}

func (g *gathering) meet() {
	g.leave()
	<-g.all
}
