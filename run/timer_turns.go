package run

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/stage/optim"
	"github.com/millrace-ml/millrace/trace"
)

const (
	turnRounds = 3
	turnSteps  = 12
	turnMicros = 16
	turnRows   = 8
	turnWidth  = 32
)

// turn measures what it takes to hand a processor from one worker to another: it trains a model on twice as many
// workers as there are processors, several times, and looks at the computations whose workers waited for one. It
// is 0 where workers would not take seats in turn, on this machine or because another run has taken the processors.
func (t *Timer) turn(ctx context.Context, bind Binding) (seconds float64, err error) {
	processors := len(allowedCores())
	workers := 2 * processors
	if !newSeats(allowedCores(), workers, processors, 1).inTurn() {
		return 0, nil
	}
	m, p, err := turnPlan(workers)
	if err != nil {
		return 0, err
	}
	var took []float64
	for range turnRounds {
		taken := false
		res, err := t.train(ctx, m, p, Config{
			Data: Data{Train: ones{turnWidth}}, Optimizer: optim.Settings{Kind: optim.SGD}, Rate: optim.Rate{Kind: optim.Constant, Base: 1e-6},
			Steps: turnSteps, KeepSteps: turnSteps, Cores: processors, Bind: bind,
			Hooks: Hooks{OnTaken: func(int) { taken = true }},
		})
		if err != nil {
			return 0, err
		}
		if taken {
			return 0, nil
		}
		took = append(took, turns(&res.Timeline)...)
	}
	return max(0, middle(took)), nil
}

// turnPlan puts each layer of a model on a worker of its own.
func turnPlan(workers int) (*model.Model, *plan.Plan, error) {
	hidden := slices.Repeat([]int{turnWidth}, workers-2) // behind them the last dense layer, and the loss
	m, err := model.Build("mlp", map[string]any{"inputs": turnWidth, "hidden": hidden, "classes": 2})
	if err != nil {
		return nil, nil, err
	}
	if len(m.Layers) != workers {
		panic(fmt.Sprintf("run: a model of %d layers for %d workers", len(m.Layers), workers))
	}
	p := &plan.Plan{
		Version: plan.Version, Model: m.Name, ModelID: m.ID(), Replication: string(schedule.RoundRobin),
		MicroBatch: turnRows, MicroBatches: turnMicros, Schedule: "1f1b", Weights: string(schedule.Sync),
	}
	for s := range workers {
		p.Stages = append(p.Stages, plan.Stage{FirstLayer: s, LastLayer: s, Devices: []int{s}, Warmup: min(turnMicros, workers-s)})
	}
	return m, p, nil
}

// turns is how long processors stood idle between a worker that left them and one that had waited for one: from when the
// first had sent what it computed to the first instruction of the other, be it a receive that it owed. Who waits for
// a processor gets the one whose computation ended first, of those that nobody has computed on since.
func turns(t *trace.Timeline) []float64 {
	var took []float64
	var left []placed // processors, by the end of the latest computation there
	for _, c := range placedIn(t) {
		waited := c.event.BlockedBy == trace.ByCore
		from := slices.IndexFunc(left, func(b placed) bool { return waited != (b.event.Worker == c.event.Worker) })
		if from < 0 {
			from = slices.IndexFunc(left, func(b placed) bool { return b.event.EndS <= c.event.StartS })
		}
		if from >= 0 {
			b := left[from]
			left = slices.Delete(left, from, from+1)
			if waited && b.event.EndS <= c.event.StartS && b.event.Step == c.event.Step && c.event.Step >= besideCold {
				took = append(took, c.first(b.event.EndS)-b.sent())
			}
		}
		at, _ := slices.BinarySearchFunc(left, c, func(a, b placed) int { return cmp.Compare(a.event.EndS, b.event.EndS) })
		left = slices.Insert(left, at, c)
	}
	return took
}

// placed is a computation, with what its worker did itself before and behind it.
type placed struct {
	event trace.Event
	own   []trace.Event
	at    int // in own
}

// placedIn is the computations of all workers by their start.
func placedIn(t *trace.Timeline) []placed {
	var all []placed
	for w := range t.Workers {
		own := ownEvents(t, w)
		for at, e := range own {
			if e.Lane == trace.Compute {
				all = append(all, placed{e, own, at})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b placed) int { return cmp.Compare(a.event.StartS, b.event.StartS) })
	return all
}

// sent is when the worker was through with what it sends behind the computation.
func (c placed) sent() float64 {
	if c.at+1 < len(c.own) {
		return max(c.event.EndS, c.own[c.at+1].ReadyS)
	}
	return c.event.EndS
}

// first is when the worker began to work for the computation, behind some time: with the receives that it did then.
func (c placed) first(behind float64) float64 {
	start := c.event.StartS
	for i := c.at - 1; i >= 0; i-- {
		if e := c.own[i]; e.Kind != "RF" && e.Kind != "RB" || e.StartS < behind {
			break
		}
		start = c.own[i].StartS
	}
	return start
}
