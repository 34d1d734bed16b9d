package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/cmd/internal/prepare"
	"github.com/millrace-ml/millrace/cmd/internal/words"
	"github.com/millrace-ml/millrace/internal/document"
	"github.com/millrace-ml/millrace/internal/registry"
	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/model/aten/rules"
	"github.com/millrace-ml/millrace/model/imported"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/profile/importer"
)

func importCommand() *cobra.Command {
	var options importer.Options
	var output, profileFile, loss, fuse string
	var microBatch int
	var flags prepare.JobFlags
	var asJSON bool
	c := &cobra.Command{
		Use: "import FILE", Short: "Read another planner's profile, another runtime's schedule or stages, or a network",
		Long: `import reads the files of other programs.

` + strings.TrimSuffix(words.List("--from", words.Imports()), "\n"),
		Example: "  millrace import --from pipedream --batch 128 vgg16/graph.txt -o vgg16.json\n" +
			"  millrace import --from megatron --model gpt --batch 32 layout.txt -o plan.json",
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if !words.IsImport(options.Format) {
				return cli.BadInput(fmt.Errorf("--from is %w", registry.OneOf(options.Format,
					words.Names(words.Imports()))))
			}
			if options.Format == imported.Torch || options.Format == imported.PT2 {
				return importNetwork(c, args[0], output, imported.Options{From: options.Format, Loss: loss,
					Fuse: fuse}, asJSON)
			}
			if output != "" {
				if err := cli.CheckFile("--out", output); err != nil {
					return cli.BadInput(err)
				}
			}
			if options.Format == words.TorchCSV {
				return importTorch(c, args[0], output)
			}
			if words.IsCuts(options.Format) {
				of, err := layersNamed(&flags, profileFile)
				if err != nil {
					return cli.BadInput(err)
				}
				return importCuts(c, options.Format, args[0], output, of, options.Batch, microBatch)
			}
			meter := cli.StartMeter("import")
			defer meter.Stop()
			meter.Doing("reading " + args[0])
			p, notes, err := importer.Read(args[0], options)
			if err != nil {
				return cli.BadInput(err)
			}
			if err := context.Cause(c.Context()); err != nil {
				return err
			}
			if output != "" {
				if err := p.Write(output); err != nil {
					return err
				}
			}
			of := summed(p, options.Batch)
			meter.Stop()
			if asJSON {
				return cli.WriteJSON(c.OutOrStdout(), p)
			}
			if output == "" {
				if err := printProfile(c, p); err != nil {
					return err
				}
			}
			return say(c.OutOrStdout(), strings.Join(append([]string{of}, notes...), "\n"), output)
		},
	}
	c.Flags().StringVar(&options.Format, "from", "", "format of the file: one of those above")
	c.Flags().IntVar(&options.Batch, "batch", 0, "samples of one step, or of the minibatch that the profile is for")
	c.Flags().StringVar(&options.Device, "device", "", "device type that the costs hold for (default: all)")
	c.Flags().StringVar(&options.TimeUnit, "time-unit", "", "unit of Piper's times: s or ms (default s)")
	flags.Add(c, job.ModelOptions)
	c.Flags().StringVar(&profileFile, "profile", "", "profile with the names of the layers, instead of --model")
	c.Flags().IntVar(&microBatch, "micro-batch", 0, "samples of a micro-batch in the plan (default 1)")
	c.Flags().StringVar(&fuse, "fuse", imported.Fused, "on or off: replace a network's operators by millrace's own")
	cli.Output(c, &output, "file to write, or for a network the folder")
	cli.WritesEither(c, "out")
	c.Flags().StringVar(&loss, "loss", "", "loss to add to a .pt2 file that has none: "+strings.Join(rules.Losses, ", "))
	cli.JSON(c, &asJSON)
	cli.More(c, `Networks (pt2, torch): import prints the layers, between which a plan may cut, and the operators. It says which
operators it replaces by millrace's own, and which it leaves as they are. Networks that cannot be trained are refused
with the reason. -o writes a folder with a copy of the network; --model takes the file or the folder.

Places where stages begin (split-points, megatron, deepspeed): import makes a plan with one device for each stage. Give
--model or --profile, and --batch, the samples of a step.

Profiles (pipedream, dapple, piper): the files do not say for which minibatch the times are, so give it as --batch. For
other sizes of micro-batches the times are scaled in proportion. They hold for all device types, or only for --device.

Schedules (torch-csv): import writes the Program as text, like millrace schedule --text.`)
	cli.Unasked(c, "job")
	return c
}

// summed summarises a profile in one line.
func summed(p *profile.Profile, batch int) string {
	seconds, parameters := 0.0, int64(0)
	var costs []profile.Cost
	for _, l := range p.Layers {
		costs = append(costs, l.Costs[0])
		seconds += l.Costs[0].ForwardS + l.Costs[0].BackwardS
		parameters += l.ParameterBytes
	}
	states := "antichain states not listed"
	if s, err := profile.StatesOf(p, costs); err == nil {
		states = terminal.Count(len(s.List), "antichain state")
	} else {
		states += " (" + err.Error() + ")"
	}
	return fmt.Sprintf("%s: %s, %s, %s for a minibatch of %d, %s of parameters", p.Model,
		terminal.Count(len(p.Layers), "layer"), states, terminal.Duration(seconds), batch,
		terminal.Bytes(parameters))
}

// importCuts reads where another runtime's stages begin, and writes a plan with these stages, one device for each.
func importCuts(c *cobra.Command, from, file, output string, of namedLayers, batch, microBatch int) error {
	text, err := document.Read(file, document.MaxBytes)
	if err != nil {
		return cli.BadInput(fmt.Errorf("import: %w", err))
	}
	if microBatch == 0 {
		microBatch = 1
	}
	if batch < 1 || microBatch < 1 || batch%microBatch != 0 {
		return cli.BadInput(fmt.Errorf("import: a batch of %d samples in micro-batches of %d; give --batch, a "+
			"multiple of --micro-batch: %s does not say", batch, microBatch, file))
	}
	var cuts []int
	switch from {
	case "split-points":
		cuts, err = plan.ReadSplitPoints(text, of.names)
	case "megatron":
		cuts, err = plan.ReadMegatronLayout(string(text), of.names)
	case "deepspeed":
		cuts, err = plan.ReadDeepSpeedParts(text, of.names)
	}
	if err != nil {
		return cli.BadInput(fmt.Errorf("%w (in %s)", err, file))
	}
	pl, err := plan.FromCuts(cuts, len(of.names), microBatch, batch/microBatch)
	if err != nil {
		return cli.BadInput(err)
	}
	pl.Model, pl.ModelID = of.model, of.id
	if output != "" {
		if err := pl.Write(output); err != nil {
			return err
		}
	}
	var begins []string
	for _, cut := range cuts {
		begins = append(begins, of.names[cut])
	}
	where := "no cut"
	if len(begins) > 0 {
		where = "cut before " + strings.Join(begins, ", ")
	}
	return say(c.OutOrStdout(), fmt.Sprintf("%s: %s of its %s, %s", of.model, terminal.Count(len(pl.Stages), "stage"),
		terminal.Count(len(of.names), "layer"), where), output)
}
