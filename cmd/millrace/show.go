package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/cmd/internal/prepare"
	"github.com/millrace-ml/millrace/internal/document"
	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/report"
	"github.com/millrace-ml/millrace/trace"
)

func simulateCommand() *cobra.Command {
	var flags prepare.JobFlags
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
			return report.Terminal(c.OutOrStdout(), report.Inputs{Plan: p.Plan, LayerNames: prepare.NamesOf(p.Model),
				Simulated: t})
		},
	}
	flags.Add(c, job.ModelOptions, job.PlanOptions, job.ElasticOptions, job.ClusterOptions,
		[]job.Option{{Name: "plan", Doc: "a plan to simulate instead of searching one",
			Set: func(j *job.Job, v string) error { j.Plan = v; return nil }}})
	c.Flags().BoolVar(&asJSON, "json", false, "for machines")
	c.Flags().StringVarP(&output, "output", "o", "", "write the Timeline to this file")
	cli.Writes(c, "output")
	return c
}

func reportCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "report RUN", Short: "Draw a finished run again: predicted against measured",
		Example: "  millrace report runs/gpt",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			in, err := readRun(args[0])
			if err != nil {
				return cli.BadInput(err)
			}
			if asJSON {
				rows, err := report.Compare(in)
				if err != nil {
					return err
				}
				return cli.WriteJSON(c.OutOrStdout(), rows)
			}
			page := filepath.Join(args[0], "report.html")
			if err := document.Write(page, func(f io.Writer) error { return report.HTML(f, in) }); err != nil {
				return err
			}
			if err := report.Terminal(c.OutOrStdout(), in); err != nil {
				return err
			}
			fmt.Fprintf(c.OutOrStdout(), "report      %s\n", page)
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "for machines")
	return c
}

// readRun reads what a run left in its folder.
func readRun(dir string) (report.Inputs, error) {
	in := report.Inputs{Title: dir}
	var err error
	if _, err := os.Stat(filepath.Join(dir, "plan.json")); err != nil {
		return in, fmt.Errorf("%s is no folder of a run: %w; give what train --out named", dir, err)
	}
	if in.Plan, err = plan.Read(filepath.Join(dir, "plan.json")); err != nil {
		return in, err
	}
	prof, err := profile.Read(filepath.Join(dir, "profile.json"))
	if err != nil {
		return in, err
	}
	if err := in.Plan.Fits(prof.Model, prof.ModelID, len(prof.Layers)); err != nil {
		return in, fmt.Errorf("%w (in %s)", err, filepath.Join(dir, "plan.json"))
	}
	for _, l := range prof.Layers {
		in.LayerNames = append(in.LayerNames, l.Name)
	}
	if in.Simulated, err = trace.ReadFile(filepath.Join(dir, "predicted.json.gz")); err != nil {
		return in, err
	}
	in.Measured, err = trace.ReadFile(filepath.Join(dir, "timeline.json.gz"))
	return in, err
}
