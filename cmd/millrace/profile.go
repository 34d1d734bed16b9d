package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/cmd/internal/prepare"
	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/profile"
)

func profileCommand() *cobra.Command {
	var flags prepare.JobFlags
	var output, sizes string
	var passes int
	var asJSON, analytic bool
	c := &cobra.Command{
		Use: "profile [MODEL]", Short: "Measure what each layer costs on this machine, or compute it for described devices",
		Long: `profile passes micro-batches of several sizes through every layer, on as many workers at once as
will train, and prints the medians of forward and backward. Sizes are visited in turn, in rounds: at
most 15 of them, for about 15 seconds, unless --passes says otherwise.

With --cluster it computes the costs of that cluster's devices instead, from their peaks;
--analytic says so.`,
		Example: "  millrace profile --model gpt --batch 32 -o gpt.json\n" +
			"  millrace profile --model convnet --sizes 8,16,32 --workers 1\n" +
			"  millrace profile bert-48 --analytic --cluster dapple-a --batch 64 -o bert-48.json",
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) > 0 && c.Flags().Changed("model") {
				return cli.BadInput(fmt.Errorf("both %s and --model are named; one model is profiled", args[0]))
			}
			if len(args) > 0 {
				flags.Given = append(flags.Given, func(j *job.Job) error { j.Model = args[0]; return nil })
			}
			j, err := flags.Job()
			if err != nil {
				return err
			}
			if analytic && j.Cluster == "" {
				return cli.BadInput(fmt.Errorf("--analytic computes costs for described devices: name them with --cluster FILE "+
					"or a preset, %s", strings.Join(cluster.Presets(), ", ")))
			}
			if passes < 0 {
				return cli.BadInput(fmt.Errorf("--passes %d; give 1 at least, or 0 for up to 15", passes))
			}
			m, err := prepare.LoadModel(j)
			if err != nil {
				return err
			}
			list := prepare.MicroBatches(j)
			if sizes != "" {
				if list, err = prepare.ReadSizes(sizes); err != nil {
					return err
				}
			}
			p, err := prepare.Costs(c, j, m, list, passes)
			if err != nil {
				return err
			}
			if output != "" {
				if err := p.Write(output); err != nil {
					return err
				}
			}
			if asJSON {
				return cli.WriteJSON(c.OutOrStdout(), p)
			}
			if output == "" || cli.IsTerminal(os.Stdout) {
				printProfile(c, p)
			}
			return nil
		},
	}
	flags.Add(c, job.ModelOptions, job.PlanOptions, job.ClusterOptions)
	c.Flags().StringVarP(&output, "output", "o", "", "write the profile to this file")
	cli.Writes(c, "output")
	c.Flags().StringVar(&sizes, "sizes", "", "micro-batch sizes, with commas (default: those that divide --batch)")
	c.Flags().IntVar(&passes, "passes", 0, "measured passes over the model for each size (default: up to 15)")
	c.Flags().BoolVar(&asJSON, "json", false, "for machines")
	c.Flags().BoolVar(&analytic, "analytic", false, "compute costs from --cluster's devices instead of measuring")
	c.AddCommand(profileJoinCommand())
	return c
}

func printProfile(c *cobra.Command, p *profile.Profile) {
	for _, device := range p.DeviceTypes() {
		printCosts(c.OutOrStdout(), p, device)
	}
	printFrozen(c.OutOrStdout(), p)
}

// printFrozen says how much of the model nobody changes, and which layers have no backward therefore.
func printFrozen(out io.Writer, p *profile.Profile) {
	bytes, still := int64(0), 0
	shared := map[string]int64{}
	for _, l := range p.Layers {
		bytes += l.FrozenBytes
		for _, s := range l.FrozenShared {
			shared[s.Name] = s.Bytes
		}
		if l.NoGradient {
			still++
		}
	}
	for _, n := range shared {
		bytes += n
	}
	if bytes > 0 {
		fmt.Fprintf(out, "frozen parameters and constants: %s; %d of %d layers have no backward\n",
			cluster.FormatBytes(bytes), still, len(p.Layers))
	}
}

func printCosts(out io.Writer, p *profile.Profile, device string) {
	sizes := p.Sizes(device)
	fmt.Fprintf(out, "%s on %s, %s: forward + backward in ms by micro-batch\n%-18s", p.Model, device,
		origin(p.On(device)), "layer")
	for _, s := range sizes {
		fmt.Fprintf(out, "%16d", s)
	}
	fmt.Fprintln(out)
	for _, l := range p.Layers {
		fmt.Fprintf(out, "%-18s", l.Name)
		for _, s := range sizes {
			for _, cost := range l.Costs {
				if cost.MicroBatch == s && cost.Device == device {
					fmt.Fprintf(out, "%8.3f%8.3f", 1e3*cost.ForwardS, 1e3*cost.BackwardS)
				}
			}
		}
		fmt.Fprintln(out)
	}
}

// origin says where the figures of a device type come from.
func origin(m profile.Machine) string {
	if m.Engine == "" {
		return m.Source
	}
	return fmt.Sprintf("%s, %d at once", m.Engine, m.Concurrency)
}
