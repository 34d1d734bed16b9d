package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/cmd/internal/prepare"
	"github.com/millrace-ml/millrace/cmd/internal/words"
	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/profile"
)

func profileCommand() *cobra.Command {
	var flags prepare.JobFlags
	var output, sizes string
	var passes int
	var asJSON, analytic bool
	var boards boardFlags
	c := &cobra.Command{
		Use: "profile [MODEL]", Short: "Measure what each layer costs on this machine, or compute it for described devices",
		Long: `profile passes micro-batches of several sizes through every layer, on as many workers at once as will train.
It prints the median times of forward and backward. Measurements are kept (profile ls, profile rm), and only
missing ones are made. A first profile takes about 15 seconds, in which it measures the smaller sizes in
turn, round after round. --thorough measures all sizes, in 4 to 15 rounds, which can take minutes.

With --cluster, profile computes the costs of that cluster's devices instead of measuring. --analytic asks for
this too, so that a forgotten --cluster is refused.

FPGA boards compute as in FPDeep: engines for forwards and for both halves of backwards share a board's slices.
If all engines work at once, smaller micro-batches are enough to use all slices. Weights are in the board's
memory; with --on-chip they are on the chip, as far as the weights of a stage fit. --board sets an assumption:
lanes=weights, channels or all; features=chip or memory; model=fpdeep or roofline (see docs/clusters.md).`,
		Example: "  millrace profile --model gpt --batch 32 -o gpt.json\n" +
			"  millrace profile --model convnet --sizes 8,16,32 --workers 1\n" +
			"  millrace profile bert-48 --analytic --cluster dapple-a --batch 64 -o bert-48.json\n" +
			"  millrace profile resnet50 --cluster bapipe-4xvcu129 --on-chip --batch 128 -o boards.json",
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: words.Each(words.Models),
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) > 0 && c.Flags().Changed("model") {
				return cli.BadInput(fmt.Errorf("both %s and --model are named; one model is profiled", args[0]))
			}
			if len(args) > 0 {
				flags.Given = append(flags.Given, func(j *job.Job) error { j.Model.Name = args[0]; return nil })
			}
			j, err := flags.Job()
			if err != nil {
				return err
			}
			if analytic && j.Machine.Cluster == "" {
				return cli.BadInput(fmt.Errorf("--analytic computes costs for described devices: name them with --cluster FILE "+
					"or a preset, %s", strings.Join(cluster.Presets(), ", ")))
			}
			if passes < 0 {
				return cli.BadInput(fmt.Errorf("--passes %d; give 1 at least, or 0 for up to 15", passes))
			}
			if passes > 0 && j.Machine.Cluster != "" {
				return cli.BadInput(fmt.Errorf("--passes %d measures this machine, and costs of --cluster %s are computed: "+
					"leave one of them out", passes, j.Machine.Cluster))
			}
			m, err := prepare.LoadModel(j)
			if err != nil {
				return err
			}
			want := prepare.Wanted{Sizes: prepare.MicroBatches(j)}
			if sizes != "" {
				if want.Sizes, err = prepare.ReadSizes(sizes); err != nil {
					return err
				}
				want.Every = true
			}
			if err := boards.check(j); err != nil {
				return cli.BadInput(err)
			}
			p, err := costs(c, j, m, want, passes, boards)
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
			if err := printProfile(c, p); err != nil {
				return err
			}
			printMeasured(c, p, want.Sizes, prepare.CoresOf(j))
			return cli.Wrote(c.OutOrStdout(), output)
		},
	}
	flags.Add(c, job.ModelOptions, job.PlanOptions, job.ClusterOptions)
	cli.Output(c, &output, "write the profile to this file")
	cli.Unasked(c, "profile", "program", "schedule", "split", "stages", "weights", "recompute", "post-validate",
		"batch-norm", "wire", "clip")
	c.Flags().StringVar(&sizes, "sizes", "", "micro-batch sizes, with commas (default: sizes that divide --batch)")
	c.Flags().IntVar(&passes, "passes", 0, "measure again, with N passes of each size, and keep nothing")
	cli.JSON(c, &asJSON)
	c.Flags().BoolVar(&analytic, "analytic", false, "compute costs from --cluster's devices instead of measuring")
	boards.add(c)
	c.AddCommand(profileJoinCommand(), profileListCommand(), profileRemoveCommand())
	return c
}

// costs returns a model's costs. For a described cluster they are computed. Otherwise, if `passes` is above 0, all of
// them are measured again. If `passes` is 0, only costs that have not been measured before are measured.
func costs(c *cobra.Command, j *job.Job, m *model.Model, want prepare.Wanted, passes int,
	boards boardFlags) (*profile.Profile, error) {
	switch {
	case j.Machine.Cluster != "":
		a := prepare.Analysis(j, want.Sizes)
		a.OnChip, a.Board, a.Roofline = boards.analysis.OnChip, boards.analysis.Board, boards.analysis.Roofline
		return prepare.Computed(c, j, m, a)
	case passes > 0:
		return prepare.Afresh(c, j, m, want.Sizes, passes)
	}
	return prepare.Extend(c, j, m, want, prepare.OwnKind(j), true)
}

// boardFlags are assumptions about FPGA boards.
type boardFlags struct {
	settings []string // NAME=VALUE
	analysis profile.Analysis
}

func (b *boardFlags) add(c *cobra.Command) {
	c.Flags().BoolVar(&b.analysis.OnChip, "on-chip", false, "of boards: keep weights on the chip as far as they fit")
	c.Flags().StringArrayVar(&b.settings, "board", nil, "of boards: an assumption, like lanes=channels; may be repeated")
}

// check reads the flags for boards. It refuses them without a cluster that has boards, and it refuses wrong values.
func (b *boardFlags) check(j *job.Job) error {
	if !b.analysis.OnChip && len(b.settings) == 0 {
		return nil
	}
	if j.Machine.Cluster == "" {
		return fmt.Errorf("--on-chip and --board are of FPGA boards, which a cluster file describes: name it with " +
			"--cluster, or a preset, bapipe-4xvcu118")
	}
	described, err := cluster.Read(j.Machine.Cluster)
	if err != nil {
		return err
	}
	board := func(name string) bool { return described.DeviceTypes[name].FPGA != nil }
	if !slices.ContainsFunc(described.Types(), board) {
		return fmt.Errorf("--on-chip and --board are of FPGA boards, and %s has none (%s): leave them out, or name a "+
			"cluster of boards, like bapipe-4xvcu118", j.Machine.Cluster, strings.Join(described.Types(), ", "))
	}
	for _, text := range b.settings {
		name, value, _ := strings.Cut(text, "=")
		switch {
		case value == "":
			return fmt.Errorf("--board %s has no value; give lanes=weights, lanes=channels, lanes=all, features=chip, "+
				"features=memory, model=fpdeep or model=roofline", text)
		case name == "lanes":
			b.analysis.Board.Lanes = value
		case name == "features":
			b.analysis.Board.Features = value
		case name == "model" && (value == "fpdeep" || value == "roofline"):
			b.analysis.Roofline = value == "roofline"
		default:
			return fmt.Errorf("--board %s; give lanes=weights, lanes=channels, lanes=all, features=chip, features=memory, "+
				"model=fpdeep or model=roofline", text)
		}
	}
	return b.analysis.Board.Check()
}

// printMeasured prints how much the passes differ that were measured on so many cores, and which sizes were left out.
func printMeasured(c *cobra.Command, p *profile.Profile, wanted []int, cores int) {
	screen := terminal.Of(c.OutOrStdout())
	if cores >= p.Concurrency {
		cores = 0 // no worker took turns
	}
	if note := prepare.Spread(p, cores); note != "" {
		fmt.Fprint(c.OutOrStdout(), screen.Wrap("", "  ", note))
	}
	var left []string
	for _, size := range wanted {
		if p.Source == "measured" && !slices.Contains(p.Sizes(p.DeviceTypes()[0]), size) {
			left = append(left, fmt.Sprint(size))
		}
	}
	if len(left) > 0 {
		fmt.Fprint(c.OutOrStdout(), screen.Wrap("", "  ", "not measured, as it takes long: micro-batches of "+
			strings.Join(left, ", ")+"; --thorough measures them"))
	}
}

func printProfile(c *cobra.Command, p *profile.Profile) error {
	for _, device := range p.DeviceTypes() {
		if err := printCosts(c.OutOrStdout(), p, device); err != nil {
			return err
		}
	}
	printFrozen(c.OutOrStdout(), p)
	return nil
}

// printFrozen prints how much of the model is frozen, and how many layers therefore have no backward.
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
		fmt.Fprintf(out, "frozen parameters and constants: %s; %d of %s have no backward\n",
			terminal.Bytes(bytes), still, terminal.Count(len(p.Layers), "layer"))
	}
}

// printCosts prints a row for each layer and a row for the total. It leaves out small micro-batches if the screen is
// too narrow.
func printCosts(out io.Writer, p *profile.Profile, device string) error {
	s, sizes := terminal.Of(out), p.Sizes(device)
	fmt.Fprint(out, s.Wrap("", "  ", fmt.Sprintf("%s on %s, %s: what a layer takes of a micro-batch of so many samples",
		s.Paint(terminal.Bold, p.Model), device, origin(p.On(device)))))
	unit, each := "ms", 1e-3
	if longest(p, device) < 1e-3 {
		unit, each = "µs", 1e-6
	}
	t := &terminal.Table{Columns: []terminal.Column{{Heading: "layer"}}}
	for i, size := range sizes {
		for _, pass := range []string{"forward", "backward"} {
			t.Columns = append(t.Columns, terminal.Column{Heading: pass, Unit: unit, Group: terminal.Count(size, "sample"),
				Number: true, Spare: len(sizes) - 1 - i})
		}
	}
	all := make([]float64, 2*len(sizes))
	for _, l := range p.Layers {
		row := make([]string, 1+len(all))
		row[0] = l.Name
		for _, cost := range l.Costs {
			if i := slices.Index(sizes, cost.MicroBatch); i >= 0 && cost.Device == device {
				for k, took := range []float64{cost.ForwardS, cost.BackwardS} {
					row[1+2*i+k] = terminal.Number(took/each, 3)
					all[2*i+k] += took
				}
			}
		}
		t.Add(row...)
	}
	total := []string{"all"}
	for _, sum := range all {
		total = append(total, terminal.Number(sum/each, 3))
	}
	t.AddFaint(total...)
	if err := t.Write(out, s); err != nil {
		return err
	}
	if more := besides(p, device); more != "" {
		fmt.Fprint(out, s.Wrap("", "  ", more))
	}
	return nil
}

// besides names the parts of a step that are not in the table, with their times. If there are none, it returns "".
func besides(p *profile.Profile, device string) string {
	size := slices.Max(p.Sizes(device))
	update, feed := 0.0, 0.0
	for _, l := range p.Layers {
		update += l.UpdateS
		for _, cost := range l.Costs {
			if cost.Device == device && cost.MicroBatch == size {
				feed += cost.FeedS
			}
		}
	}
	if update == 0 && feed == 0 {
		return ""
	}
	text := "a plan adds for each step an update of all layers, " + terminal.Duration(update)
	if feed > 0 {
		text += fmt.Sprintf(", and for each micro-batch copying its data, %s for %s", terminal.Duration(feed),
			terminal.Count(size, "sample"))
	}
	if p.On(device).Source == "measured" {
		text += "; and as times vary, it reckons with more than these medians"
	}
	return text
}

// longest returns the longest forward of a layer on a device, in seconds.
func longest(p *profile.Profile, device string) float64 {
	most := 0.0
	for _, l := range p.Layers {
		for _, cost := range l.Costs {
			if cost.Device == device {
				most = max(most, cost.ForwardS)
			}
		}
	}
	return most
}

// origin says where the costs on a device type come from.
func origin(m profile.Machine) string {
	if m.Engine == "" {
		return m.Source
	}
	return fmt.Sprintf("measured by %s, %s at once", m.Engine, terminal.Count(m.Concurrency, "worker"))
}

func profileJoinCommand() *cobra.Command {
	var output string
	c := &cobra.Command{
		Use: "join [NAME=]FILE [NAME=]FILE ...", Short: "Join profiles of one model on several device types",
		Long: `join makes one profile from several, each measured on another type of host, so that a plan can use all these
hosts. The device types in the cluster file must have the names that the joined profile has.

A measured profile calls its device type cpu. NAME=FILE gives it the name NAME instead.`,
		Example: "  millrace profile join fast=a.json slow=b.json -o both.json\n" +
			"  millrace plan --model gpt --cluster hosts.yaml --profile both.json",
		Args: cobra.MinimumNArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			if output == "" {
				return cli.BadInput(fmt.Errorf("--out names the file to write; give one, as in -o both.json"))
			}
			var parts []profile.Part
			for _, arg := range args {
				part, err := readPart(arg)
				if err != nil {
					return cli.BadInput(err)
				}
				parts = append(parts, part)
			}
			joined, err := profile.Join(parts...)
			if err != nil {
				return cli.BadInput(err)
			}
			if err := joined.Write(output); err != nil {
				return err
			}
			fmt.Fprintf(c.OutOrStdout(), "%s on %s: wrote %s\n", joined.Model, strings.Join(joined.DeviceTypes(), ", "), output)
			return nil
		},
	}
	cli.Output(c, &output, "write the joined profile to this file")
	return c
}

// readPart reads FILE or NAME=FILE. An existing file counts as FILE, even if its name has a =.
func readPart(arg string) (profile.Part, error) {
	name, file, named := strings.Cut(arg, "=")
	if _, err := os.Stat(arg); err == nil || !named {
		name, file, named = "", arg, false
	}
	if named && name == "" {
		return profile.Part{}, fmt.Errorf("%q names no device type in front of =; give one, as in fast=%s", arg, file)
	}
	p, err := profile.Read(file)
	if err == nil && named {
		if p, err = p.Renamed(name); err != nil {
			err = fmt.Errorf("%s: %w", file, err)
		}
	}
	return profile.Part{Name: file, Profile: p}, err
}
