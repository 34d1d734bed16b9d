package tune

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
)

// traverse tries every setting, follows the guidelines and holds the predictions against what
// was measured.
func (t *degreesTuning) traverse(ctx context.Context) error {
	all := make([]Scored, len(t.out.Grid))
	spent := 0.0
	for i := range t.out.Grid {
		c := &t.out.Grid[i]
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		trial, err := t.Machine(ctx, c.Simulated, Iterations(c.At, TraversalBatches), false)
		if err != nil {
			return fmt.Errorf("tune: trying %s: %w", c.At, err)
		}
		c.Measured, all[i] = &trial.Scored, trial.Scored
		spent += trial.TookS
		t.told("tried " + c.At.String())
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
		var over *DegreesError
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
	return nil
}

// rounds is how often every choice is run again, in turn.
const rounds = 5

// again runs what was chosen once more, the settings in turn in several rounds, and measures the choices by
// the median. A traversal's own choice is the one whose few batches happened to be fastest, on a machine whose speed
// moves by more than settings differ.
func (t *degreesTuning) again(ctx context.Context) error {
	tried := map[Degrees][]*Trial{}
	var order []*Pipelined
	for _, c := range t.out.Grid {
		if slices.ContainsFunc(t.out.Choices, func(o Choice) bool { return o.Refused == "" && o.At == c.At }) {
			order = append(order, c.Simulated)
		}
	}
	for round := range rounds {
		for _, p := range order {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			trial, err := t.Machine(ctx, p, Iterations(p.At, TraversalBatches), false)
			if err != nil {
				return fmt.Errorf("tune: %s again: %w", p.At, err)
			}
			tried[p.At] = append(tried[p.At], trial)
		}
		t.Progress(t.of, t.of, fmt.Sprintf("the choices again, round %d of %d", round+1, rounds))
	}
	for i := range t.out.Choices {
		c := &t.out.Choices[i]
		if trials := tried[c.At]; c.Refused == "" && len(trials) > 0 {
			slices.SortFunc(trials, func(a, b *Trial) int { return cmp.Compare(a.StepS, b.StepS) })
			c.Measured = &trials[rounds/2].Scored
		}
	}
	return nil
}

// errorsOf compares each predictor with what was measured, over the grid.
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
		e := PredictionError{Method: by.method}
		var steps []float64
		for _, c := range grid {
			if c.Measured == nil {
				continue
			}
			step := math.Abs(by.score(c).StepS/c.Measured.StepS - 1)
			memory := math.Abs(float64(by.score(c).Peak())/float64(max(c.Measured.Peak(), 1)) - 1)
			e.Settings++
			steps = append(steps, step)
			e.MeanStep += step
			e.MeanMemory += memory
			e.WorstStep, e.WorstMemory = max(e.WorstStep, step), max(e.WorstMemory, memory)
		}
		if e.Settings > 0 {
			e.MeanStep /= float64(e.Settings)
			slices.Sort(steps)
			e.MedianStep = middle(steps)
			e.MeanMemory /= float64(e.Settings)
		}
		out = append(out, e)
	}
	return out
}
