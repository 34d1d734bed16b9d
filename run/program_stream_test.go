package run

import (
	"errors"
	"fmt"
	"slices"
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
		{9, 0, "steps 1 to 9 are 9 in a row; stream-from-outside trains 4, or more by a multiple of 2"},
		{10, 6, ""}, {8, 2, "steps 1 to 2 are 2 in a row; stream-from-outside trains 4"},
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
		if before := bad.Check(); fmt.Sprint(before) != fmt.Sprint(err) {
			t.Errorf("%d steps, evaluated every %d: before the run %v, from the run %v", c.steps, c.every, before, err)
		}
	}
}

// A refusal of steps in a row names the row and the nearest settings with which all rows can be trained.
func TestRowsThatAScheduleCannotTrain(t *testing.T) {
	usual, two := family.Family{}, family.Family{Least: 2, Each: 1}
	four := family.Family{Least: 4, Each: 2}
	for _, c := range []struct {
		family                    family.Family
		done, steps, eval, save   int
		byStage                   bool
		want                      string // the row that is refused; "" means none
		steps2, evalEvery, saveEv []int
	}{
		{family: two, steps: 2},
		{family: two, steps: 1, want: "1..1", steps2: []int{2}},
		{family: two, steps: 51, eval: 50, want: "51..51", steps2: []int{50, 52}, evalEvery: []int{49, 51}},
		{family: two, steps: 10, save: 1, want: "1..1", saveEv: []int{2}},
		{family: two, steps: 10, save: 1, byStage: true},
		{family: two, done: 6, steps: 7, want: "7..7", steps2: []int{8}},
		{family: two, done: 6, steps: 6},
		{family: two, done: 49, steps: 60, eval: 50, want: "50..50", evalEvery: []int{49, 51}},
		{family: four, steps: 9, want: "1..9", steps2: []int{8, 10}},
		{family: four, steps: 20, eval: 10, save: 4, want: "9..10", steps2: []int{8},
			evalEvery: []int{8, 12}, saveEv: []int{10}},
		{family: usual, steps: 3, eval: 1},
	} {
		var config Config
		config.Train.Steps, config.Train.EvalEvery = c.steps, c.eval
		config.Checkpoint.Every, config.Checkpoint.ByStage = c.save, c.byStage
		err := config.rowsOf(c.family, c.done)
		var wrong *RowError
		if !errors.As(err, &wrong) {
			if err != nil || c.want != "" {
				t.Errorf("%d to %d steps, %d, %d: %v", c.done, c.steps, c.eval, c.save, err)
			}
			continue
		}
		got := fmt.Sprintf("%d..%d", wrong.Done+1, wrong.To)
		if got != c.want || !slices.Equal(wrong.Steps, c.steps2) || !slices.Equal(wrong.EvalEvery, c.evalEvery) ||
			!slices.Equal(wrong.SaveEvery, c.saveEv) {
			t.Errorf("%d to %d steps, %d, %d: %s, steps %v, evaluations %v, checkpoints %v", c.done, c.steps, c.eval, c.save,
				got, wrong.Steps, wrong.EvalEvery, wrong.SaveEvery)
		}
	}
}

// A Program has a limited number of steps, and the steps after it may be too few for another one.
func TestARowEndsWithItsProgram(t *testing.T) {
	c := Config{longest: 8}
	c.Train.Steps = 17
	err := c.rowsOf(family.Family{Name: "two-or-more", Least: 2, Each: 1}, 0)
	want := "run: step 17 would be trained by itself (a row ends after 8); in a row, two-or-more trains 2 or more"
	var wrong *RowError
	if !errors.As(err, &wrong) || err.Error() != want || !slices.Equal(wrong.Steps, []int{16, 18}) {
		t.Errorf("%v, want %q", err, want)
	}
}
