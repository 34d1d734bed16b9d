package main

import (
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/internal/stats"
	"github.com/millrace-ml/millrace/lab/p2p"
	"github.com/millrace-ml/millrace/lab/record"
	"github.com/millrace-ml/millrace/lab/versus"
	"github.com/millrace-ml/millrace/model"
)

// versusFlags are the flags of the comparisons of two builds.
type versusFlags struct {
	only, planners       []string
	pairs                int
	text                 string
	oldNative, newNative string
	output               string
	splits               int
	seed                 uint64
	asJSON               bool
}

// campaigns are the parts of millrace-lab versus.
var campaigns = []string{"train", "crowded", "profile", "plan", "large", "simulate"}

func versusCommand() *cobra.Command {
	own := versusFlags{only: campaigns, planners: []string{"pipedream", "dapple", "bapipe", "avgpipe", "auto"}, pairs: 20}
	c := &cobra.Command{
		Use: "versus OLD NEW", Short: "Compare the speed of two builds of millrace in alternating pairs",
		Long: `Runs two builds of millrace in turn with the same settings, and compares how long they take: the median of the
ratios of the pairs, with its 95 % interval. The new build counts as slower if the whole interval is below
0.97 of the old build's speed in training, or below 0.95 in the other parts.

  train     gpt and convnet, a pipeline of 2 workers: the step
  crowded   the same with 4 workers on this machine's cores; the result is not judged
  profile   a profile of few passes
  plan      each planner on described models and 16 devices, and auto on three of them
  large     each planner on 1,000 layers and 1,024 devices
  simulate  given plans, and the comparison of schedules

Do not use the machine for anything else meanwhile. --pairs is the number of pairs of training and profiles.
The other parts vary less and have half as many; large takes long and has as few as an interval needs.`,
		Example: "  millrace-lab versus /tmp/old/bin/millrace bin/millrace --only train -o lab/results/speed-train.json",
		Args:    cobra.ExactArgs(2),
		RunE:    func(c *cobra.Command, args []string) error { return own.compare(c, args[0], args[1]) },
	}
	own.add(c)
	c.Flags().StringSliceVar(&own.only, "only", own.only, "parts to run")
	c.Flags().StringSliceVar(&own.planners, "planners", own.planners, "planners of plan and large, which leaves auto out")
	c.Flags().IntVar(&own.pairs, "pairs", own.pairs, "alternating pairs of a training")
	return c
}

func splitsCommand() *cobra.Command {
	own := versusFlags{only: []string{"gpt", "convnet"}, splits: 20, seed: 1}
	c := &cobra.Command{
		Use: "splits OLD NEW", Short: "What two builds of millrace predict of random splits, against what they measure",
		Long: `Trains random splits of gpt and convnet on two workers, with both builds in turn. Each build predicts every
training from a profile that it measured before, in a process of its own.`,
		Example: "  millrace-lab splits /tmp/old/bin/millrace bin/millrace --only gpt -o lab/results/splits-gpt.json",
		Args:    cobra.ExactArgs(2),
		RunE:    func(c *cobra.Command, args []string) error { return own.predict(c, args[0], args[1]) },
	}
	own.add(c)
	c.Flags().StringSliceVar(&own.only, "only", own.only, "models: gpt, convnet")
	c.Flags().IntVar(&own.splits, "splits", own.splits, "random splits of each model")
	c.Flags().Uint64Var(&own.seed, "seed", own.seed, "of the random splits")
	return c
}

func processesCommand() *cobra.Command {
	own := versusFlags{only: []string{"gpt", "convnet"}, pairs: 20}
	workers := 2
	c := &cobra.Command{
		Use: "processes MILLRACE", Short: "Compare trainings in a process for each worker with those of one process",
		Long: `Trains gpt and convnet in turn with two kinds of workers: threads of one process, and processes that millrace
launch starts on this host and that use TCP. Processes count as slower if the whole interval is below 0.94 of
the threads' speed.`,
		Example: "  millrace-lab processes bin/millrace -o lab/results/processes.json",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return own.spread(c, args[0], workers)
		},
	}
	own.add(c)
	c.Flags().StringSliceVar(&own.only, "only", own.only, "models: gpt, convnet")
	c.Flags().IntVar(&own.pairs, "pairs", own.pairs, "alternating pairs")
	c.Flags().IntVar(&workers, "workers", workers, "workers, and processes")
	return c
}

func resultsCommand() *cobra.Command {
	return &cobra.Command{
		Use: "results FILE...", Short: "Print files of results as tables of Markdown",
		Example: "  millrace-lab results lab/results/*.json", Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, files []string) error {
			for _, path := range files {
				r, err := readResults(path)
				if err != nil {
					return cli.BadInput(err)
				}
				if err := r.Markdown(c.OutOrStdout()); err != nil {
					return err
				}
				fmt.Fprintln(c.OutOrStdout())
			}
			return nil
		},
	}
}

// readResults reads the results that bench p2p or versus wrote to a file.
func readResults(path string) (interface{ Markdown(io.Writer) error }, error) {
	bench, err := record.BenchOf(path)
	switch {
	case err != nil:
		return nil, err
	case bench == p2p.Kind:
		return record.Read[p2p.Results](path)
	case bench == versus.Kind:
		return record.Read[versus.Results](path)
	}
	return nil, fmt.Errorf("%s is of bench %q; results prints %s and %s, and millrace-lab benchmarks the page of all",
		path, bench, p2p.Kind, versus.Kind)
}

// add adds the flags that all comparisons of two builds have.
func (f *versusFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&f.text, "text", "", "what gpt trains on (default: made-up words)")
	c.Flags().StringVar(&f.oldNative, "old-native", "", "the old build's library (default: it finds its own)")
	c.Flags().StringVar(&f.newNative, "new-native", "", "the new build's library (default: it finds its own)")
	resultsFlag(c, &f.output)
	c.Flags().BoolVar(&f.asJSON, "json", false, "print the result as JSON")
}

// open prepares both builds in a folder, which `remove` deletes, and returns the subjects of trainings.
func (f *versusFlags) open(old, new string) (r *versus.Results, subjects []versus.Subject, remove func(), err error) {
	dir, remove, err := scratch()
	if err != nil {
		return nil, nil, nil, err
	}
	r = &versus.Results{Head: record.Begin(versus.Kind, "Two builds")}
	if r.Old, err = versus.OpenBuild("old", old, f.oldNative, dir); err == nil {
		r.New, err = versus.OpenBuild("new", new, f.newNative, dir)
	}
	text := f.text
	if text == "" {
		text = filepath.Join(dir, "words.txt")
		if err == nil {
			err = versus.WriteWords(text)
		}
	} else if err == nil {
		text, err = filepath.Abs(text)
	}
	if err != nil {
		remove()
		return nil, nil, nil, cli.BadInput(err)
	}
	return r, []versus.Subject{
		{Model: "gpt", Data: text, Batch: 32, Optimizer: strings.Fields("--optimizer adamw --lr 3e-4 --lr-warmup 20")},
		{Model: "convnet", Data: "fashion-mnist", Batch: 128,
			Optimizer: strings.Fields("--optimizer sgd --momentum 0.9 --lr 0.05 --lr-warmup 0")},
	}, remove, nil
}

// compare runs the campaigns that were asked for.
func (f *versusFlags) compare(c *cobra.Command, old, new string) error {
	for _, name := range f.only {
		if !slices.Contains(campaigns, name) {
			return cli.BadInput(fmt.Errorf("--only %s; there are %s", name, strings.Join(campaigns, ", ")))
		}
	}
	if least := stats.Fewest(0.95); f.pairs < least {
		return cli.BadInput(fmt.Errorf("--pairs %d; give %d at least, for an interval around their median", f.pairs, least))
	}
	r, subjects, remove, err := f.open(old, new)
	if err != nil {
		return err
	}
	defer remove()
	for _, one := range f.cases(subjects) {
		row, err := versus.Compare(c.Context(), r.Old, r.New, one, c.ErrOrStderr())
		if err != nil {
			return err
		}
		r.Rows = append(r.Rows, row)
	}
	r.What = "Speed of two builds: " + strings.Join(f.only, ", ")
	return f.print(c, r)
}

// spread compares trainings in one process with trainings in many processes.
func (f *versusFlags) spread(c *cobra.Command, program string, workers int) error {
	if least := stats.Fewest(0.95); f.pairs < least {
		return cli.BadInput(fmt.Errorf("--pairs %d; give %d at least, for an interval around their median", f.pairs, least))
	}
	if workers < 2 {
		return cli.BadInput(fmt.Errorf("--workers %d; give 2 at least", workers))
	}
	r, subjects, remove, err := f.open(program, program)
	if err != nil {
		return err
	}
	defer remove()
	if err := named(f.only, subjects); err != nil {
		return err
	}
	r.Old.Name, r.New.Name, r.New.Processes = "threads", "processes", workers
	for _, s := range subjects {
		if !slices.Contains(f.only, s.Model) {
			continue
		}
		row, err := versus.Compare(c.Context(), r.Old, r.New, versus.Training(s, workers, f.pairs,
			versus.ProcessesLimit), c.ErrOrStderr())
		if err != nil {
			return err
		}
		r.Rows = append(r.Rows, row)
	}
	r.What = fmt.Sprintf("%d workers as processes against as threads", workers)
	return f.print(c, r)
}

// named refuses models for which there is no subject.
func named(models []string, subjects []versus.Subject) error {
	for _, name := range models {
		if !slices.ContainsFunc(subjects, func(s versus.Subject) bool { return s.Model == name }) {
			return cli.BadInput(fmt.Errorf("--only %s; there are gpt and convnet", name))
		}
	}
	return nil
}

// cases returns the cases of the campaigns that were asked for.
func (f *versusFlags) cases(subjects []versus.Subject) []versus.Case {
	half := max(stats.Fewest(0.95), f.pairs/2)
	var all []versus.Case
	for _, name := range f.only {
		switch name {
		case "train":
			for _, s := range subjects {
				all = append(all, versus.Training(s, 2, f.pairs, versus.TrainingLimit))
			}
		case "crowded":
			for _, s := range subjects {
				all = append(all, versus.Training(s, 4, f.pairs, 0))
			}
		case "profile":
			for _, s := range subjects {
				all = append(all, versus.Profiling(s, 2, f.pairs))
			}
		case "plan":
			all = append(all, versus.Planning(f.planners, []string{"vgg16", "resnet50", "gnmt", "bert-48", "xlnet-36",
				"amoebanet-36"},
				[]string{"vgg16", "gnmt"}, half)...)
		case "large":
			all = append(all, versus.Large(slices.DeleteFunc(slices.Clone(f.planners),
				func(p string) bool { return p == "auto" }), stats.Fewest(0.95))...)
		case "simulate":
			all = append(all, versus.Simulating(half)...)
		}
	}
	return all
}

// predict trains the random splits of the models that were asked for.
func (f *versusFlags) predict(c *cobra.Command, old, new string) error {
	if f.splits < 2 {
		return cli.BadInput(fmt.Errorf("--splits %d; give 2 at least", f.splits))
	}
	r, subjects, remove, err := f.open(old, new)
	if err != nil {
		return err
	}
	defer remove()
	if err := named(f.only, subjects); err != nil {
		return err
	}
	for _, s := range subjects {
		if !slices.Contains(f.only, s.Model) {
			continue
		}
		m, err := model.Load(s.Model, nil)
		if err != nil {
			return cli.BadInput(err)
		}
		plans := versus.RandomSplits(f.seed, f.splits, len(m.Layers), 2)
		found, err := versus.Predict(c.Context(), r.Old, r.New, s, 2, plans, c.ErrOrStderr())
		if err != nil {
			return err
		}
		r.Splits = append(r.Splits, found...)
	}
	r.What = fmt.Sprintf("Predictions over %d random splits", f.splits)
	return f.print(c, r)
}

// print writes results to the file that was asked for, and prints them.
func (f *versusFlags) print(c *cobra.Command, r *versus.Results) error {
	r.End()
	if err := record.Write(f.output, r); err != nil {
		return err
	}
	if f.asJSON {
		return cli.WriteJSON(c.OutOrStdout(), r)
	}
	return r.Markdown(c.OutOrStdout())
}
