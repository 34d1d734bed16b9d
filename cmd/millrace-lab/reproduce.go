package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/spf13/cobra"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/internal/terminal"
	_ "github.com/millrace-ml/millrace/lab/reproduce" // its experiments
	"github.com/millrace-ml/millrace/lab/reproduce/table"
)

func reproduceCommand() *cobra.Command {
	var asJSON bool
	var o table.Options
	var set []string
	var printed atomic.Int32
	c := &cobra.Command{
		Use: "reproduce [EXPERIMENT]...", Short: "The papers' tables and figures beside what millrace answers",
		Long: "Reproduce tables and figures of the papers from layer descriptions, described devices,\n" +
			"planners and the simulator: the paper's value, ours, the difference, and why.\n" +
			"Without a name it lists what there is; \"all\" is all of it.",
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
			var chosen []table.Experiment
			for _, name := range names {
				if name == "all" {
					chosen = append(chosen, table.Experiments()...)
					continue
				}
				e, err := table.Lookup(name)
				if err != nil {
					return cli.BadInput(err)
				}
				chosen = append(chosen, e)
			}
			o.Set = map[string]string{}
			for _, s := range set {
				name, value, ok := strings.Cut(s, "=")
				if !ok {
					return cli.BadInput(fmt.Errorf("--set %q has no =; write name=value", s))
				}
				o.Set[name] = value
			}
			for _, e := range chosen { // before the first of them takes its minutes
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
				if !asJSON {
					var text strings.Builder
					printTable(&text, terminal.Of(out), t)
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
	c.Flags().BoolVar(&asJSON, "json", false, "for machines")
	c.Flags().StringVar(&o.Profiles, "profiles", "", "a folder with the papers' published profiles, to use in place of "+
		"analytic costs")
	c.Flags().StringVar(&o.Formula, "formula", "", "paper or artifact: which of a planner's formulas to use")
	c.Flags().StringArrayVar(&set, "set", nil, "a planner's setting, name=value")
	return c
}

// widest is the longest value that stands in a column; tables of longer ones are stacked.
const widest = 36

// printTable prints a reproduced table. A reason that many rows share is a numbered note.
func printTable(w io.Writer, s terminal.Screen, of *table.Table) {
	item := func(mark, text string) {
		fmt.Fprint(w, s.Wrap(mark, strings.Repeat(" ", terminal.Width(mark)), text))
	}
	item("", s.Paint(terminal.Bold, of.Title))
	item("paper's values: ", of.Source)
	fmt.Fprintln(w)
	stacked := slices.ContainsFunc(of.Rows, func(r table.Row) bool {
		return max(terminal.Width(r.Paper), terminal.Width(r.Ours)) > widest
	})
	t := terminal.Table{Columns: []terminal.Column{{Wraps: true}, {Heading: "paper", Number: true},
		{Heading: "ours", Number: true}, {Heading: "difference", Number: true}, {}}}
	var whys []string
	number := map[string]int{}
	for _, r := range of.Rows {
		note := ""
		if r.Why != "" {
			if number[r.Why] == 0 {
				whys = append(whys, r.Why)
				number[r.Why] = len(whys)
			}
			note = fmt.Sprintf("[%d]", number[r.Why])
		}
		if stacked {
			item("  ", r.What+": "+r.Difference+" "+note)
			item("    paper  ", r.Paper)
			item("    ours   ", r.Ours)
			for _, a := range r.Ablations {
				item("    if     ", a.Assumption+": "+a.Ours)
			}
			continue
		}
		t.Add(r.What, r.Paper, r.Ours, r.Difference, note)
		for _, a := range r.Ablations {
			t.AddFaint("· if "+a.Assumption, "", a.Ours, "", "")
		}
	}
	_ = t.Write(w, s) // as any other line of the table
	fmt.Fprintln(w)
	for i, why := range whys {
		item(fmt.Sprintf("  [%d] ", i+1), why)
	}
	for _, n := range of.Notes {
		item("  - ", n)
	}
	if agrees := of.Agreement().String(); agrees != "" {
		item("  agreement: ", agrees)
	}
	fmt.Fprintln(w)
}
