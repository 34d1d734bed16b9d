package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/cmd/internal/prepare"
	"github.com/millrace-ml/millrace/internal/names"
	"github.com/millrace-ml/millrace/internal/terminal"
)

// keptRow is one line of profile ls, for people and as JSON.
type keptRow struct {
	File    string    `json:"file"`
	Bytes   int64     `json:"bytes"`
	Model   string    `json:"model,omitempty"`
	Built   string    `json:"settings,omitempty"` // settings of the model
	ModelID string    `json:"model_id,omitempty"`
	Machine string    `json:"machine,omitempty"`
	AtOnce  int       `json:"at_once,omitempty"` // workers that compute at once
	Threads int       `json:"threads,omitempty"`
	Sizes   []int     `json:"sizes,omitempty"`
	Visits  []int     `json:"visits,omitempty"` // number of visits to each size
	TookS   float64   `json:"took_s,omitempty"`
	Last    time.Time `json:"last,omitzero"`
	Workers []int     `json:"workers,omitempty"` // workers between which the wire was measured
	Problem string    `json:"problem,omitempty"`
}

func rowOf(m prepare.Measured) keptRow {
	r := keptRow{File: filepath.Base(m.Path), Bytes: m.Bytes}
	switch {
	case m.Old:
		r.Problem = "of an earlier millrace, not read any more"
	case m.Err != nil:
		r.Problem = "damaged: " + m.Err.Error()
	case m.Links != nil:
		r.Machine, r.Last = m.Links.Machine, m.Links.Measured
		for _, a := range m.Links.AllReduce {
			r.Workers = append(r.Workers, a.Workers)
		}
	default:
		of := m.Record
		r.Model, r.ModelID, r.Machine, r.Built = of.Model, of.ModelID, of.Machine, of.Settings
		r.AtOnce, r.Threads, r.TookS = of.Concurrency, of.Threads, of.TookS()
		r.Sizes, r.Visits = of.Sizes()
		for _, s := range of.Sittings {
			r.Last = s.Began
		}
	}
	return r
}

func profileListCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "ls", Short: "List what has been measured on this machine", Args: cobra.NoArgs,
		Long: `ls lists the measurements that are kept: for each model the sizes of micro-batches, and how many workers
computed at once. profile, plan and train use them, and measure only what is missing.`,
		Example: "  millrace profile ls\n  millrace profile ls --json",
		RunE: func(c *cobra.Command, _ []string) error {
			all, err := prepare.AllMeasured()
			if err != nil {
				return err
			}
			rows := make([]keptRow, 0, len(all))
			for _, m := range all {
				rows = append(rows, rowOf(m))
			}
			if asJSON {
				return cli.WriteJSON(c.OutOrStdout(), rows)
			}
			return printKept(c, rows)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print the result as JSON")
	return c
}

func printKept(c *cobra.Command, rows []keptRow) error {
	out := c.OutOrStdout()
	if len(rows) == 0 {
		_, err := fmt.Fprintln(out, "nothing has been measured on this machine yet; profile, plan and train measure")
		return err
	}
	table := terminal.Table{Columns: []terminal.Column{{Heading: "model"}, {Heading: "settings", Wraps: true},
		{Heading: "workers", Number: true},
		{Heading: "threads", Number: true, Spare: 4}, {Heading: "micro-batches", Wraps: true},
		{Heading: "took", Number: true, Spare: 2}, {Heading: "measured", Spare: 1},
		{Heading: "size", Number: true, Spare: 3}, {Heading: "file"}}}
	var problems []string
	for _, r := range rows {
		switch {
		case r.Problem != "":
			problems = append(problems, r.File+": "+r.Problem)
			continue
		case r.Model == "":
			table.Add("(messages)", "", strings.Trim(fmt.Sprint(r.Workers), "[]"), "", "", "", day(r.Last),
				terminal.Bytes(r.Bytes), strings.TrimSuffix(r.File, prepare.Ending))
			continue
		}
		file := strings.TrimSuffix(r.File, prepare.Ending)
		table.Add(names.Shown(r.Model), names.Shown(r.Built), fmt.Sprint(r.AtOnce), fmt.Sprint(r.Threads),
			strings.Trim(fmt.Sprint(r.Sizes), "[]"),
			terminal.Duration(r.TookS), day(r.Last), terminal.Bytes(r.Bytes), file)
	}
	if len(problems) < len(rows) {
		if err := table.Write(out, terminal.Of(out)); err != nil {
			return err
		}
	}
	for _, p := range problems {
		fmt.Fprintln(out, names.Shown(p))
	}
	return nil
}

// day formats when something was measured; "" if that is unknown.
func day(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Local().Format("2006-01-02 15:04")
}

func profileRemoveCommand() *cobra.Command {
	var all bool
	c := &cobra.Command{
		Use: "rm [MODEL|FILE...]", Short: "Remove what has been measured, so that it is measured again",
		Long: `rm removes the measurements of the named models, or the named files that ls lists. --all removes everything,
including damaged files and those of earlier versions of millrace.`,
		Example: "  millrace profile rm gpt\n  millrace profile rm --all",
		RunE: func(c *cobra.Command, args []string) error {
			if all == (len(args) > 0) {
				return cli.BadInput(fmt.Errorf("name models or files that profile ls lists, or give --all"))
			}
			measured, err := prepare.AllMeasured()
			if err != nil {
				return err
			}
			for _, arg := range args {
				if !slices.ContainsFunc(measured, func(m prepare.Measured) bool { return isOf(m, arg) }) {
					return cli.BadInput(fmt.Errorf("nothing of %s has been measured; see millrace profile ls", arg))
				}
			}
			gone := slices.DeleteFunc(measured, func(m prepare.Measured) bool {
				return !all && !slices.ContainsFunc(args, func(arg string) bool { return isOf(m, arg) })
			})
			n, err := removeMeasured(c, gone)
			if err != nil {
				return err
			}
			fmt.Fprintf(c.OutOrStdout(), "removed %s\n", terminal.Count(n, "file"))
			return nil
		},
	}
	c.Flags().BoolVar(&all, "all", false, "remove everything")
	return c
}

// removeMeasured removes files while no process adds to them, and returns how many still existed.
func removeMeasured(c *cobra.Command, gone []prepare.Measured) (n int, err error) {
	if len(gone) == 0 {
		return 0, nil
	}
	meter := cli.StartMeter("profile rm")
	defer meter.Stop()
	waits := func() { meter.Doing("waiting for a millrace that measures on this machine") }
	err = prepare.WithoutMeasurers(c.Context(), waits, func() error {
		for _, m := range gone {
			err := os.Remove(m.Path)
			if errors.Is(err, fs.ErrNotExist) { // another process was faster
				continue
			}
			if err != nil {
				return fmt.Errorf("profile: %w", err)
			}
			n++
		}
		return nil
	})
	return n, err
}

// isOf reports whether a word names a file, by its name or its model.
func isOf(m prepare.Measured, word string) bool {
	r := rowOf(m)
	return r.File == word || r.File == word+prepare.Ending || r.Model != "" && r.Model == word
}
