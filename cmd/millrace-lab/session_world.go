package main

import (
	"context"

	"github.com/millrace-ml/millrace/cmd/internal/together"
	"github.com/millrace-ml/millrace/launch"
	"github.com/millrace-ml/millrace/run"
	"github.com/millrace-ml/millrace/run/process"
)

// among has a session be one of the processes of a world, a worker each. It changes a config for its part, and
// returns what is to be closed behind the run; both are left alone where the process is the only one.
func among(ctx context.Context, w *launch.World, c *run.Config) (func() error, error) {
	if w.Size == 1 {
		return func() error { return nil }, nil
	}
	party, err := together.Meet(ctx, w, together.Build())
	if err != nil {
		return nil, err
	}
	c.World = &process.World{Rank: w.Rank, Hosts: party.Hosts()}
	var ranks []int
	for rank := range party.Places {
		ranks = append(ranks, rank)
		c.World.Workers = append(c.World.Workers, process.Location{Process: rank})
	}
	c.Carriers, c.Cores = party.Carriers(ranks, 1), 0
	if w.Rank == 0 {
		c.World.Links, err = party.Lead(ctx).Begin()
		return party.Close, err
	}
	link, err := party.Follow(ctx, nil)
	c.World.Links = append(c.World.Links, link)
	c.Next = nil // the first process's
	return party.Close, err
}
