package main

import (
	"errors"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/lab/runs"
)

// errDiffer ends a list of runs that are not as they must be; what differs has been printed.
var errDiffer = errors.New("run: not all is as it must be")

func runCommand() *cobra.Command {
	o := runs.Options{Jobs: runtime.NumCPU()}
	c := &cobra.Command{
		Use: "run", Short: "Train a list of small runs and compare the bits that they leave",
		Long: `Builds this working tree, trains the list of lab/runs with it, and prints for each run the hashes of
its weights and of what its optimizer keeps; or, with --against or --check, whether they are those of
another commit or of a file. Run it inside the working tree.

Hashes depend on the processor, the BLAS and libtorch: a file of them is refused on another machine.`,
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
