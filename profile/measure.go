package profile

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/millrace-ml/millrace/internal/stats"
	"github.com/millrace-ml/millrace/model"
)

// LayerTiming is what a Timer measured of one layer at one micro-batch size, each time
// once for every pass.
type LayerTiming struct {
	ForwardS, BackwardS []float64
	// BackwardInputS and BackwardWeightS are empty where the layer has no such half.
	BackwardInputS, BackwardWeightS     []float64
	BareForwardS, AgainS                []float64 // see Cost; empty where nobody asked
	FeedS                               []float64 // empty of a layer that is the first to read no model input
	WorkerS                             []float64 // by worker, the middle forward and the middle backward together
	OutputBytes, SavedBytes             int64
	ForwardPeakBytes, BackwardPeakBytes int64
	FirstBackwardPeakBytes              int64 // of the backward that makes the parameters' gradients
	PendingBytes                        int64 // 0 where there are no halves
	// InputLeavesBytes is what is live behind the input's half of a backward less what was before it.
	InputLeavesBytes int64
	HalvesPeakBytes  HalvesPeaks
}

// Request is one measurement: the whole model at one micro-batch size.
type Request struct {
	Model       *model.Model
	MicroBatch  int     // samples
	Warmup      int     // passes not counted, beside those that fill the machine
	Passes      int     // passes counted, at least
	AtLeastS    float64 // passes go on, the ones not counted for half as long, until they have taken this
	Again       bool    // passes that keep nothing and compute layers again are timed too
	Concurrency int     // workers that run the same passes at once
	Threads     int     // per worker
}

// Timer measures. run implements it on the code that trains, so that what is timed
// is what will run.
type Timer interface {
	// Crew opens the workers that time the layers of r.Model; r.MicroBatch is what they begin with.
	Crew(ctx context.Context, r Request) (Crew, error)
	// Updates is the times of one update of each layer's parameters: medians,
	// with the optimizer's name and how many copies of the parameters it keeps.
	Updates(ctx context.Context, r Request) (all []UpdateTimes, optimizer string, states int, err error)
	// Transfer measures the wire between workers of this process, and what instructions take beside layers.
	Transfer(ctx context.Context, workers int) (*Transfer, error)
	// Engine and Device name what was measured: "torch 1.13.1", "cpu".
	Engine() string
	Device() string
}

// Crew is the workers of a measurement, who stay for all its visits.
type Crew interface {
	// Layers is one visit to one micro-batch size: it times every layer of the model that the crew
	// was opened for, in passes over the whole model.
	Layers(ctx context.Context, r Request) ([]LayerTiming, error)
	Close()
}

// Options of Measure. Zero values take the defaults in brackets.
type Options struct {
	MicroBatches []int // [1 2 4 8]
	Warmup       int   // of updates [1]; layers are warm when what fills the machine is through
	// Passes is how many are counted of each size, at least [15, or as many as enoughS lets]. With 1
	// no passes are timed that compute layers again.
	Passes int
	// AtLeastS is how long the counted passes of one visit to a micro-batch size take together [0.1].
	AtLeastS    float64
	Concurrency int // [1]
	Threads     int // [1]
	Workers     int // of the transfer measurement [2]
	// Progress is called after each piece of work, with pieces done and in all.
	Progress func(done, all int, what string)
}

func (o Options) filled() (Options, error) {
	if len(o.MicroBatches) == 0 {
		o.MicroBatches = []int{1, 2, 4, 8}
	}
	o.MicroBatches = slices.Clone(o.MicroBatches)
	slices.Sort(o.MicroBatches)
	o.MicroBatches = slices.Compact(o.MicroBatches)
	if o.MicroBatches[0] < 1 {
		return o, fmt.Errorf("profile: micro-batch of %d samples; sizes are 1 at least", o.MicroBatches[0])
	}
	if o.Passes < 0 {
		return o, fmt.Errorf("profile: %d passes; give 1 at least, or 0 for as many as time allows", o.Passes)
	}
	if o.Warmup == 0 {
		o.Warmup = 1
	}
	if o.AtLeastS == 0 {
		o.AtLeastS = 0.1
	}
	o.Concurrency, o.Threads, o.Workers = max(o.Concurrency, 1), max(o.Threads, 1), max(o.Workers, 2)
	if o.Progress == nil {
		o.Progress = func(int, int, string) {}
	}
	return o, nil
}

// Measure profiles a model: each micro-batch size in passes over the whole model, the sizes in
// turn in several rounds, with as many workers computing at once as will train, because cores
// share caches and memory bandwidth.
func Measure(ctx context.Context, m *model.Model, t Timer, o Options) (*Profile, error) {
	o, err := o.filled()
	if err != nil {
		return nil, err
	}
	p := describe(m)
	p.Source, p.Engine = "measured", t.Engine()
	p.ThreadsPerWorker, p.Concurrency = o.Threads, o.Concurrency
	r := Request{Model: m, MicroBatch: o.MicroBatches[0], AtLeastS: o.AtLeastS, Concurrency: o.Concurrency,
		Threads: o.Threads}
	rounds, passes := mostRounds, o.Passes
	if passes == 0 {
		passes = mostRounds
	}
	rounds = min(rounds, passes)
	r.Again = passes > 1
	all := rounds*len(o.MicroBatches) + 2
	visits, err := visitAll(ctx, t, r, o, rounds, passes, all)
	if err != nil {
		return nil, err
	}
	for i, timings := range paced(visits) {
		inputs := pendingInputs(p.Layers, timings)
		for l, timing := range timings {
			c := costOf(timing, t.Device(), o.MicroBatches[i])
			c.PendingInputBytes = new(inputs[l])
			p.Layers[l].Costs = append(p.Layers[l].Costs, c)
		}
	}
	p.PaceSpread = paceSpread(visits)
	r.MicroBatch, r.Warmup, r.Passes = o.MicroBatches[0], o.Warmup, max(o.Passes, leastPasses)
	updates, optimizer, states, err := t.Updates(ctx, r)
	if err != nil {
		return nil, fmt.Errorf("profile: %s: updates: %w", m.Name, err)
	}
	p.Optimizer, p.OptimizerStates = optimizer, states
	for l, u := range updates {
		p.Layers[l].UpdateTimes = u
	}
	o.Progress(all-1, all, "updates")
	if p.Transfer, err = t.Transfer(ctx, o.Workers); err != nil {
		return nil, fmt.Errorf("profile: transfers: %w", err)
	}
	o.Progress(all, all, "transfers")
	return p, p.Validate()
}

// visitAll times each size in every round: [round][size]. The passes are spread over the rounds.
func visitAll(ctx context.Context, t Timer, r Request, o Options, rounds, passes,
	all int) (visits [][]visit, err error) {
	crew, err := t.Crew(ctx, r)
	if err != nil {
		return nil, fmt.Errorf("profile: %s: %w", r.Model.Name, err)
	}
	defer crew.Close()
	begun := time.Now()
	for round := range rounds {
		if o.Passes == 0 && round >= leastRounds && time.Since(begun).Seconds() > enoughS {
			break
		}
		r.Passes = (passes + round) / rounds
		visits = append(visits, make([]visit, len(o.MicroBatches)))
		// The largest first: what it needed bounds how much freed memory an allocator keeps for the others.
		for i, size := range slices.Backward(o.MicroBatches) {
			r.MicroBatch = size
			timings, err := crew.Layers(ctx, r)
			if err != nil {
				return nil, fmt.Errorf("profile: %s at micro-batch %d: %w", r.Model.Name, size, err)
			}
			visits[round][i] = timings
			o.Progress((round+1)*len(o.MicroBatches)-i, all, fmt.Sprintf("micro-batch %d", size))
		}
	}
	return visits, nil
}

// How often the sizes are visited in turn. A machine is slow for seconds at a time: were a size timed in
// one go, it could come out dearer than its neighbours, and planners would avoid it; and the more seconds a
// measurement is spread over, the more of what training will meet is in it.
const (
	leastRounds = 4
	mostRounds  = 15
	enoughS     = 15.0 // seconds after which no other round begins, unless passes are asked for
	leastPasses = 6    // of updates
)

func costOf(t LayerTiming, device string, size int) Cost {
	c := Cost{
		Device: device, MicroBatch: size,
		ForwardS: stats.Median(t.ForwardS), BackwardS: stats.Median(t.BackwardS),
		OutputBytes: t.OutputBytes, SavedBytes: t.SavedBytes,
		ForwardPeakBytes: t.ForwardPeakBytes, BackwardPeakBytes: t.BackwardPeakBytes,
		FirstBackwardPeakBytes: t.FirstBackwardPeakBytes,
	}
	c.WorkspaceBytes = max(0, t.ForwardPeakBytes-t.SavedBytes, t.BackwardPeakBytes)
	if len(t.BackwardInputS) > 0 && len(t.BackwardWeightS) > 0 {
		c.BackwardInputS, c.BackwardWeightS = new(stats.Median(t.BackwardInputS)), new(stats.Median(t.BackwardWeightS))
	}
	if len(t.BareForwardS) > 0 && len(t.AgainS) > 0 {
		c.BareForwardS, c.AgainS = new(stats.Median(t.BareForwardS)), new(stats.Median(t.AgainS))
	}
	c.FeedS = stats.Median(t.FeedS)
	c.PendingBytes, c.HalvesPeakBytes = new(t.PendingBytes), new(t.HalvesPeakBytes)
	both := make([]float64, min(len(t.ForwardS), len(t.BackwardS)))
	for i := range both {
		both[i] = t.ForwardS[i] + t.BackwardS[i]
	}
	if middle := stats.Median(both); len(both) > 3 && middle > 0 {
		lower, upper := stats.Quartiles(both)
		c.Spread = (upper - lower) / middle
	}
	return c
}

// pendingInputs is, by layer, how much of what waits for the weights' half of its backward is the layer's
// input. All else that comes and goes in the input's half is known: what the forward saved goes, unless it is
// the input that the half of a later layer waits with; the gradient of the output goes, those of the layers
// that it read come, once each; and what waits for its own half stays.
func pendingInputs(layers []Layer, timings []LayerTiming) []int64 {
	inputs, kept, made := make([]int64, len(layers)), make([]int64, len(layers)), make([]bool, len(layers))
	for l := len(layers) - 1; l >= 0; l-- {
		t := &timings[l]
		inputs[l] = kept[l] - t.SavedBytes - t.OutputBytes + t.PendingBytes - t.InputLeavesBytes
		nearest := -1
		for _, from := range layers[l].From {
			if nearest = max(nearest, from); from >= 0 && !made[from] && !layers[from].NoGradient {
				made[from] = true
				inputs[l] += timings[from].OutputBytes
			}
		}
		inputs[l] = max(0, inputs[l])
		if nearest >= 0 {
			kept[nearest] += inputs[l]
		}
	}
	return inputs
}

// describe is the part of a profile that a description alone gives.
func describe(m *model.Model) *Profile {
	p := &Profile{Version: Version, Model: m.Name, ModelID: m.ID()}
	readers := frozenReaders(m)
	for _, l := range m.Layers {
		layer := Layer{Name: l.Name, Kind: l.Kind, ParameterBytes: 4 * l.ParameterElements(), TiedTo: -1}
		for _, from := range l.From {
			layer.From = append(layer.From, m.Index(from))
			for _, t := range m.Inputs {
				if t.Name == from {
					layer.Feeds = append(layer.Feeds, Feed{Name: t.Name, BytesPerSample: t.BytesPerSample()})
				}
			}
		}
		for k, q := range l.Params {
			bytes := model.Tensor{Shape: q.Shape, DType: q.DType}.BytesPerSample()
			name := l.Owned(k)
			switch {
			case q.Frozen && readers[name] > 1:
				if !slices.Contains(layer.FrozenShared, Shared{name, bytes}) {
					layer.FrozenShared = append(layer.FrozenShared, Shared{name, bytes})
				}
			case q.Frozen && q.Tied == "":
				layer.FrozenBytes += bytes
			case q.Buffer && q.Tied == "":
				layer.BufferBytes += bytes
			case q.Learned() && q.Tied != "":
				layer.TiedTo = ownerOf(m, q.Tied)
				layer.TiedBytes += 4 * model.Tensor{Shape: q.Shape}.Elements()
			}
		}
		p.Layers = append(p.Layers, layer)
	}
	for i := range p.Layers[:len(p.Layers)-1] { // the last has a backward: it makes the loss
		l := &p.Layers[i]
		l.NoGradient = !slices.ContainsFunc(m.Layers[i].Params, func(q model.Param) bool { return q.Learned() }) &&
			!slices.ContainsFunc(l.From, func(from int) bool { return from >= 0 && !p.Layers[from].NoGradient })
	}
	return p
}

// frozenReaders is how many layers read what nobody changes, by its owner's full name for it.
func frozenReaders(m *model.Model) map[string]int {
	readers := map[string]int{}
	for _, l := range m.Layers {
		seen := map[string]bool{}
		for k, q := range l.Params {
			if name := l.Owned(k); q.Frozen && !seen[name] {
				seen[name] = true
				readers[name]++
			}
		}
	}
	return readers
}

// ownerOf is the layer that owns a parameter by its full name.
func ownerOf(m *model.Model, full string) int {
	for i, l := range m.Layers {
		for k, p := range l.Params {
			if p.Tied == "" && l.ParamName(k) == full {
				return i
			}
		}
	}
	return -1
}
