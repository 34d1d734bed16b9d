package measure

import (
	"cmp"
	"context"
	"slices"

	"github.com/millrace-ml/millrace/internal/stats"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/profile/timing"
	"github.com/millrace-ml/millrace/stage/optim"
	"github.com/millrace-ml/millrace/trace"
)

// besides holds how much longer instructions take than their layers, in seconds. Each list has one value for each
// instruction.
type besides struct{ dispatch, send, receive []float64 }

// beside measures how much longer instructions take than their layers. It trains a model of negligible cost on two
// workers, and then times profile passes over the same layers. It repeats the training and the passes several times,
// because a shared machine may run at half its pace for a second.
//
// For a computation it records how much longer the instruction takes than its layers in passes. For a receive it
// records the instruction's whole time. If an instruction waited, its time begins at its start. Otherwise its time
// begins when the worker reached it. For a send it records the time from the end of the computation before it until the
// worker reaches its next instruction that is not a send. The first besideCold steps are left out. The forwards of the
// first stage are left out too: they copy the model inputs, whose time is part of the layers' costs.
func (t *Timer) beside(ctx context.Context, into *profile.Transfer) error {
	m, err := probeModel()
	if err != nil {
		return err
	}
	plain := optim.Settings{Kind: optim.SGD}
	n := len(m.Layers)
	var all besides
	for range besidePairs {
		half := [][2]int{{0, n / 2}, {n / 2, n}}
		tl, err := t.pipeline(ctx, Pipeline{
			Model: m, Cut: n / 2, InAdvance: 2, Samples: ones{4}, MicroBatches: besideMicros, Steps: besideSteps,
		})
		if err != nil {
			return err
		}
		loop, err := (&Timer{engine: t.engine, split: ones{4}, optimizer: plain, place: t.place}).once(ctx, timing.Request{
			Model: m, MicroBatch: 1, Warmup: 8, Passes: probeMicros, Concurrency: len(half), Threads: 1,
		})
		if err != nil {
			return err
		}
		for w, h := range half {
			all.add(ownEvents(tl, w), loop[h[0]:h[1]], w > 0)
		}
	}
	of := func(samples []float64) float64 { return max(0, stats.Median(samples)) }
	into.DispatchS, into.SendS, into.ReceiveS = of(all.dispatch), of(all.send), of(all.receive)
	return nil
}

// once makes one visit with a new crew.
func (t *Timer) once(ctx context.Context, r timing.Request) ([]timing.LayerTiming, error) {
	c, err := t.hire(r)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.Layers(ctx, r)
}

// ownEvents returns a worker's events in order, without its sends, because a send is only recorded when it has arrived.
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

// add adds the excess times of one worker's instructions. The argument `loop` has the layers' times in passes. If
// `forwards` is false, forwards are left out.
func (b *besides) add(own []trace.Event, loop []timing.LayerTiming, forwards bool) {
	layersS := map[string]float64{}
	for _, l := range loop {
		layersS["F"] += stats.Median(l.ForwardS)
		layersS["B"] += stats.Median(l.BackwardS)
	}
	for i, e := range own {
		if e.Step < besideCold {
			continue
		}
		took := e.EndS - e.StartS
		if e.BlockedBy == "" {
			took += e.StartS - e.ReadyS
		}
		if before := own[i-1]; (before.Kind == "F" || before.Kind == "B") && before.Step == e.Step && e.ReadyS > before.EndS {
			b.send = append(b.send, e.ReadyS-before.EndS)
		}
		switch e.Kind {
		case "F", "B":
			if forwards || e.Kind == "B" {
				b.dispatch = append(b.dispatch, took-layersS[e.Kind])
			}
		case "RF", "RB":
			b.receive = append(b.receive, took)
		}
	}
}
