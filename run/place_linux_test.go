package run

import (
	"runtime"
	"slices"
	"testing"

	"github.com/millrace-ml/millrace/engine/ref"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/run/place"
	"github.com/millrace-ml/millrace/wire/pipe"
)

// If another run has bound its workers, a run reports that the processors are taken, and trains.
func TestARunSaysThatProcessorsAreTaken(t *testing.T) {
	workers := runtime.NumCPU()
	other, err := (&place.Policy{Bind: place.Always}).Take(workers, 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Leave()
	m := build(t, "mlp", map[string]any{"inputs": 8, "hidden": []int{6}, "classes": 3})
	pl := planOf(m, nil, 1, workers, "dp")
	pl.Stages = []plan.Stage{{LastLayer: len(m.Layers) - 1, Devices: make([]int, workers)}}
	for k := range workers {
		pl.Stages[0].Devices[k] = k
	}
	c := basic(t, ref.New(), m, pl, 3, 2)
	var told []int
	c.Hooks.OnTaken = func(processor int) { told = append(told, processor) }
	c.Machine.Place = &place.Policy{}
	train(t, c)
	alone, err := (&place.Policy{}).Take(workers, 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer alone.Leave()
	if p, taken := alone.Taken(); taken != (len(told) == 1) || taken && !slices.Contains(told, p) {
		t.Errorf("told that the processors %v are taken; taken: %v, %d", told, taken, p)
	}
	for _, none := range []*place.Policy{nil, {Bind: place.Never}} {
		told, c.Machine.Place = nil, none
		train(t, c)
		if len(told) > 0 {
			t.Errorf("who binds to none is told that %v are taken", told)
		}
	}
	c.Machine.Place = &place.Policy{Bind: "sometimes"}
	if _, err := Train(t.Context(), c); err == nil {
		t.Error("bound sometimes")
	}
}

// Every process of a run binds its own workers, whatever their numbers in the run are.
func TestEveryProcessBindsItsOwnWorkers(t *testing.T) {
	each := runtime.NumCPU() // as many workers as processors, so that they are bound
	if each > 8 {
		t.Skipf("%d processors take %d workers", each, 2*each)
	}
	m := build(t, "mlp", map[string]any{"inputs": 8, "hidden": []int{6}, "classes": 3})
	pl := planOf(m, nil, 1, 2*each, "dp")
	pl.Stages = []plan.Stage{{LastLayer: len(m.Layers) - 1}}
	w := worlds{carriers: pipe.New}
	for k := range 2 * each {
		pl.Stages[0].Devices, w.of = append(pl.Stages[0].Devices, k), append(w.of, k/each)
	}
	c := basic(t, ref.New(), m, pl, 3, 2)
	alone := train(t, c)
	c.Machine.Place = &place.Policy{Bind: place.Always}
	if err := sameWeights(alone.Weights, w.train(t.Context(), t, c).whole(t).Weights); err != nil {
		t.Error(err)
	}
}
