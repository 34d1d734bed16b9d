package run

import (
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/family"
)

// A stream that is read from a file trains to the same bits as the family that wrote it. A Program of this stream has
// 4, 6, 8 or any larger even number of minibatches. A run that needs another number of minibatches in a Program is
// refused before its first step.
func TestAStreamFromOutsideTrains(t *testing.T) {
	e := testEngine(t)
	written, err := family.Generate("1f1b-rr", schedule.Settings{Placement: [][]int{{0, 1}, {2}}, MicroBatches: 1,
		Weights: schedule.Stash, Repeat: 6})
	if err != nil {
		t.Fatal(err)
	}
	p, err := schedule.ParseText(strings.NewReader(written.Text()))
	if err != nil {
		t.Fatal(err)
	}
	p.Name = "stream-from-outside"
	if err := family.RegisterProgram(p); err != nil {
		t.Fatal(err)
	}
	m := build(t, "mlp", map[string]any{"inputs": 5, "hidden": []int{6, 6, 6}})
	config := func(name string, steps int) Config {
		c := basic(t, e, m, planOf(m, evenCuts(len(m.Layers), 2), 4, 1, name), 10, steps)
		c.Plan.Weights, c.Plan.Replication = string(schedule.Stash), string(schedule.RoundRobin)
		c.Plan.Stages[0].Devices, c.Plan.Stages[1].Devices = []int{0, 1}, []int{2}
		c.Data.Train, c.Train.Seed = noise{model: m, classes: 10, rows: 1 << 20, seed: 7}, 11
		return c
	}
	own := config(p.Name, 10)
	same := own
	with := *own.Plan
	with.Schedule = "1f1b-rr"
	same.Plan = &with
	if err := sameWeights(train(t, same).Weights, train(t, own).Weights); err != nil {
		t.Error(err)
	}
	for _, c := range []struct {
		steps, every int
		want         string
	}{
		{9, 0, "steps 1 to 9: schedule: stream-from-outside: 9 minibatches in a row; this program trains 4, or more by a " +
			"multiple of 2"},
		{10, 6, ""}, {8, 2, "steps 1 to 2: schedule: stream-from-outside: 2 minibatches in a row"},
	} {
		bad := config(p.Name, c.steps)
		bad.Data.Test, bad.Train.EvalEvery = bad.Data.Train, c.every
		if c.want == "" {
			bad.Train.EvalRows = 4
		}
		_, err := Train(t.Context(), bad)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%d steps, evaluated every %d: %v; want %q", c.steps, c.every, err, c.want)
		}
	}
}
