package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/tune"
)

// planned is a job with all that is known of it before training.
type planned struct {
	job     *job.Job
	model   *model.Model
	profile *profile.Profile
	cluster *cluster.Cluster
	plan    *plan.Plan
	result  *tune.Result // nil where the plan was given
}

func planCommand() *cobra.Command {
	var flags jobFlags
	var asJSON bool
	var output string
	c := &cobra.Command{
		Use: "plan", Short: "Choose stages, schedule and micro-batches, and say why",
		Example: "  millrace plan --model gpt --workers 2 --batch 32\n  millrace plan --model gpt --profile gpt.json --stages 4 --workers 4 --schedule pb -o plan.json\n  millrace plan --model gpt --cluster examples/two-nodes.yaml --batch 64",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			j, err := flags.job()
			if err != nil {
				return err
			}
			p, err := prepare(c, j)
			if err != nil {
				return err
			}
			if output != "" {
				if err := p.plan.Write(output); err != nil {
					return err
				}
			}
			if asJSON {
				return writeJSON(c.OutOrStdout(), struct {
					Plan   *plan.Plan   `json:"plan"`
					Rivals []tune.Rival `json:"rivals"`
				}{p.plan, p.result.Rivals})
			}
			explain(c.OutOrStdout(), p)
			return nil
		},
	}
	flags.add(c, job.ModelOptions, job.PlanOptions, job.ClusterOptions)
	c.Flags().BoolVar(&asJSON, "json", false, "for machines")
	c.Flags().StringVarP(&output, "output", "o", "", "write the plan to this file")
	return c
}

// prepare profiles and plans a job.
func prepare(c *cobra.Command, j *job.Job) (*planned, error) {
	m, err := loadModel(j)
	if err != nil {
		return nil, err
	}
	fix, err := overrides(j, m)
	if err != nil {
		return nil, err
	}
	p := &planned{job: j, model: m}
	if err := p.hardware(c); err != nil {
		return nil, err
	}
	if j.Plan != "" {
		return p, p.given()
	}
	p.result, err = tune.Search(c.Context(), tune.Request{Profile: p.profile, Cluster: p.cluster, Batch: j.Batch, Clip: j.Clip > 0, Fix: fix, Runnable: j.Cluster == ""})
	if err != nil {
		return nil, badInput(err)
	}
	p.plan = p.result.Best
	return p, nil
}

// hardware fills in the cluster and what the model costs on it: this machine as measured,
// or the one a file describes.
func (p *planned) hardware(c *cobra.Command) (err error) {
	if p.job.Cluster == "" {
		if p.profile, err = profileFor(c, p.job, p.model); err == nil {
			p.cluster = localCluster(p.job, p.profile)
		}
		return err
	}
	if p.cluster, err = cluster.Read(p.job.Cluster); err != nil {
		return badInput(err)
	}
	p.job.Workers = len(p.cluster.Devices)
	if p.job.Profile != "" {
		p.profile, err = givenProfile(p.job, p.model)
		return err
	}
	p.profile, err = profile.Analytic(p.model, p.cluster.DeviceTypes, microBatches(p.job), p.job.Optimizer.Kind, len(p.job.Optimizer.States()))
	return badInput(err)
}

// given takes the job's own plan, and predicts it.
func (p *planned) given() error {
	pl, err := plan.Read(p.job.Plan)
	if err != nil {
		return badInput(err)
	}
	if err := pl.Fits(p.model.Name, p.model.ID(), len(p.model.Layers)); err != nil {
		return badInput(err)
	}
	predicted, err := tune.Simulate(p.profile, p.cluster, pl, p.job.Clip > 0)
	if err != nil {
		return badInput(err)
	}
	pl.Predicted, p.plan = &predicted, pl
	p.job.Batch = pl.Batch()
	return nil
}

// explain prints a plan for people.
func explain(w io.Writer, p *planned) {
	pl := p.plan
	fmt.Fprintf(w, "%s: %d samples a step as %d micro-batches of %d, schedule %s\n", pl.Model, pl.Batch(), pl.MicroBatches, pl.MicroBatch, pl.Schedule)
	for i, s := range pl.Stages {
		again := ""
		if s.Recompute {
			again = ", recomputed"
		}
		fmt.Fprintf(w, "  stage %d  layers %d-%d  %s .. %s  on worker %s%s\n", i, s.FirstLayer, s.LastLayer,
			p.model.Layers[s.FirstLayer].Name, p.model.Layers[s.LastLayer].Name, strings.Trim(fmt.Sprint(s.Devices), "[]"), again)
	}
	if q := pl.Predicted; q != nil {
		fmt.Fprintf(w, "predicted: %.4g ms a step, %.4g samples/s, bubble %.1f %%\n", 1e3*q.StepS, q.SamplesPerSecond, 100*q.Bubble)
		for i, bytes := range q.MemoryBytes {
			fmt.Fprintf(w, "  worker %d  busy %.4g ms  peak %s  at most %d micro-batches at once\n", i, 1e3*q.BusyS[i], cluster.FormatBytes(bytes), q.PeakActivations[i])
		}
	}
	if b := pl.LowerBound; b != nil {
		fmt.Fprintf(w, "no plan on %d workers can take less than %.4g ms; this is %.1f %% above\n", len(p.cluster.Devices), 1e3*b.StepS, 100*max(0, b.Gap)) // rounding can leave a gap of -0
	}
	if len(pl.Why) > 0 {
		fmt.Fprintln(w, "why:")
		for _, line := range pl.Why {
			fmt.Fprintf(w, "  %s\n", line)
		}
	}
}
