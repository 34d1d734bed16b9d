package main

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/cmd/internal/prepare"
	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/lab/bench"
	"github.com/millrace-ml/millrace/lab/race"
	"github.com/millrace-ml/millrace/lab/record"
)

func benchPeersCommand() *cobra.Command {
	w := race.SixMillion()
	own := peersOptions{measuring: measuring{pairs: 15, visits: 3, steps: 2}}
	c := &cobra.Command{
		Use: "peers", Short: "Race PyTorch: one process, sync.Pipe, DDP and 1F1B by hand, each at its best",
		Example: "  millrace-lab bench peers --data text.txt\n" +
			"  millrace-lab bench peers --data text.txt --only pipe,onef1b --pairs 25",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := own.check(c, 1, "to be timed"); err != nil {
				return err
			}
			return benchPeers(c, w, own)
		},
	}
	f := c.Flags()
	f.StringVar(&w.Data, "data", "", "a text that everybody trains on (default: random bytes)")
	f.IntVar(&w.Batch, "batch", w.Batch, "rows of an optimizer step")
	f.StringVar(&w.Optimizer, "optimizer", w.Optimizer, "sgd or adamw")
	f.StringSliceVar(&own.only, "only", nil, "these rivals alone: single, pipe, ddp, onef1b")
	own.add(c, "steps")
	return c
}

type peersOptions struct {
	measuring
	only []string
}

// workloadJob returns the job that trains a workload.
func workloadJob(w race.Workload) (*job.Job, error) {
	j := job.Default()
	j.Model.Name, j.Data.Source, j.Plan.Batch, j.Data.Seed = "gpt", w.Data, w.Batch, w.Seed
	j.Model.Settings = map[string]any{"layers": w.Layers, "width": w.Width, "heads": w.Heads, "context": w.Context,
		"vocabulary": w.Vocabulary}
	j.Train.Optimizer.Kind, j.Train.Optimizer.Momentum, j.Train.Optimizer.WeightDecay = w.Optimizer, w.Momentum,
		w.WeightDecay
	j.Train.Rate.Base = w.LearningRate
	return &j, cli.BadInput(j.Complete())
}

func benchPeers(c *cobra.Command, w race.Workload, o peersOptions) error {
	ctx, out := c.Context(), c.OutOrStdout()
	for _, name := range o.only {
		if !slices.ContainsFunc(w.Peers("", "", o.steps), func(p race.Peer) bool { return p.Name == name }) {
			return cli.BadInput(fmt.Errorf("--only %s: the rivals are single, pipe, ddp and onef1b", name))
		}
	}
	j, err := workloadJob(w)
	if err != nil {
		return err
	}
	if err := prepare.CheckTrainingData(j); err != nil {
		return err
	}
	python, version, err := race.Python(ctx)
	if err != nil {
		return fmt.Errorf("%w, or run: make setup-pytorch", err)
	}
	chosen, err := prepare.Prepare(c, j, true)
	if err != nil {
		return err
	}
	piped := *j
	piped.Plan.Stages = 2
	pipeline, err := prepare.Prepare(c, &piped, true)
	if err != nil {
		return err
	}
	own, remove, err := openExperiment(c, j, o.steps)
	if err != nil {
		return err
	}
	defer remove()
	if err := race.WriteScripts(own.dir); err != nil {
		return err
	}
	unit := unitOf(chosen.Model)
	best, err := own.command("millrace, its choice", chosen.Plan, j.Machine.ThreadsPerWorker)
	if err != nil {
		return err
	}
	cut, err := own.command("millrace, pipeline", pipeline.Plan, j.Machine.ThreadsPerWorker)
	if err != nil {
		return err
	}
	report := bench.PeersReport{Head: record.Begin("peers", "gpt on 2 cores beside PyTorch"), Torch: version, Unit: unit,
		Choice: reason(chosen.Plan)}
	for _, p := range w.Peers(python, own.dir, o.steps) {
		if len(o.only) > 0 && !slices.Contains(o.only, p.Name) {
			continue
		}
		fmt.Fprintf(own.log, "%s: %d settings\n", p.Doc, len(p.Candidates))
		found, err := own.sweep(ctx, p.Candidates, o.visits, unit)
		if err != nil {
			return err
		}
		rival := bench.PeerRival{Name: p.Name, Doc: p.Doc, Sweep: found}
		if rival.Choice, err = own.duel(ctx, best, found[0].Command, o.pairs, nil); err != nil {
			return err
		}
		if p.Name == "pipe" || p.Name == "onef1b" {
			r, err := own.duel(ctx, cut, found[0].Command, o.pairs, nil)
			if err != nil {
				return err
			}
			rival.Pipeline = &r
		}
		report.Rivals = append(report.Rivals, rival)
	}
	report.End()
	if err := record.Write(o.output, &report); err != nil {
		return err
	}
	if o.asJSON {
		return cli.WriteJSON(out, &report)
	}
	return report.Write(out)
}
