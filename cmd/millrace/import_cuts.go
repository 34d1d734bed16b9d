package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/internal/document"
	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/plan"
)

// importCuts reads where another runtime's stages begin and writes the plan that has them, a
// device for each stage.
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
