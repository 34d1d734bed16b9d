package main

import (
	"errors"
	"fmt"
	"regexp"
	"runtime"
	"slices"

	"github.com/spf13/cobra"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/lab/defaults"
	"github.com/millrace-ml/millrace/lab/runs"
)

// errDiffer is the error after a list of runs with differences, which have been printed.
var errDiffer = errors.New("run: not all is as it must be")

func runCommand() *cobra.Command {
	o := runs.Options{Jobs: runtime.NumCPU()}
	c := &cobra.Command{
		Use: "run", Short: "Train a list of small runs and compare the bits that they leave",
		Long: `Builds this working tree and trains the runs of the list in lab/runs with it. It prints for each run the
hashes of its weights and of its optimizer's states. With --against or --check it prints whether they equal
those of another commit or of a file. Run it inside the working tree.

Hashes depend on the processor, the BLAS and libtorch. A file of hashes from another machine is refused.`,
		Example: "  millrace-lab run --against HEAD~1\n  millrace-lab run -o build/now.hashes\n" +
			"  millrace-lab run --check build/now.hashes --only gpt --carrier pipe\n" +
			"  millrace-lab run --check build/now.hashes --processes",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			fine, err := o.Run(c.Context(), c.OutOrStdout())
			var refused runs.Refusal
			switch {
			case errors.As(err, &refused):
				return cli.BadInput(err)
			case err == nil && !fine:
				return errDiffer
			}
			return err
		},
	}
	f := c.Flags()
	f.StringVar(&o.Against, "against", "", "build this `commit` beside, and compare with what it leaves here")
	f.StringVar(&o.Check, "check", "", "compare with the hashes in this `file`")
	f.StringVarP(&o.Output, "output", "o", "", "write the hashes to this `file`, whose name ends in "+runs.Ending)
	cli.Writes(c, "output")
	f.StringVar(&o.Only, "only", "", "the runs whose names match this `regexp`")
	f.StringVar(&o.Carrier, "carrier", "", "what messages go over here: in-process, pipe, blocking or tcp")
	f.BoolVar(&o.Processes, "processes", false, "train in a process for each worker, by millrace launch")
	f.BoolVar(&o.Namespaces, "netns", false, "half of those processes in each of two network namespaces; as root")
	f.IntVarP(&o.Jobs, "jobs", "j", o.Jobs, "runs at a time")
	return c
}

// defaultsCommand returns the command that trains each built-in model with its default settings.
func defaultsCommand() *cobra.Command {
	r := defaults.Runner{Program: "bin/millrace", Text: "build/text/kjv.txt"}
	only, output := "", "lab/results/defaults.json"
	c := &cobra.Command{
		Use: "defaults", Short: "Train each built-in model with its defaults, and say what loss it reaches",
		Long: `Trains the pairs of a model and data in lab/defaults on one worker, with the default optimizer, rate and
warm-up. It records the loss of the first step, the highest loss, and the mean loss of the last ten steps.
Each result is written to the file -o at once, in place of the earlier result of the same pair. At the end the
whole file is printed as a table. The verb ends with 1 if a loss rises by more than a fifth, or does not get
below what the list promises.

make build/text/kjv.txt makes the text.`,
		Example: "  millrace-lab defaults\n  millrace-lab defaults --only 'gpt|llama' -o build/defaults.json",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			named, err := regexp.Compile(only)
			if err != nil {
				return cli.BadInput(err)
			}
			all, err := defaults.Read(output)
			if err != nil {
				return cli.BadInput(err)
			}
			dir, remove, err := scratch()
			if err != nil {
				return err
			}
			defer remove()
			r.Dir = dir
			var wrong error
			for _, p := range slices.Concat(defaults.Small, defaults.Large) {
				if !named.MatchString(p.Name) {
					continue
				}
				one, err := r.Run(c.Context(), p)
				if err != nil {
					return err
				}
				if text := one.Wrong(); text != "" {
					wrong = errors.Join(wrong, fmt.Errorf("%s: %s", p.Name, text))
				}
				cli.Say(fmt.Sprintf("%s: from %.3f to %.3f, %.3f at most", p.Name, one.First, one.Reached, one.Highest))
				all.Put(one)
				if err := all.Write(output); err != nil {
					return err
				}
			}
			return errors.Join(all.Table().Markdown(c.OutOrStdout()), wrong)
		},
	}
	f := c.Flags()
	f.StringVar(&r.Program, "program", r.Program, "the `file` of millrace that trains")
	f.StringVar(&r.Text, "text", r.Text, "the `file` that language models learn")
	f.StringVar(&only, "only", "", "the pairs whose names match this `regexp`")
	f.StringVarP(&output, "output", "o", output, "`file` of results")
	cli.Writes(c, "output")
	return c
}
