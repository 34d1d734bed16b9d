package bench

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
)

// Session is a runner that somebody opened and has to close.
type Session interface {
	Runner
	io.Closer
}

// Open starts a rival; it is the opener of [Sweep] outside tests.
func Open(ctx context.Context, c Command) (Session, error) { return Start(ctx, c) }

// Measured is what a candidate reached on its own.
type Measured struct {
	Command Command   `json:"-"`
	Name    string    `json:"name"`
	Rates   []float64 `json:"rates"`  // samples a second, by visit
	Median  float64   `json:"median"` // samples a second
}

const (
	finalists = 3 // candidates that the second round of a sweep measures again
	// warmVisits come before what counts: the first is slow, and the second may still
	// grow memory.
	warmVisits = 2
)

// Sweep finds the best of a rival's candidates: each is measured over so many visits,
// then the three fastest once more over twice as many, for the fastest of many noisy
// figures is too often a lucky one. It returns all, the fastest first; those of the
// second round, with its figures, stand before the others.
//
// One candidate is open at a time. progress, when not nil, is told of each figure.
func Sweep(ctx context.Context, candidates []Command, visits int, open func(context.Context, Command) (Session, error), progress func(Measured)) ([]Measured, error) {
	if len(candidates) == 0 || visits < 1 {
		return nil, fmt.Errorf("bench: a sweep of %d candidates, %d visits each; both must be 1 at least", len(candidates), visits)
	}
	round := func(of []Command, visits int) ([]Measured, error) {
		var found []Measured
		for _, c := range of {
			m, err := measure(ctx, c, visits, open)
			if err != nil {
				return nil, err
			}
			if progress != nil {
				progress(m)
			}
			found = append(found, m)
		}
		slices.SortStableFunc(found, func(a, b Measured) int { return cmp.Compare(b.Median, a.Median) })
		return found, nil
	}
	all, err := round(candidates, visits)
	if err != nil || len(all) == 1 {
		return all, err
	}
	last := min(finalists, len(all))
	var again []Command
	for _, m := range all[:last] {
		again = append(again, m.Command)
	}
	second, err := round(again, 2*visits)
	if err != nil {
		return nil, err
	}
	return append(second, all[last:]...), nil
}

func measure(ctx context.Context, c Command, visits int, open func(context.Context, Command) (Session, error)) (m Measured, err error) {
	session, err := open(ctx, c)
	if err != nil {
		return Measured{}, err
	}
	defer func() {
		if closed := session.Close(); err == nil {
			err = closed
		}
	}()
	if err := Warm(ctx, warmVisits, session); err != nil {
		return Measured{}, err
	}
	m = Measured{Command: c, Name: c.Name}
	for range visits {
		w, err := visit(ctx, session)
		if err != nil {
			return Measured{}, err
		}
		m.Rates = append(m.Rates, w.Rate())
	}
	m.Median = Median(m.Rates)
	return m, nil
}
