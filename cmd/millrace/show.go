package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/cmd/internal/prepare"
	"github.com/millrace-ml/millrace/cmd/internal/words"
	"github.com/millrace-ml/millrace/cmd/millrace/internal/reporting"
	"github.com/millrace-ml/millrace/internal/document"
	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/report"
	"github.com/millrace-ml/millrace/report/folder"
)

func simulateCommand() *cobra.Command {
	flags := prepare.JobFlags{Repeats: true}
	var asJSON bool
	var output string
	c := &cobra.Command{
		Use: "simulate", Short: "Predict a plan's step time and memory on this machine's profile",
		Example: "  millrace simulate --model gpt --workers 2 --batch 32 --schedule afab\n" +
			"  millrace simulate --model gpt --plan plan.json -o predicted.json.gz",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			j, err := flags.Job()
			if err != nil {
				return err
			}
			p, err := prepare.Prepare(c, j, false)
			if err != nil {
				return err
			}
			t, err := prepare.CheckAndSimulate(p)
			if err != nil {
				return err
			}
			if output != "" {
				if err := t.WriteFile(output); err != nil {
					return err
				}
			}
			if asJSON {
				return cli.WriteJSON(c.OutOrStdout(), p.Plan.Predicted)
			}
			err = report.Terminal(c.OutOrStdout(), report.Inputs{Plan: p.Plan, LayerNames: prepare.NamesOf(p.Model),
				Simulated: t, OneRun: p.OneRun()})
			return errors.Join(err, cli.Wrote(c.OutOrStdout(), output))
		},
	}
	flags.Add(c, job.ModelOptions, job.PlanOptions, job.ElasticOptions, job.ClusterOptions,
		[]job.Option{{Name: "plan", Doc: "a plan to simulate instead of searching one",
			Set: func(j *job.Job, v string) error { j.Plan.File = v; return nil }}})
	cli.JSON(c, &asJSON)
	cli.Output(c, &output, "write the Timeline to this file")
	return c
}

// pageKept says what happened to a page whose drawing was interrupted. `was` is the page before, or nil if there was
// none.
func pageKept(page string, was os.FileInfo) string {
	now, err := os.Stat(page)
	switch {
	case err != nil:
		return "nothing was written"
	case was != nil && os.SameFile(was, now):
		return page + " is as it was"
	}
	return page + " had been written by then"
}

func reportCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "report RUN", Short: "Draw a finished run again: predicted against measured",
		Example:           "  millrace report runs/gpt",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: words.Each(words.Runs),
		RunE: func(c *cobra.Command, args []string) error {
			page := filepath.Join(args[0], "report.html")
			was, _ := os.Stat(page) // nil if it does not exist
			cli.Keeps(c.Context(), func() string { return pageKept(page, was) })
			meter := cli.StartMeter("report")
			defer meter.Stop()
			meter.Doing("reading " + args[0])
			whole, err := folder.Read(args[0])
			if err != nil {
				return cli.BadInput(err)
			}
			if err := context.Cause(c.Context()); err != nil {
				return err
			}
			in := reporting.Inputs(whole)
			if in.Simulated == nil && in.Measured == nil && len(in.Took) == 0 {
				return cli.BadInput(fmt.Errorf("%s has no step to draw: there is no %s of what was predicted, no %s and no step "+
					"in %s of what was measured", args[0], folder.PredictedName, folder.TimelineName, folder.MetricsName))
			}
			if asJSON {
				rows, err := report.Compare(in)
				if meter.Stop(); err != nil {
					return err
				}
				return cli.WriteJSON(c.OutOrStdout(), rows)
			}
			meter.Doing("drawing " + page)
			if err := document.Write(page, func(f io.Writer) error {
				return report.HTML(document.Until(c.Context(), f), in)
			}); err != nil {
				return err
			}
			meter.Stop()
			if err := context.Cause(c.Context()); err != nil {
				return err
			}
			if err := report.Terminal(c.OutOrStdout(), in); err != nil {
				return err
			}
			fmt.Fprintf(c.OutOrStdout(), "report      %s\n", page)
			return nil
		},
	}
	cli.JSON(c, &asJSON)
	return c
}
