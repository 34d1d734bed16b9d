package avgpipe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/millrace-ml/millrace/internal/progress"
	"github.com/millrace-ml/millrace/internal/stats"
)

// traverse tries every setting, follows the guidelines and compares the predictions with the measurements. A setting's
// measurement is the median of its trials, one for each round. The traversal and the guidelines choose from the first
// round. The traversal's cost is that of an average round.
func (t *tuning) traverse(ctx context.Context) error {
	all := make([]Scored, len(t.out.Grid)) // results of the first round
	spent := 0.0
	tried := make([][]Scored, len(t.out.Grid))
	defer func() { // keep what was tried before an early end
		for i := range t.out.Grid {
			if len(tried[i]) > 0 {
				t.out.Grid[i].Measured = inTheMiddle(tried[i])
			}
		}
	}()
	t.Progress.Plan(time.Now(), "traversal", t.traversal()...)
	if t.Anchored && t.Rounds < 2 {
		t.Progress.Plan(time.Now(), "again", t.choicesAgain(t.likely())...)
	}
	order := t.inOrder(t.trial)
	defer func() { t.Progress.End(time.Now()) }()
	for range max(t.Rounds, 1) {
		for _, i := range order {
			c := &t.out.Grid[i]
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			t.Progress.Begin(time.Now(), t.trial(c))
			trial, err := t.Machine(ctx, c.Simulated, Iterations(c.At, TraversalBatches), false)
			if err != nil {
				return fmt.Errorf("tune: trying %s: %w", c.At, err)
			}
			if tried[i] = append(tried[i], trial.Scored); len(tried[i]) == 1 {
				all[i] = trial.Scored
			}
			spent += trial.TookS / float64(max(t.Rounds, 1))
		}
	}
	for i := range t.out.Grid {
		t.out.Grid[i].Measured = inTheMiddle(tried[i])
	}
	for _, by := range []struct {
		method Method
		choose func([]Scored, int64) (Scored, error)
		choice Choice
	}{
		{ByTraversal, fastest, Choice{TuningS: spent, Tried: len(all)}},
		{ByMaxNum, MaxNum, Choice{}},
		{ByMaxSize, MaxSize, Choice{}},
	} {
		chosen, err := by.choose(all, t.Workload.LimitBytes)
		by.choice.Method = by.method
		var over *LimitError
		if err != nil && !errors.As(err, &over) {
			return err
		}
		t.add(by.choice, chosen, err)
	}
	for i := range t.out.Choices {
		for _, c := range t.out.Grid {
			if t.out.Choices[i].Refused == "" && c.At == t.out.Choices[i].At {
				t.out.Choices[i].Measured = c.Measured
			}
		}
	}
	t.out.Errors = errorsOf(t.out.Grid)
	if t.Rounds > 1 {
		t.out.Errors = append(t.out.Errors, scatter(tried))
	}
	return nil
}

// inTheMiddle returns the trial with the median time (of two, the faster).
func inTheMiddle(trials []Scored) *Scored {
	sorted := slices.SortedFunc(slices.Values(trials), func(a, b Scored) int { return cmp.Compare(a.StepS, b.StepS) })
	return &sorted[stats.Middle(len(sorted))]
}

// scatter returns how far the trials of a setting are from their median. No prediction can be expected to be closer.
func scatter(tried [][]Scored) PredictionError {
	var pairs [][2]Scored
	for _, trials := range tried {
		for _, s := range trials {
			pairs = append(pairs, [2]Scored{s, *inTheMiddle(trials)})
		}
	}
	e := errorOf(ByTrial, pairs)
	e.Settings = len(tried)
	return e
}

// rounds is how often every choice is run again.
const rounds = 5

// chosen returns the settings that the methods chose, without duplicates.
func (t *tuning) chosen() (order []*Cell) {
	for i := range t.out.Grid {
		c := &t.out.Grid[i]
		if slices.ContainsFunc(t.out.Choices, func(o Choice) bool { return o.Refused == "" && o.At == c.At }) {
			order = append(order, c)
		}
	}
	return order
}

// likely returns the settings that will probably be chosen after the traversal: the settings chosen so far, the
// guidelines' choices and, in place of the traversal's choice, the setting in the middle of the grid.
func (t *tuning) likely() []*Cell {
	all := t.chosen()
	var scores []Scored
	for _, c := range t.out.Grid {
		scores = append(scores, c.Simulated.Scored)
	}
	for _, guideline := range []func([]Scored, int64) (Scored, error){MaxNum, MaxSize} {
		chosen, err := guideline(scores, t.Workload.LimitBytes)
		at := slices.IndexFunc(t.out.Grid, func(c Cell) bool { return c.At == chosen.At })
		if err == nil && !slices.Contains(all, &t.out.Grid[at]) {
			all = append(all, &t.out.Grid[at])
		}
	}
	return append(all, &t.out.Grid[len(t.out.Grid)/2])
}

// choicesAgain returns the trials that t.again will run if it runs these settings.
func (t *tuning) choicesAgain(of []*Cell) (all []progress.Piece) {
	for _, c := range of {
		p := t.trial(c)
		p.Times = rounds
		all = append(all, p)
	}
	return all
}

// again runs the chosen settings in turn for several rounds, and measures the choices by the median. The traversal
// measures only a few batches of each setting. Because machines vary more than settings differ, it chooses a setting
// whose batches happened to be fast. By these batches alone the choice would seem better than it is.
func (t *tuning) again(ctx context.Context) error {
	tried := map[Degrees][]Scored{}
	order := t.chosen()
	t.Progress.Plan(time.Now(), "again", t.choicesAgain(order)...)
	defer func() { t.Progress.End(time.Now()) }()
	for range rounds {
		for _, c := range order {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			t.Progress.Begin(time.Now(), t.trial(c))
			trial, err := t.Machine(ctx, c.Simulated, Iterations(c.At, TraversalBatches), false)
			if err != nil {
				return fmt.Errorf("tune: %s again: %w", c.At, err)
			}
			tried[c.At] = append(tried[c.At], trial.Scored)
		}
	}
	for i := range t.out.Choices {
		c := &t.out.Choices[i]
		if trials := tried[c.At]; c.Refused == "" && len(trials) > 0 {
			c.Measured = inTheMiddle(trials)
		}
	}
	return nil
}

// errorsOf compares each predictor with the measurements over the grid.
func errorsOf(grid []Cell) []PredictionError {
	var out []PredictionError
	for _, by := range []struct {
		method Method
		score  func(Cell) Scored
	}{
		{BySimulator, func(c Cell) Scored { return c.Simulated.Scored }},
		{ByPrinted, func(c Cell) Scored { return c.Printed }},
		{ByAdjusted, func(c Cell) Scored { return c.Adjusted }},
	} {
		var pairs [][2]Scored
		for _, c := range grid {
			if c.Measured != nil {
				pairs = append(pairs, [2]Scored{by.score(c), *c.Measured})
			}
		}
		out = append(out, errorOf(by.method, pairs))
	}
	return out
}

// errorOf compares predictions with measurements, pair by pair.
func errorOf(by Method, pairs [][2]Scored) PredictionError {
	e := PredictionError{Method: by, Settings: len(pairs)}
	var steps []float64
	for _, p := range pairs {
		step := math.Abs(p[0].StepS/p[1].StepS - 1)
		memory := math.Abs(float64(p[0].Peak())/float64(max(p[1].Peak(), 1)) - 1)
		steps = append(steps, step)
		e.MeanMemory += memory / float64(len(pairs))
		e.WorstStep, e.WorstMemory = max(e.WorstStep, step), max(e.WorstMemory, memory)
	}
	e.MeanStep, e.MedianStep = stats.Mean(steps), stats.Median(steps)
	return e
}
