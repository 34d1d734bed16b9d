package sim

import (
	"testing"

	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/schedule/lower"
	"github.com/millrace-ml/millrace/schedule/programs"
)

// TestSavingWithoutADrainByHand: two stages of 1 s forward and 1 s backward, a stream of 6 minibatches, and transfers
// that take no time. The last stage computes for 12 s from second 1 on, and the first stage ends 1 s later, at 14 s. A
// save takes 1.5 s. Each stage saves after its update for the second minibatch, the last stage at 5 s and the first at
// 6 s. The first stage saves while it would wait for the last stage, so only the last stage's 1.5 s are added. A drain
// would add another second, to empty and fill the pipeline.
func TestSavingWithoutADrainByHand(t *testing.T) {
	pl := &plan.Plan{Schedule: "1f1b-rr", Weights: "stash", Replication: "round_robin", MicroBatch: 1, MicroBatches: 1,
		Stages: []plan.Stage{{Devices: []int{0}}, {FirstLayer: 1, LastLayer: 1, Devices: []int{1}}}}
	p, err := programs.Build(pl, nil, false, 6)
	if err != nil {
		t.Fatal(err)
	}
	costs := Uniform(2, 1, 1, 0)
	for s := range costs.Stages {
		costs.Stages[s][0].SaveS = 1.5
	}
	end := func(ends ...int) (last float64, saves map[string][2]float64) {
		t.Helper()
		q := p
		if len(ends) > 0 {
			if q, err = lower.Saved(p, ends); err != nil {
				t.Fatal(err)
			}
		}
		tl, _, err := Run(q, costs, Options{Record: true})
		if err != nil {
			t.Fatal(err)
		}
		saves = map[string][2]float64{}
		for _, e := range tl.Events {
			last = max(last, e.EndS)
			if e.Kind == "CK" {
				saves[e.Instruction] = [2]float64{e.StartS, e.EndS}
			}
		}
		return last, saves
	}
	without, _ := end()
	exactly(t, without, 14, "without saving")
	with, saves := end(2)
	exactly(t, with, 15.5, "with stages that save themselves")
	if saves["1CK1"] != [2]float64{5, 6.5} || saves["0CK1"] != [2]float64{6, 7.5} || len(saves) != 2 {
		t.Errorf("stages save themselves at %v", saves)
	}
}
