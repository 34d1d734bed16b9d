package main

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/lab/bench"
	"github.com/millrace-ml/millrace/lab/record"
	timed "github.com/millrace-ml/millrace/lab/reproduce/bench"
	"github.com/millrace-ml/millrace/lab/reproduce/tight"
	"github.com/millrace-ml/millrace/plan"
)

func benchPlanCommand() *cobra.Command {
	var planners, profiles, clusters []string
	var folder string
	var limit time.Duration
	var asJSON bool
	c := &cobra.Command{
		Use: "plan", Short: "How long each planner takes, and how that grows with layers and devices",
		Long: `Every planner plans the described models on 16 devices, and then chains of more and more layers and devices.
It uses the paper's formula and, if its code was published, that formula too. --profile adds profiles from
files, for example imported ones. --profiles adds a folder of the published profiles; where the times of the
published planners are known, the table says how many times faster ours are. --cluster plans the described
models on other clusters instead, presets or files.`,
		Example: "  millrace-lab bench plan\n" +
			"  millrace-lab bench plan --planner pipedream --profile gnmt.json --limit 10s\n" +
			"  millrace-lab bench plan --planner pipedream,dapple --profiles ../shared/data/profiles\n" +
			"  millrace-lab bench plan --cluster dapple-a,dapple-b,dapple-c,pipedream-a,pipedream-b",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			var list []plan.Planner
			for _, p := range plan.Planners() {
				if len(planners) == 0 {
					list = append(list, p)
				}
			}
			for _, name := range planners {
				p, err := plan.LookupPlanner(name)
				if err != nil {
					return cli.BadInput(err)
				}
				list = append(list, p)
			}
			ask := bench.PlanQuestions
			if len(clusters) > 0 {
				ask = func(profiles []string) ([]bench.PlanQuestion, error) {
					return bench.ClusterQuestions(clusters, profiles)
				}
			}
			questions, err := ask(profiles)
			if err != nil {
				return cli.BadInput(err)
			}
			if folder != "" {
				published, err := bench.PublishedQuestions(folder)
				if err != nil {
					return cli.BadInput(err)
				}
				questions = append(published, questions...)
			}
			var all []bench.PlannedIn
			out := c.OutOrStdout()
			if !asJSON {
				fmt.Fprintln(out, "| model | layers | devices | planner | formula | time | stages | published |\n"+
					"|---|---:|---:|---|---|---:|---:|---:|")
			}
			for _, q := range questions {
				for _, p := range list {
					for _, formula := range []string{"paper", "artifact"} {
						if formula == "artifact" && p.Artifact == "" {
							continue
						}
						row, err := q.Ask(c.Context(), p, formula, limit)
						if err != nil {
							return err
						}
						all = append(all, row)
						if !asJSON {
							bench.PrintPlanned(out, row)
						}
					}
				}
			}
			if asJSON {
				e := json.NewEncoder(out)
				e.SetIndent("", "  ")
				return e.Encode(all)
			}
			return nil
		},
	}
	c.Flags().StringSliceVar(&planners, "planner", nil, "only these")
	c.Flags().StringSliceVar(&profiles, "profile", nil, "also these profiles, on 16 devices")
	c.Flags().StringSliceVar(&clusters, "cluster", nil, "the described models and the given profiles on these clusters "+
		"instead")
	c.Flags().StringVar(&folder, "profiles", "", "a folder with the published profiles, on 16 devices")
	c.Flags().DurationVar(&limit, "limit", time.Minute, "a planner that takes longer is stopped")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func benchShapesCommand() *cobra.Command {
	var times int
	to := "lab/results/shapes.json"
	c := &cobra.Command{
		Use: "shapes", Short: "How long predictions of shapes for 1,024 devices take",
		Long: `shapes measures how long predictions take: one prediction of GPT-3 on 1,024 devices, in the layout of
Megatron-LM, and a sweep over more than 200 shapes of it. It writes the times with a description of this
machine.`,
		Example: "  millrace-lab bench shapes\n  millrace-lab bench shapes --times 9 -o shapes.json",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if times < 1 {
				return cli.BadInput(fmt.Errorf("--times %d; give 1 at least", times))
			}
			head := record.Begin("shapes", "Predictions of shapes for 1,024 devices")
			rows, err := timed.TimeShapes(c.Context(), times)
			if err != nil {
				return err
			}
			out := c.OutOrStdout()
			fmt.Fprintln(out, "| question | devices | shapes | median s | most s |\n|---|---:|---:|---:|---:|")
			for _, r := range rows {
				fmt.Fprintf(out, "| %s | %d | %d | %.3f | %.3f |\n", r.Question, r.Devices, r.Shapes, r.MedianS, r.MostS)
			}
			head.End()
			return record.Write(to, &timed.Shapes{Head: head, Rows: rows})
		},
	}
	c.Flags().IntVar(&times, "times", 5, "how often each is asked")
	resultsFlag(c, &to)
	return c
}

func benchBoundCommand() *cobra.Command {
	var workloads, clusters []string
	batch, longest := 64, 5*time.Minute
	to := "lab/results/bound.json"
	c := &cobra.Command{
		Use: "bound", Short: "How far the plans of auto are above the bound that none can beat",
		Long: `bound searches plans of the papers' models on the papers' clusters of 16 devices. It prints how far each plan
is above its lower bound, and which argument gives the bound. If a plan is more than 10 % above, a small case
like it tells which one is loose: the plan, or the proof. Small cases of several sizes are tried in turn. All
plans of a small case are examined, except those that a bound rules out. A small case counts only if it has at
least half of the gap.`,
		Example: "  millrace-lab bench bound\n" +
			"  millrace-lab bench bound --workload vgg16,s2vt --cluster dapple-c --batch 128 -o some.json",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if batch < 1 {
				return cli.BadInput(fmt.Errorf("--batch %d; give 1 at least", batch))
			}
			out := c.OutOrStdout()
			r := &tight.Results{Head: record.Begin("bound", "Plans of auto beside their bounds"), Batch: batch}
			fmt.Fprintln(out, tight.Header)
			var err error
			r.Cases, err = tight.All(c.Context(), workloads, clusters, batch, longest, func(one tight.Case) {
				fmt.Fprintln(out, one)
			})
			if err != nil {
				return err
			}
			r.End()
			fmt.Fprintf(out, "\nmean gap %.1f %%; %d of %d above %.0f %%\n", 100*r.MeanGap, r.Above, len(r.Cases),
				100*tight.Large)
			return record.Write(to, r)
		},
	}
	c.Flags().StringSliceVar(&workloads, "workload", tight.Workloads, "models")
	c.Flags().StringSliceVar(&clusters, "cluster", tight.Clusters, "preset clusters")
	c.Flags().IntVar(&batch, "batch", batch, "samples of a step")
	c.Flags().DurationVar(&longest, "longest", longest, "end a search, a fixed amount of work, here")
	resultsFlag(c, &to)
	return c
}
