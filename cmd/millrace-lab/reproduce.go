package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync/atomic"

	"github.com/spf13/cobra"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/lab/papers"
	"github.com/millrace-ml/millrace/lab/reproduce/table"
)

func reproduceCommand() *cobra.Command {
	var asJSON bool
	var o table.Options
	var set []string
	var results string
	var printed atomic.Int32
	c := &cobra.Command{
		Use: "reproduce [EXPERIMENT]...", Short: "The papers' tables and figures beside what millrace answers",
		Long: `Reproduces tables and figures of the papers from layer descriptions, described devices, planners and the
simulator: the paper's value, ours, the difference, and why. Without a name it lists the experiments; "all"
runs those of all papers.`,
		Example: "  millrace-lab reproduce\n  millrace-lab reproduce bapipe-table2\n" +
			"  millrace-lab reproduce dapple-table4 --profiles ../profiles --formula artifact",
		RunE: func(c *cobra.Command, names []string) error {
			out := c.OutOrStdout()
			if len(names) == 0 && (o.Profiles != "" || o.Formula != "" || len(set) > 0) {
				return cli.BadInput(fmt.Errorf("--profiles, --formula and --set are of an experiment; name one of those that " +
					"millrace-lab reproduce lists"))
			}
			if len(names) == 0 {
				var rows [][2]string
				for _, e := range table.Experiments() {
					rows = append(rows, [2]string{e.Name, e.Title})
				}
				_, err := io.WriteString(out, terminal.Of(out).Facts(rows))
				return err
			}
			chosen, err := experiments(names)
			if err != nil {
				return cli.BadInput(err)
			}
			o.Set = map[string]string{}
			for _, s := range set {
				name, value, ok := strings.Cut(s, "=")
				if !ok {
					return cli.BadInput(fmt.Errorf("--set %q has no =; write name=value", s))
				}
				o.Set[name] = value
			}
			if results != "" && (o.Profiles != "" || o.Formula != "" || len(set) > 0) {
				return cli.BadInput(fmt.Errorf("--results are of the experiments as they are; leave out --profiles, --formula " +
					"and --set"))
			}
			for _, e := range chosen { // check all before the first one runs, because each takes minutes
				if err := e.Check(o); err != nil {
					return cli.BadInput(err)
				}
			}
			var tables []*table.Table
			meter := cli.StartMeter("reproduce")
			defer meter.Stop()
			cli.Keeps(c.Context(), func() string {
				return fmt.Sprintf("%d of %s had been printed by then", printed.Load(), terminal.Count(len(chosen), "table"))
			})
			for i, e := range chosen {
				meter.Doing(fmt.Sprintf("%s, %d of %d", e.Name, i+1, len(chosen)))
				t, err := e.Run(c.Context(), o)
				if c.Context().Err() != nil {
					return context.Cause(c.Context())
				}
				if err != nil {
					return cli.BadInput(err)
				}
				if results != "" {
					if err := papers.Keep(results, t); err != nil {
						return err
					}
				}
				if !asJSON {
					var text strings.Builder
					t.Print(&text, terminal.Of(out))
					if err := cli.Aside(func() error { _, err := io.WriteString(out, text.String()); return err }); err != nil {
						return err
					}
					printed.Add(1)
				}
				tables = append(tables, t)
			}
			meter.Stop()
			if asJSON {
				return cli.WriteJSON(out, tables)
			}
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print the result as JSON")
	c.Flags().StringVar(&o.Profiles, "profiles", "", "a folder with the papers' published profiles, to use in place of "+
		"analytic costs")
	c.Flags().StringVar(&results, "results", "", "a folder to keep what is found in, as NAME.json")
	c.Flags().StringVar(&o.Formula, "formula", "", "paper or artifact: which of a planner's formulas to use")
	c.Flags().StringArrayVar(&set, "set", nil, "a planner's setting, name=value")
	return c
}

// experiments returns the experiments with these names; "all" names all experiments of the papers.
func experiments(names []string) (chosen []table.Experiment, err error) {
	for _, name := range names {
		if name == "all" {
			for _, e := range table.Experiments() {
				if e.OfThePapers() {
					chosen = append(chosen, e)
				}
			}
			continue
		}
		e, err := table.Lookup(name)
		if err != nil {
			return nil, err
		}
		chosen = append(chosen, e)
	}
	return chosen, nil
}

func papersCommand() *cobra.Command {
	return &cobra.Command{
		Use: "papers [FOLDER]", Short: "Write docs/papers.md of what reproduce has kept",
		Long: `Writes the page of the four papers, docs/papers.md, with its plots: every table and figure, ours and theirs,
what agrees, and every mechanism with its tests. It reads lab/results/papers of the repository in FOLDER, by
default the current folder, and runs no experiment; make papers runs them first.`,
		Example: "  millrace-lab reproduce pipedream-fig1 --results lab/results/papers\n  millrace-lab papers",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			return cli.BadInput(papers.Write(strings.Join(args, "")))
		},
	}
}
