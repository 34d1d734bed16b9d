package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/lab/p2p"
	"github.com/millrace-ml/millrace/lab/record"
)

// benchP2PCommand returns the command that compares ways of sending messages.
func benchP2PCommand() *cobra.Command {
	s, output, asJSON := p2p.Usual(), "", false
	c := &cobra.Command{
		Use: "p2p", Short: "Messages between two processes: beside raw TCP, Gloo and MPI",
		Long: `Two processes on this machine send messages to and fro, over each library in turn: raw TCP, millrace, Gloo
through libtorch, Open MPI and MPICH. Each visit is compared with a visit of raw TCP. Libraries that are not
installed are named and left out. Then a long message is sent while both processes compute, and vectors are
summed.`,
		Example: "  millrace-lab bench p2p -o lab/results/p2p.json",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := s.Check(); err != nil {
				return cli.BadInput(err)
			}
			self, err := os.Executable()
			if err != nil {
				return fmt.Errorf("bench p2p: %w", err)
			}
			dir, remove, err := scratch()
			if err != nil {
				return err
			}
			defer remove()
			players, missing, err := p2p.Players(c.Context(), []string{self, "player"}, dir)
			if err != nil {
				return err
			}
			for _, m := range missing {
				fmt.Fprintln(c.ErrOrStderr(), "left out:", m)
			}
			r, err := p2p.Measure(c.Context(), players, s, c.ErrOrStderr())
			if err != nil {
				return err
			}
			if err := record.Write(output, r); err != nil {
				return err
			}
			if asJSON {
				return cli.WriteJSON(c.OutOrStdout(), r)
			}
			return r.Markdown(c.OutOrStdout())
		},
	}
	f := c.Flags()
	f.IntVar(&s.Rounds, "rounds", s.Rounds, "pairs of visits")
	f.IntSliceVar(&s.Sizes, "sizes", s.Sizes, "bytes of messages")
	f.DurationVar(&s.Visit, "visit", s.Visit, "how long a visit takes, about")
	f.DurationVar(&s.Computes, "computes", s.Computes, "for how long both compute while a message is under way")
	resultsFlag(c, &output)
	f.BoolVar(&asJSON, "json", false, "print the result as JSON")
	return c
}

// playerCommand returns the command that runs a player of package p2p, or its second process.
func playerCommand() *cobra.Command {
	return &cobra.Command{
		Use: "player WAY [second]", Short: "Send messages to and fro (used by bench p2p)", Hidden: true,
		Example: "  echo turns 4096 1000 0 | millrace-lab player raw", Args: cobra.RangeArgs(1, 2),
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 2 {
				return p2p.Follow(args[0], c.InOrStdin(), c.OutOrStdout())
			}
			self, err := os.Executable()
			if err != nil {
				return fmt.Errorf("player: %w", err)
			}
			return p2p.Play(c.Context(), args[0], []string{self, "player", args[0], "second"}, c.InOrStdin(),
				c.OutOrStdout())
		},
	}
}
