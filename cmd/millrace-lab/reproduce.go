package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/lab/reproduce"
)

func reproduceCommand() *cobra.Command {
	var asJSON bool
	var o reproduce.Options
	var set []string
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
				for _, e := range reproduce.Experiments() {
					fmt.Fprintf(out, "%-18s %s\n", e.Name, e.Title)
				}
				return nil
			}
			var chosen []reproduce.Experiment
			for _, name := range names {
				if name == "all" {
					chosen = append(chosen, reproduce.Experiments()...)
					continue
				}
				e, err := reproduce.Lookup(name)
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
			var tables []*reproduce.Table
			for _, e := range chosen {
				t, err := e.Run(c.Context(), o)
				if c.Context().Err() != nil {
					return context.Cause(c.Context())
				}
				if err != nil {
					return cli.BadInput(err)
				}
				if !asJSON {
					printTable(out, t)
				}
				tables = append(tables, t)
			}
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
func printTable(w io.Writer, t *reproduce.Table) {
	fmt.Fprintln(w, t.Title)
	printItem(w, "paper's values: ", t.Source)
	fmt.Fprintln(w)
	width := [4]int{0, len("paper"), len("ours"), len("difference")}
	for _, r := range t.Rows {
		for i, text := range []string{r.What, r.Paper, r.Ours, r.Difference} {
			width[i] = max(width[i], utf8.RuneCountInString(text))
		}
	}
	line := func(what, paper, ours, difference, note string) {
		text := fmt.Sprintf("  %-*s  %*s  %*s  %*s  %s", width[0], what, width[1], paper, width[2], ours, width[3],
			difference, note)
		fmt.Fprintln(w, strings.TrimRight(text, " "))
	}
	stacked := width[1] > widest || width[2] > widest
	if !stacked {
		line("", "paper", "ours", "difference", "")
	}
	var whys []string
	number := map[string]int{}
	for _, r := range t.Rows {
		note := ""
		if r.Why != "" {
			if number[r.Why] == 0 {
				whys = append(whys, r.Why)
				number[r.Why] = len(whys)
			}
			note = fmt.Sprintf("[%d]", number[r.Why])
		}
		if stacked {
			fmt.Fprintf(w, "  %s\n", strings.TrimRight(r.What+": "+r.Difference+" "+note, " "))
			fmt.Fprintf(w, "    paper  %s\n    ours   %s\n", r.Paper, r.Ours)
			continue
		}
		line(r.What, r.Paper, r.Ours, r.Difference, note)
	}
	fmt.Fprintln(w)
	for i, why := range whys {
		printItem(w, fmt.Sprintf("  [%d] ", i+1), why)
	}
	for _, n := range t.Notes {
		printItem(w, "  - ", n)
	}
	if len(whys)+len(t.Notes) > 0 {
		fmt.Fprintln(w)
	}
}

// lineWidth is the most columns of a line of prose.
const lineWidth = 110

// printItem prints a sentence behind a mark, its further lines as far in as its first.
func printItem(w io.Writer, mark, text string) {
	line := mark
	at := utf8.RuneCountInString(mark)
	for i, word := range strings.Fields(text) {
		n := utf8.RuneCountInString(word)
		switch {
		case i > 0 && at+1+n > lineWidth:
			fmt.Fprintln(w, line)
			line, at = strings.Repeat(" ", utf8.RuneCountInString(mark)), utf8.RuneCountInString(mark)
		case i > 0:
			line, at = line+" ", at+1
		}
		line, at = line+word, at+n
	}
	fmt.Fprintln(w, line)
}
