package race

import (
	"context"
	"fmt"
	"math"
)

// Agreement holds the losses of two rivals in each step, from the first step on.
type Agreement struct {
	A      string    `json:"a"`
	B      string    `json:"b"`
	LossA  []float64 `json:"loss_a"`
	LossB  []float64 `json:"loss_b"`
	Within float64   `json:"within"` // largest relative difference in a step
}

// Agree runs two rivals for some steps and compares their losses. It refuses losses that differ by a larger fraction
// than `within`, and different numbers of parameters. It also refuses losses that never change, because they mean that
// nothing is learned.
func Agree(ctx context.Context, a, b Command, steps int, within float64) (Agreement, error) {
	found := Agreement{A: a.Name, B: b.Name}
	a.Steps, b.Steps = 1, 1
	err := Together(ctx, []Command{a, b}, func(rivals []*Rival) error {
		for range steps {
			for _, r := range rivals {
				if _, err := r.Step(ctx); err != nil {
					return err
				}
			}
			found.LossA, found.LossB = append(found.LossA, rivals[0].Loss), append(found.LossB, rivals[1].Loss)
		}
		if p, q := rivals[0].Description.Parameters, rivals[1].Description.Parameters; p != q {
			return fmt.Errorf("race: %s has %d parameters, %s %d", a.Name, p, b.Name, q)
		}
		return nil
	})
	if err != nil {
		return found, err
	}
	err = found.judge(within)
	return found, err
}

// judge returns an error if losses differ by more than `within`, or never change.
func (g *Agreement) judge(within float64) error {
	changes := false
	for i, b := range g.LossB {
		off := math.Abs(g.LossA[i]-b) / math.Abs(b)
		if !(off <= within) {
			return fmt.Errorf("race: step %d has the loss %v in %s and %v in %s; %g of it at most may lie between them",
				i+1, g.LossA[i], g.A, b, g.B, within)
		}
		g.Within = max(g.Within, off)
		changes = changes || b != g.LossB[0]
	}
	if !changes {
		return fmt.Errorf("race: %d losses of %s are all %v; it learns nothing", len(g.LossB), g.B, g.LossB)
	}
	return nil
}
