package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/cmd/internal/prepare"
	"github.com/millrace-ml/millrace/cmd/internal/words"
	"github.com/millrace-ml/millrace/internal/document"
	"github.com/millrace-ml/millrace/internal/registry"
	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/check"
	"github.com/millrace-ml/millrace/schedule/exchange"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/schedule/lower"
)

func exportCommand() *cobra.Command {
	var flags prepare.JobFlags
	var to, planFile, programFile, profileFile, output string
	c := &cobra.Command{
		Use: "export", Short: "Write a plan for PyTorch, Megatron-LM or DeepSpeed",
		Long: `export writes a plan in the format of another runtime.

` + words.List("--to", words.Exports()) + `
Split points and layouts contain names of layers. For a built-in model with its default settings the plan is
enough. Otherwise give the model that the plan is for, or its profile. A plan that the other runtime cannot
express is refused with the reason.`,
		Example: "  millrace export --to torch-csv --plan plan.json -o schedule.csv\n" +
			"  millrace export --to megatron --plan plan.json\n" +
			"  millrace export --to torch-csv --program program.txt",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if (planFile == "") == (programFile == "") {
				return cli.BadInput(errors.New("export: give --plan or --program, one of them"))
			}
			if programFile != "" && to != words.TorchCSV {
				return cli.BadInput(fmt.Errorf("export: a program can be written as %s; --to %s needs --plan", words.TorchCSV, to))
			}
			var text bytes.Buffer
			var err error
			switch to {
			case words.TorchCSV:
				var p *schedule.Program
				if p, err = exportedProgram(planFile, programFile); err == nil {
					err = exchange.WriteTorchCSV(&text, p)
				}
			case "split-points", "megatron", "deepspeed":
				var pl *plan.Plan
				if pl, err = plan.Read(planFile); err == nil {
					err = exportCuts(&text, to, pl, func() ([]string, error) {
						return exportedNames(&flags, profileFile, planFile, pl)
					})
				}
			default:
				err = fmt.Errorf("--to is %w", registry.OneOf(to, words.Names(words.Exports())))
			}
			if err != nil {
				return cli.BadInput(err)
			}
			return writeOut(c, output, text.Bytes())
		},
	}
	flags.Add(c, job.ModelOptions)
	f := c.Flags()
	f.StringVar(&to, "to", "", strings.Join(words.Names(words.Exports()), ", "))
	f.StringVar(&planFile, "plan", "", "the plan to write")
	f.StringVar(&programFile, "program", "", "text file of a Program, for "+words.TorchCSV)
	f.StringVar(&profileFile, "profile", "", "profile that the plan was made with, instead of --model")
	cli.Output(c, &output, "write it to this file")
	cli.WritesAs(c, "out", ".csv")
	return c
}

// exportedProgram returns the Program of a plan or of a text file.
func exportedProgram(planFile, programFile string) (*schedule.Program, error) {
	if programFile != "" {
		return (&shape{file: programFile}).compute()
	}
	pl, err := plan.Read(planFile)
	if err != nil {
		return nil, err
	}
	name, settings := schedule.FromPlan(pl)
	return family.Generate(name, settings)
}

// exportCuts writes where a plan's stages begin.
func exportCuts(w io.Writer, to string, pl *plan.Plan, names func() ([]string, error)) error {
	if to == "deepspeed" {
		parts, err := pl.DeepSpeedParts()
		if err != nil {
			return err
		}
		return cli.WriteJSON(w, parts)
	}
	layers, err := names()
	if err != nil {
		return err
	}
	if to == "megatron" {
		layout, err := pl.MegatronLayout(layers)
		if err == nil {
			_, err = fmt.Fprintln(w, strings.Join(append(pl.MegatronFlags(), plan.LayoutFlag+" '"+layout+"'"), " "))
		}
		return err
	}
	points, err := pl.SplitPoints(layers)
	if err != nil {
		return err
	}
	spec := map[string]string{}
	for _, p := range points {
		spec[p] = "BEGINNING"
	}
	return cli.WriteJSON(w, spec)
}

// exportedNames returns the names of the layers that a plan is for, from the profile or the model.
func exportedNames(flags *prepare.JobFlags, profileFile, planFile string, pl *plan.Plan) ([]string, error) {
	if profileFile == "" {
		flags.Given = append(flags.Given, func(j *job.Job) error { j.Plan.File = planFile; return nil })
	}
	layers, err := layersNamed(flags, profileFile)
	if err != nil {
		return nil, err
	}
	return layers.names, pl.Fits(layers.model, layers.id, len(layers.names))
}

// namedLayers holds the names of a model's layers.
type namedLayers struct {
	model, id string
	names     []string
}

// layersNamed returns the layers of a profile, or of the flags' model if there is no profile.
func layersNamed(flags *prepare.JobFlags, profileFile string) (namedLayers, error) {
	if profileFile != "" {
		p, err := profile.Read(profileFile)
		if err != nil {
			return namedLayers{}, err
		}
		of := namedLayers{model: p.Model, id: p.ModelID}
		for _, l := range p.Layers {
			of.names = append(of.names, l.Name)
		}
		return of, nil
	}
	j, err := flags.Job()
	if err != nil {
		return namedLayers{}, err
	}
	m, err := prepare.LoadModel(j)
	if err != nil {
		return namedLayers{}, err
	}
	of := namedLayers{model: m.Name, id: m.ID()}
	for _, l := range m.Layers {
		of.names = append(of.names, l.Name)
	}
	return of, nil
}

// importTorch reads PyTorch's schedule, checks it, and writes it as a Program's text.
func importTorch(c *cobra.Command, file, output string) error {
	text, err := document.Read(file, document.MaxBytes)
	if err != nil {
		return cli.BadInput(err)
	}
	p, err := exchange.ReadTorchCSV(bytes.NewReader(text))
	if err != nil {
		return cli.BadInput(fmt.Errorf("%w (in %s)", err, file))
	}
	lowered, err := lower.Lower(p, lower.Options{})
	if err == nil {
		_, err = check.Check(lowered)
	}
	if err != nil {
		return cli.BadInput(fmt.Errorf("%w (in %s)", err, file))
	}
	return writeOut(c, output, []byte(p.Text()))
}
