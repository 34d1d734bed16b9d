package race

import (
	"context"
	"fmt"
	"time"
)

// Work is what a runner has done in one visit.
type Work struct {
	Samples int           // rows trained
	Time    time.Duration // how long it took, by the runner's own clock
}

// Rate is samples a second.
func (w Work) Rate() float64 { return float64(w.Samples) / w.Time.Seconds() }

// check refuses work that has no rate.
func (w Work) check() error {
	if w.Samples < 1 || w.Time <= 0 {
		return fmt.Errorf("%d samples in %v; both must be more than 0", w.Samples, w.Time)
	}
	return nil
}

// Runner trains when it is visited and stands still in between: two runners share
// the cores of the machine, and only the one visited may use them.
type Runner interface {
	Name() string
	// Step trains a fixed number of optimizer steps.
	Step(ctx context.Context) (Work, error)
}

// Warm visits each runner so many times and forgets what they took: the first steps
// of a process load kernels and grow its memory.
func Warm(ctx context.Context, visits int, runners ...Runner) error {
	for range visits {
		for _, r := range runners {
			if _, err := visit(ctx, r); err != nil {
				return err
			}
		}
	}
	return nil
}

func visit(ctx context.Context, r Runner) (Work, error) {
	if err := context.Cause(ctx); err != nil {
		return Work{}, fmt.Errorf("race: %s: %w", r.Name(), err)
	}
	w, err := r.Step(ctx)
	if err == nil {
		err = w.check()
	}
	if err != nil {
		return Work{}, fmt.Errorf("race: %s: %w", r.Name(), err)
	}
	return w, nil
}
