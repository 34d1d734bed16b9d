package measure

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/millrace-ml/millrace/internal/stats"
	"github.com/millrace-ml/millrace/nn"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/stage"
	"github.com/millrace-ml/millrace/stage/optim"
	"github.com/millrace-ml/millrace/trace"
)

// instructionClock is a stage.Watch that adds up what the layers take within each forward and each backward.
type instructionClock struct {
	first, last int
	layersS     []float64 // by forward and backward of the stage, as they come
	begun       time.Time
}

// Begin implements stage.Watch.
func (c *instructionClock) Begin(p stage.Phase, layer int) {
	if p == stage.Forward && layer == c.first || p == stage.Backward && layer == c.last {
		c.layersS = append(c.layersS, 0)
	}
	c.begun = time.Now()
}

// End implements stage.Watch.
func (c *instructionClock) End(p stage.Phase, _ int, _ nn.Bundle) {
	if p == stage.Forward || p == stage.Backward {
		c.layersS[len(c.layersS)-1] += time.Since(c.begun).Seconds()
	}
}

// besides is what single instructions took beside their layers, in seconds.
type besides struct {
	dispatch, send, receive, layer, wake []float64

	computations []float64 // whole, the first ones too
}

// beside measures what instructions take beside layers: it trains a model too small to cost anything on two
// workers, and times the passes of a profile over its layers right behind, several times in turn, as a
// machine shared with others halves its pace for a second now and then.
//
// Of a computation it counts the way to it as well, from the end of the worker's instruction before, where the worker
// did not wait; likewise of a receive; and a send lasts from the end of the computation to the next
// instruction. Forwards of the first half do not count: they copy the model inputs, which layers' costs have.
func (t *Timer) beside(ctx context.Context, into *profile.Transfer) error {
	m, err := probeModel()
	if err != nil {
		return err
	}
	plain := optim.Settings{Kind: optim.SGD}
	n := len(m.Layers)
	var all besides
	for range besidePairs {
		clocks := []*instructionClock{{first: 0, last: n/2 - 1}, {first: n / 2, last: n - 1}}
		tl, err := t.pipeline(ctx, Pipeline{
			Model: m, Cut: n / 2, InAdvance: 2, Samples: ones{4}, MicroBatches: besideMicros, Steps: besideSteps,
			Watch: func(s int) stage.Watch { return clocks[s] },
		})
		if err != nil {
			return err
		}
		loop, err := (&Timer{engine: t.engine, split: ones{4}, optimizer: plain, place: t.place}).once(ctx, profile.Request{
			Model: m, MicroBatch: 1, Warmup: 8, Passes: probeMicros, Concurrency: len(clocks), Threads: 1,
		})
		if err != nil {
			return err
		}
		for w, c := range clocks {
			if err := all.add(ownEvents(tl, w), c.layersS, loop[c.first:c.last+1], w > 0); err != nil {
				return err
			}
		}
	}
	of := func(samples []float64) float64 { return max(0, stats.Median(samples)) }
	into.DispatchS, into.SendS, into.ReceiveS, into.LayerS, into.WakeS = of(all.dispatch), of(all.send), of(all.receive), of(all.layer), of(all.wake)
	into.StallS = slices.Max(all.computations) - stats.Median(all.computations)
	return nil
}

// once is one visit of a crew of its own.
func (t *Timer) once(ctx context.Context, r profile.Request) ([]profile.LayerTiming, error) {
	c, err := t.hire(r)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.Layers(ctx, r)
}

// ownEvents is what a worker did itself, in order: a send is noted when it has arrived, and is not among it.
func ownEvents(t *trace.Timeline, worker int) []trace.Event {
	var own []trace.Event
	for _, e := range t.Events {
		if e.Worker == worker && e.Kind != "SF" && e.Kind != "SB" {
			own = append(own, e)
		}
	}
	slices.SortStableFunc(own, func(a, b trace.Event) int { return cmp.Compare(a.StartS, b.StartS) })
	return own
}

// add goes through one worker's instructions. layersS is by forward and backward, in order; loop is what its
// layers take in passes; forwards says whether forwards count.
func (b *besides) add(own []trace.Event, layersS []float64, loop []profile.LayerTiming, forwards bool) error {
	var layers, whole [2]map[string][]float64 // by kind: of those that nothing was waited for, and of those after a wait
	for i := range layers {
		layers[i], whole[i] = map[string][]float64{}, map[string][]float64{}
	}
	computations, waited := 0, 0
	for i, e := range own {
		took := e.EndS - e.StartS
		if e.BlockedBy == "" {
			took += e.StartS - e.ReadyS
		} else {
			waited = 1
		}
		computes, within, after := e.Kind == "F" || e.Kind == "B", 0.0, waited
		if computes {
			if computations == len(layersS) {
				return fmt.Errorf("measure: measuring: %s has no layers' time", e.Instruction)
			}
			within, waited = layersS[computations], 0
			computations++
			b.computations = append(b.computations, e.EndS-e.StartS)
		}
		if e.Step < besideCold {
			continue
		}
		if before := own[i-1]; (before.Kind == "F" || before.Kind == "B") && before.Step == e.Step && e.ReadyS > before.EndS {
			b.send = append(b.send, e.ReadyS-before.EndS)
		}
		switch {
		case computes:
			layers[after][e.Kind] = append(layers[after][e.Kind], within)
			whole[after][e.Kind] = append(whole[after][e.Kind], took)
			if after == 0 && (forwards || e.Kind == "B") {
				b.dispatch = append(b.dispatch, took-within)
			}
		case e.Kind == "RF" || e.Kind == "RB":
			b.receive = append(b.receive, took)
		}
	}
	forward, backward := 0.0, 0.0
	for _, l := range loop {
		forward, backward = forward+stats.Median(l.ForwardS), backward+stats.Median(l.BackwardS)
	}
	for kind, loopS := range map[string]float64{"F": forward, "B": backward} {
		if s := layers[0][kind]; len(s) > 0 {
			b.layer = append(b.layer, (stats.Median(s)-loopS)/float64(len(loop)))
		}
		if len(whole[0][kind]) > 0 && len(whole[1][kind]) > 0 {
			b.wake = append(b.wake, stats.Median(whole[1][kind])-stats.Median(whole[0][kind]))
		}
	}
	return nil
}
