package race

import (
	"context"
	"fmt"
	"time"
)

// Work is what a runner did in one visit.
type Work struct {
	Samples int           // rows trained
	Time    time.Duration // duration by the runner's own clock
}

// Rate returns samples per second.
func (w Work) Rate() float64 { return float64(w.Samples) / w.Time.Seconds() }

func (w Work) check() error {
	if w.Samples < 1 || w.Time <= 0 {
		return fmt.Errorf("%d samples in %v; both must be more than 0", w.Samples, w.Time)
	}
	return nil
}

// Runner trains when it is visited and is idle in between. Runners share the cores of the machine, and only the
// visited one may use them.
type Runner interface {
	Name() string
	// Step trains a fixed number of optimizer steps.
	Step(ctx context.Context) (Work, error)
}

// Warm visits each runner this many times and ignores the results. The first steps of a process load kernels and
// allocate memory.
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
