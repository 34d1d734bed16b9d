package race

import (
	"context"
	"math/rand/v2"
)

// Together starts rivals, calls the function f with them, and closes them. It returns the error of a start or of f. If
// there is none, it returns the error of the first rival that did not end well.
func Together(ctx context.Context, commands []Command, f func([]*Rival) error) (err error) {
	var rivals []*Rival
	defer func() {
		for _, r := range rivals {
			if closed := r.Close(); err == nil {
				err = closed
			}
		}
	}()
	for _, c := range commands {
		r, err := Start(ctx, c)
		if err != nil {
			return err
		}
		rivals = append(rivals, r)
	}
	return f(rivals)
}

// Rounds visits all rivals once per round, after a warm-up round. Each round has another random order. So a temporary
// slowdown affects all rivals, and no rival always follows the same other one. If `before` is not nil, it is called
// before each counted round, while all rivals are idle. Counted rounds are numbered from 1. `visited` is called after
// each counted visit, with the rival's position. `ended` is called after each round. Its argument is 0 after the
// warm-up.
func Rounds(ctx context.Context, rivals []*Rival, rounds int, before func(round int) error,
	visited func(at int, w Work), ended func(round int)) error {
	order := make([]int, len(rivals))
	for i := range order {
		order[i] = i
	}
	rng := rand.New(rand.NewPCG(1, 1))
	for round := range rounds + 1 {
		if round > 0 && before != nil {
			if err := before(round); err != nil {
				return err
			}
		}
		rng.Shuffle(len(order), func(a, b int) { order[a], order[b] = order[b], order[a] })
		if err := takeTurns(ctx, rivals, order, round, visited); err != nil {
			return err
		}
		ended(round)
	}
	return nil
}

// takeTurns visits the rivals in the given order. It calls the function `visited` after each visit, except in round 0,
// which is the warm-up.
func takeTurns(ctx context.Context, rivals []*Rival, order []int, round int, visited func(at int,
	w Work)) error {
	for _, at := range order {
		w, err := visit(ctx, rivals[at])
		if err != nil {
			return err
		}
		if round > 0 {
			visited(at, w)
		}
	}
	return nil
}
