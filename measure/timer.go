package measure

import (
	"context"
	"fmt"

	"github.com/millrace-ml/millrace/data"
	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/internal/stats"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/nn"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/profile/timing"
	"github.com/millrace-ml/millrace/run/place"
	"github.com/millrace-ml/millrace/stage"
	"github.com/millrace-ml/millrace/stage/optim"
	"github.com/millrace-ml/millrace/trace"
)

// Timer measures the cost of layers for package profile, with the code that trains. The whole model is one stage. Each
// worker is a locked thread with its own device, and all workers compute at once. A timed pass is the forward of one
// micro-batch and then the backward of the micro-batch before it, so that caches are as in training.
type Timer struct {
	engine    engine.Engine
	split     data.Split
	optimizer optim.Settings
	train     func(context.Context, Pipeline) (*trace.Timeline, error)
	place     *place.Policy
}

// Pipeline is a short training for a Timer. The model is cut into two stages with a worker each. The training uses
// plain gradient descent on micro-batches of one sample, with 1F1B, and records every step in full.
type Pipeline struct {
	Model               *model.Model
	Cut                 int // first layer of the second stage
	InAdvance           int // micro-batches that the first stage has in flight
	Samples             data.Split
	MicroBatches, Steps int
}

// pipeline trains a Pipeline, and returns an error if the training ended before its last step.
func (t *Timer) pipeline(ctx context.Context, p Pipeline) (*trace.Timeline, error) {
	tl, err := t.train(ctx, p)
	if err == nil && len(tl.Steps) < p.Steps {
		err = fmt.Errorf("measure: stopped: %w", context.Cause(ctx))
	}
	return tl, err
}

// NewTimer returns a Timer. The argument `split` gives the samples for timing layers, because the cost of an embedding
// depends on them. The function `train` trains Pipelines on workers of this host, with the code that trains for users.
// The argument `on` says which settings of the process may be changed.
func NewTimer(e engine.Engine, split data.Split, optimizer optim.Settings,
	train func(context.Context, Pipeline) (*trace.Timeline, error), on *place.Policy) (*Timer, error) {
	if e == nil || split == nil || train == nil {
		return nil, fmt.Errorf("measure: a timer needs an engine, data and what trains")
	}
	if err := optimizer.Check(); err != nil {
		return nil, fmt.Errorf("measure: %w", err)
	}
	return &Timer{engine: e, split: split, optimizer: optimizer, train: train, place: on}, nil
}

var _ timing.Timer = (*Timer)(nil)

// Engine returns the engine's name. Device returns its device type.
func (t *Timer) Engine() string { return t.engine.Name() }
func (t *Timer) Device() string { return t.engine.DeviceType() }

// clock is a stage.Watch that times every layer.
type clock struct {
	dev    engine.Device
	counts bool                      // the times of this pass are kept
	phases [stage.Phases][][]bracket // by phase and layer, one per pass
	again  [stage.Phases][][]bracket // phases of passes with recomputation
	feeds  []bracket                 // times of copying the model's inputs
	beside []besideLayers            // times of updates, each with the times of its layers
	timing bool                      // this pass does not count bytes
	visits int                       // number of visits to this size
	bytes  []layerBytes
	begun  engine.Event
	live   int64
	first  bool // no backward has run since the last update, so the next one allocates the parameters' gradients
}

// layerBytes holds byte counts of one layer from an allocator. `peaks` has, for each phase, the high-water mark above
// the live bytes at the phase's start. `firsts` has the same marks for phases that allocated the parameters' gradients.
type layerBytes struct {
	output, saved, pending int64
	inputLeaves            int64 // change of live bytes in an input half that allocates no parameter gradients
	peaks, firsts          [stage.Phases]int64
}

// restart discards the times and keeps the byte counts.
func (c *clock) restart(first bool) {
	c.counts, c.first = false, first
	c.feeds = nil
	c.visits++
	for p := range c.phases {
		clear(c.phases[p])
		clear(c.again[p])
	}
}

func newClock(dev engine.Device, layers int) *clock {
	c := &clock{dev: dev, bytes: make([]layerBytes, layers), first: true}
	for p := range c.phases {
		c.phases[p], c.again[p] = make([][]bracket, layers), make([][]bracket, layers)
	}
	return c
}

func (c *clock) Begin(p stage.Phase, layer int) {
	c.dev.ResetPeak()
	c.live = c.dev.Memory().LiveBytes
	c.begun = c.dev.Record()
}

func (c *clock) End(p stage.Phase, layer int, made nn.Bundle) {
	if c.counts {
		c.phases[p][layer] = append(c.phases[p][layer], bracket{c.begun, c.dev.Record()})
	}
	if c.timing {
		return
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

// Crew implements timing.Timer.
func (t *Timer) Crew(ctx context.Context, r timing.Request) (timing.Crew, error) {
	return t.hire(r)
}

// Layers implements timing.Crew.
func (c *crew) Layers(ctx context.Context, r timing.Request) ([]timing.LayerTiming, error) {
	err := c.work(ctx, func(b *bench) error { return b.visit(ctx, r, c.optimizer) }, (*bench).pass)
	if err != nil {
		return nil, err
	}
	out := make([]timing.LayerTiming, len(r.Model.Layers))
	for _, b := range c.benches {
		for l := range out {
			o := &out[l]
			forward, backward := seconds(b.clock.phases[stage.Forward][l]), seconds(b.clock.phases[stage.Backward][l])
			o.ForwardS = append(o.ForwardS, forward...)
			o.BackwardS = append(o.BackwardS, backward...)
			o.BackwardInputS = append(o.BackwardInputS, seconds(b.clock.phases[stage.InputHalf][l])...)
			o.BackwardWeightS = append(o.BackwardWeightS, seconds(b.clock.phases[stage.WeightHalf][l])...)
			o.WorkerS = append(o.WorkerS, stats.Median(forward)+stats.Median(backward))
			o.BareForwardS = append(o.BareForwardS, seconds(b.clock.again[stage.Pass][l])...)
			again := seconds(b.clock.again[stage.Forward][l])
			for i, s := range seconds(b.clock.again[stage.Backward][l]) {
				o.AgainS = append(o.AgainS, s+again[i])
			}
		}
	}
	for l, part := range feedParts(r.Model) {
		if part == 0 {
			continue
		}
		for _, b := range c.benches {
			for _, s := range seconds(b.clock.feeds) {
				out[l].FeedS = append(out[l].FeedS, part*s)
			}
		}
	}
	for l, b := range c.benches[0].clock.bytes {
		o := &out[l]
		o.OutputBytes, o.SavedBytes, o.PendingBytes = b.output, b.saved, b.pending
		o.ForwardPeakBytes, o.BackwardPeakBytes, o.FirstBackwardPeakBytes = b.peaks[stage.Forward], b.peaks[stage.Backward],
			b.firsts[stage.Backward]
		o.InputLeavesBytes = b.inputLeaves
		o.HalvesPeakBytes = profile.HalvesPeaks{
			Input: b.peaks[stage.InputHalf], FirstInput: b.firsts[stage.InputHalf],
			Weight: b.peaks[stage.WeightHalf], FirstWeight: b.firsts[stage.WeightHalf],
		}
	}
	return out, nil
}

// feedParts returns, for each layer, the fraction of the bytes of the model's inputs that this layer is the first to
// read.
func feedParts(m *model.Model) []float64 {
	parts, bytes, read := make([]float64, len(m.Layers)), 0.0, map[string]bool{}
	for l, layer := range m.Layers {
		for _, from := range layer.From {
			for _, t := range m.Inputs {
				if t.Name == from && !read[from] {
					read[from] = true
					parts[l] += float64(t.BytesPerSample())
					bytes += float64(t.BytesPerSample())
				}
			}
		}
	}
	for l := range parts {
		if bytes > 0 {
			parts[l] /= bytes
		}
	}
	return parts
}

// besideLayers holds the times of a whole update, and of each layer's part of it.
type besideLayers struct {
	whole  bracket
	layers []bracket
}

// seconds returns how much longer the update took than its parts together.
func (u besideLayers) seconds() float64 {
	rest := seconds([]bracket{u.whole})[0]
	for _, s := range seconds(u.layers) {
		rest -= s
	}
	return rest
}

// updated returns how many updates of each layer have been counted.
func (c *clock) updated() []int {
	n := make([]int, len(c.phases[stage.Update]))
	for l, all := range c.phases[stage.Update] {
		n[l] = len(all)
	}
	return n
}

// Updates implements timing.Timer. An update takes longer than the steps of its layers, for instance because it goes
// over the gradients. The excess is divided evenly among the layers with parameters.
func (t *Timer) Updates(ctx context.Context, r timing.Request) (all []profile.UpdateTimes, optimizer string,
	states int, err error) {
	all = make([]profile.UpdateTimes, len(r.Model.Layers))
	if err := t.plain(ctx, r, all); err != nil {
		return nil, "", 0, err
	}
	if err := t.averaging(ctx, r, all); err != nil {
		return nil, "", 0, fmt.Errorf("of pipelines held together: %w", err)
	}
	return all, t.optimizer.Kind, len(t.optimizer.States()), nil
}

// plain adds the times of the optimizer's steps.
func (t *Timer) plain(ctx context.Context, r timing.Request, times []profile.UpdateTimes) error {
	step := func(b *bench) error {
		id, err := b.forward()
		if err != nil {
			return err
		}
		if err := b.backward(id); err != nil {
			return err
		}
		begun, before := b.dev.Record(), b.clock.updated()
		err = b.update(t.optimizer)
		if b.clock.counts {
			u := besideLayers{whole: bracket{begun, b.dev.Record()}}
			for l, n := range before {
				u.layers = append(u.layers, b.clock.phases[stage.Update][l][n:]...)
			}
			b.clock.beside = append(b.clock.beside, u)
		}
		return err
	}
	c, err := t.hire(r)
	if err != nil {
		return err
	}
	defer c.Close()
	err = c.work(ctx, func(b *bench) error {
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
		return err
	}
	var beside []float64
	with := 0 // number of layers with parameters
	for _, b := range c.benches {
		for _, u := range b.clock.beside {
			beside = append(beside, u.seconds())
		}
	}
	for _, s := range c.benches[0].clock.phases[stage.Update] {
		if len(s) > 0 {
			with++
		}
	}
	for l := range times {
		var all []float64
		for _, b := range c.benches {
			all = append(all, seconds(b.clock.phases[stage.Update][l])...)
		}
		if len(all) > 0 {
			times[l].UpdateS = stats.Median(all) + max(0, stats.Median(beside))/float64(with)
		}
	}
	return nil
}
