package race

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/millrace-ml/millrace/internal/stats"
)

// Session is a runner that its user must close.
type Session interface {
	Runner
	io.Closer
}

// Open starts a rival. [Sweep] uses it as its opener, except in tests.
func Open(ctx context.Context, c Command) (Session, error) { return Start(ctx, c) }

// Measured is the speed of a single candidate.
type Measured struct {
	Command Command   `json:"-"`
	Name    string    `json:"name"`
	Rates   []float64 `json:"rates"`  // samples per second, by visit
	Median  float64   `json:"median"` // samples per second
}

const (
	finalists = 4 // candidates that the second round of a sweep measures again
	// warmVisits is the number of visits before the counted ones: the first is slow, and the second may still allocate
	// memory.
	warmVisits = 2
)

// Sweep finds the best of a rival's candidates, in two rounds. A single candidate gets only the first round.
//
// In the first round one candidate is open at a time, and its fastest visit decides its rank. Other work on the machine
// can only slow a visit down, maybe for minutes, so the fastest visit is the least disturbed. In the second round the
// four best candidates are open together and take turns, each with twice as many visits as in the first round. So a
// slowdown affects all of them, and the highest median wins. Sweep returns all candidates, those of the second round
// first. Each group is ordered from the best to the worst.
//
// If progress is not nil, it gets each result.
func Sweep(ctx context.Context, candidates []Command, visits int, open func(context.Context, Command) (Session, error),
	progress func(Measured)) ([]Measured, error) {
	if len(candidates) == 0 || visits < 1 {
		return nil, fmt.Errorf("race: a sweep of %d candidates, %d visits each; both must be 1 at least",
			len(candidates), visits)
	}
	if progress == nil {
		progress = func(Measured) {}
	}
	var first []Measured
	for _, c := range candidates {
		one, err := measure(ctx, []Command{c}, visits, open)
		if err != nil {
			return nil, err
		}
		progress(one[0])
		first = append(first, one[0])
	}
	slices.SortStableFunc(first, func(a, b Measured) int { return cmp.Compare(slices.Max(b.Rates), slices.Max(a.Rates)) })
	if len(first) == 1 {
		return first, nil
	}
	last := min(finalists, len(first))
	var again []Command
	for _, m := range first[:last] {
		again = append(again, m.Command)
	}
	second, err := measure(ctx, again, 2*visits, open)
	if err != nil {
		return nil, err
	}
	for _, m := range second {
		progress(m)
	}
	slices.SortStableFunc(second, func(a, b Measured) int { return cmp.Compare(b.Median, a.Median) })
	return append(second, first[last:]...), nil
}

// measure opens the candidates, visits them in turn and closes them.
func measure(ctx context.Context, candidates []Command, visits int, open func(context.Context, Command) (Session,
	error)) (found []Measured, err error) {
	var sessions []Session
	defer func() {
		for _, s := range sessions {
			if closed := s.Close(); err == nil {
				err = closed
			}
		}
	}()
	for _, c := range candidates {
		s, err := open(ctx, c)
		if err != nil {
			return nil, err
		}
		sessions = append(sessions, s)
		found = append(found, Measured{Command: c, Name: c.Name})
		if err := Warm(ctx, warmVisits, s); err != nil {
			return nil, err
		}
	}
	for range visits {
		for i, s := range sessions {
			w, err := visit(ctx, s)
			if err != nil {
				return nil, err
			}
			found[i].Rates = append(found[i].Rates, w.Rate())
		}
	}
	for i := range found {
		found[i].Median = stats.Median(found[i].Rates)
	}
	return found, nil
}
