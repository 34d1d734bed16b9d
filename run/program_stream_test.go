package run

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

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
		steps, every, longest int
		want                  string
	}{
		{10, 0, 8, ""}, {9, 0, 0, "steps 1 to 9 are 9 in a row; stream-from-outside trains 4, or more by a multiple of 2"},
		{10, 6, 0, ""}, {8, 2, 0, "steps 1 to 2 are 2 in a row; stream-from-outside trains 4"},
	} {
		bad := config(p.Name, c.steps)
		bad.Data.Test, bad.Train.EvalEvery, bad.longest = bad.Data.Train, c.every, c.longest
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
	four, even := family.Family{Least: 4, Each: 2}, family.Family{Least: 2, Each: 2}
	odd := family.Family{Least: 3, Each: 2}
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
		{family: four, steps: 20, eval: 10, save: 4, want: "9..10", evalEvery: []int{8, 12}, saveEv: []int{10}},
		{family: two, steps: 10, eval: 3, want: "10..10", steps2: []int{9, 11}, evalEvery: []int{2, 4}},
		{family: even, steps: 10, eval: 3, want: "1..3", evalEvery: []int{2, 4}}, // --steps 2 would do, but is far
		{family: odd, steps: 1, want: "1..1", steps2: []int{3}},                  // nothing else helps
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

// A Program has a limited number of steps. Steps that are too many for one are divided, if the rows can be trained. The
// values of a refusal are accepted.
func TestARowEndsWithItsProgram(t *testing.T) {
	three := family.Family{Name: "odd", Least: 3, Each: 2}
	five := family.Family{Name: "five-or-more", Least: 5, Each: 1}
	for _, c := range []struct {
		family               family.Family
		longest, steps, eval int
		rows                 []int
		want                 string
		steps2, evalEvery    []int
	}{
		{family: family.Family{Name: "two-or-more", Least: 2, Each: 1}, longest: 8, steps: 17, rows: []int{8, 7, 2}},
		{family: family.Family{Name: "usual"}, longest: 8, steps: 17, rows: []int{8, 8, 1}},
		{family: three, steps: 4098, rows: []int{4095, 3}}, {family: three, steps: 4097, rows: []int{4091, 3, 3}},
		{family: three, steps: 10000, rows: []int{4095, 4095, 1807, 3}},
		{family: three, steps: 4096, rows: []int{4093, 3}},
		{family: three, steps: 4094, want: "steps 1 to 4094 are 4094 in a row; odd", steps2: []int{4093, 4095}},
		{family: three, longest: 8, steps: 24, eval: 12, rows: []int{7, 5, 7, 5}},
		{family: five, longest: 8, steps: 9, steps2: []int{8, 10},
			want: "step 9 would be trained by itself (a row ends after 8); in a row, five-or-more trains 5 or more"},
		{family: five, longest: 8, steps: 18, eval: 9, want: "step 9 would be trained by itself (a row ends after 8)",
			evalEvery: []int{6, 10}},
	} {
		config := Config{longest: c.longest}
		config.Train.Steps, config.Train.EvalEvery = c.steps, c.eval
		var wrong *RowError
		if err := config.rowsOf(c.family, 0); !errors.As(err, &wrong) {
			config.longest = c.family.Longest(cmp.Or(c.longest, maxRepeat))
			var rows []int
			for from, end := range config.rows(c.family, 0) {
				rows = append(rows, end-from)
			}
			if err != nil || c.want != "" || !slices.Equal(rows, c.rows) {
				t.Errorf("%s, %d steps: %v, rows %v, want %v %s", c.family.Name, c.steps, err, rows, c.rows, c.want)
			}
			continue
		}
		if got := wrong.Error(); c.want == "" || !strings.Contains(got, c.want) ||
			!slices.Equal(wrong.Steps, c.steps2) || !slices.Equal(wrong.EvalEvery, c.evalEvery) {
			t.Errorf("%s, %d steps: %q, steps %v, evaluations %v", c.family.Name, c.steps, got, wrong.Steps, wrong.EvalEvery)
		}
	}
}

// The most steps of a Program is a number of steps that it trains.
func TestTheLongestProgramIsTrained(t *testing.T) {
	p, err := schedule.ParseText(strings.NewReader("millrace program 1\nname odd-from-outside\nstages 1\nworkers 1\n" +
		"micro_batches 2\nperiod 2\nrepeat 2\nweights stash\nreplication round_robin\nplace p0/0: 0\nprologue\n" +
		"0: 0F0 0B0\nbody\n0: 0F1 0B1 0F2 0B2\n"))
	if err != nil {
		t.Fatal(err)
	}
	if err := family.RegisterProgram(p); err != nil {
		t.Fatal(err)
	}
	for most, want := range map[int]int{maxRepeat: 4095, 7: 7, 8: 7} {
		if got := longest(p, most); got != want {
			t.Errorf("at most %d: %d, want %d", most, got, want)
		}
	}
}

// The check of rows finds what a look at each row finds, and does not take longer for more steps.
func TestRowsAreCheckedWithoutALookAtEach(t *testing.T) {
	fits := func(c Config, f family.Family, done int) bool {
		for from, end := range c.rows(f, done) {
			if !f.Trains(end - from) {
				return false
			}
		}
		return true
	}
	g := rand.New(rand.NewPCG(1, 2))
	for range 20000 {
		f := family.Family{Least: 1 + g.IntN(5), Each: 1 + g.IntN(3)}
		c := Config{longest: f.Longest(4 + g.IntN(12))}
		c.Train.Steps, c.Train.EvalEvery, c.Checkpoint.Every = 1+g.IntN(90), g.IntN(25), g.IntN(25)
		done := g.IntN(c.Train.Steps)
		if got, want := c.wrongRow(f, done) == nil, fits(c, f, done); got != want {
			t.Fatalf("%d, or more by a multiple of %d, at most %d: steps %d to %d, ends every %d and %d: %v, want %v",
				f.Least, f.Each, c.longest, done+1, c.Train.Steps, c.Train.EvalEvery, c.Checkpoint.Every, got, want)
		}
	}
	begun := time.Now()
	for _, of := range [][3]int{{1e12, 1, 0}, {1e12 + 1, 2, 0}, {1e12 + 1, 2, 1e12 - 1}, {1e12 + 1, 0, 0}} {
		var c Config
		c.Train.Steps, c.Train.EvalEvery, c.Checkpoint.Every = of[0], of[1], of[2]
		if err := c.rowsOf(family.Family{Least: 2, Each: 2}, 0); err == nil {
			t.Errorf("%v: no error", of)
		}
	}
	if took := time.Since(begun); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
}

// Stages save themselves only after all steps of an update. If a Program cannot end there, the run is refused before
// its first step.
func TestSavesOfStagesNeedRowsOfWholeUpdates(t *testing.T) {
	f := family.Family{Name: "odd", Least: 3, Each: 2}
	c := Config{longest: 7, unit: 2}
	c.Train.Steps, c.Checkpoint.Every, c.Checkpoint.ByStage = 12, 4, true
	want := "run: save mode stage: a row of odd ends after step 7, and stages update for 2 at once: save with " +
		"a drain"
	if err := c.rowsOf(f, 0); err == nil || err.Error() != want {
		t.Errorf("%v, want %q", err, want)
	}
	for _, steps := range []int{3, 7} {
		if c.Train.Steps = steps; c.rowsOf(f, 0) != nil {
			t.Errorf("%d steps: %v", steps, c.rowsOf(f, 0))
		}
	}
}
