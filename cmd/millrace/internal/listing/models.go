package listing

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/cmd/internal/prepare"
	"github.com/millrace-ml/millrace/cmd/internal/words"
	"github.com/millrace-ml/millrace/internal/names"
	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/model"
)

// ModelCommand returns the verb for models.
func ModelCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "model", Short: "List built-in models and kinds of layers, and show a model's layers",
		Long: `model lists what can be trained and planned: the built-in models with their settings, the layers of any model,
and the kinds of layers that a .yaml file can have.`,
		Example: "  millrace model ls\n  millrace model show gpt --set layers=4\n  millrace model kinds conv2d",
		Args:    cobra.NoArgs,
		RunE:    func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(listModels(), showModel(), listKinds())
	return c
}

// setting is a setting as it is printed in JSON.
type setting struct {
	Name    string   `json:"name"`
	Takes   string   `json:"takes"`
	Needed  bool     `json:"needed,omitempty"`
	Default any      `json:"default,omitempty"`
	Value   any      `json:"value,omitempty"` // the given value
	Words   []string `json:"words,omitempty"`
	Doc     string   `json:"doc"`
}

func settingsOf(known []model.Setting) []setting {
	all := []setting{}
	for _, s := range known {
		all = append(all, setting{Name: s.Name, Takes: s.Takes(), Needed: s.Default == nil, Default: s.Default,
			Words: s.Words, Doc: s.Doc})
	}
	return all
}

// settingsTable lists settings for people, with the values that are given.
func settingsTable(known []model.Setting, given map[string]any) *terminal.Table {
	t := &terminal.Table{Columns: []terminal.Column{{Heading: "setting"}, {Heading: "here"}, {Heading: "default"},
		{Heading: "takes", Wraps: true}, {Heading: "what it is", Wraps: true}}}
	for _, s := range known {
		here := ""
		if v, ok := given[s.Name]; ok {
			here = fmt.Sprint(v)
		}
		t.Add(s.Name, here, strings.TrimPrefix(s.Usual(), "default "), s.Takes(), s.Doc)
	}
	return t
}

// listedModel is a built-in model as ls prints it.
type listedModel struct {
	Name       string    `json:"name"`
	Doc        string    `json:"doc"`
	Trains     bool      `json:"trains"` // can be trained here; other models can only be planned, on described clusters
	Layers     int       `json:"layers"`
	Parameters int64     `json:"parameters"`
	FLOPs      int64     `json:"flops_per_sample"` // forward and backward
	Settings   []setting `json:"settings"`
}

func listModels() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "ls", Short: "List the built-in models",
		Long: `ls lists the built-in models with their default sizes; --set changes them. Some of them can be trained here. The
others only describe the models of papers, for plans on a described cluster.`,
		Example: "  millrace model ls\n  millrace model ls --json",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			var all []listedModel
			for _, f := range model.Families() {
				m, err := model.Build(f.Name, nil)
				if err != nil {
					return err
				}
				all = append(all, listedModel{Name: f.Name, Doc: f.Doc, Trains: prepare.CheckRunnable(m) == nil,
					Layers: len(m.Layers), Parameters: m.ParameterElements(), FLOPs: flops(m), Settings: settingsOf(f.Settings)})
			}
			if asJSON {
				return cli.WriteJSON(c.OutOrStdout(), all)
			}
			t := &terminal.Table{Columns: []terminal.Column{{Heading: "model"}, {Heading: "layers", Number: true},
				{Heading: "parameters", Number: true}, {Heading: "work", Unit: "FLOP a sample", Number: true, Spare: 1},
				{Heading: "trains here"}, {Heading: "what it is", Wraps: true}}}
			for _, m := range all {
				trains := "planned only"
				if m.Trains {
					trains = "yes"
				}
				t.Add(m.Name, fmt.Sprint(m.Layers), terminal.Scaled(float64(m.Parameters)),
					terminal.Scaled(float64(m.FLOPs)), trains, m.Doc)
			}
			s := terminal.Of(c.OutOrStdout())
			if err := t.Write(c.OutOrStdout(), s); err != nil {
				return err
			}
			_, err := io.WriteString(c.OutOrStdout(), "\n"+s.Wrap("", "", cli.Called()+" model show MODEL lists settings "+
				"and layers. A model is also a .yaml file of layers ("+cli.Called()+" model kinds), or a network of "+
				"PyTorch."))
			return err
		},
	}
	cli.JSON(c, &asJSON)
	return c
}

// flops returns the operations of a model for one sample, forward and backward.
func flops(m *model.Model) (n int64) {
	for i := range m.Layers {
		n += m.Layers[i].ForwardFLOPs + m.Layers[i].InputFLOPs + m.Layers[i].WeightFLOPs
	}
	return n
}

// shownLayer is a layer as show prints it.
type shownLayer struct {
	Name       string   `json:"name"`
	Kind       string   `json:"kind"`
	From       []string `json:"from"`
	Output     [][]int  `json:"output"` // shapes for one sample
	Parameters int64    `json:"parameters"`
	FLOPs      int64    `json:"flops"`     // of one sample, forward and backward
	CutBytes   int64    `json:"cut_bytes"` // bytes that cross a cut after the layer for one sample, one way
}

func showModel() *cobra.Command {
	var flags prepare.JobFlags
	var asJSON bool
	c := &cobra.Command{
		Use: "show MODEL", Short: "Show a model's settings and layers: shapes, parameters, work, cuts",
		Long: `show lists the layers of a model in their order. For each layer and one sample it prints the shape of the output,
the parameters, the work of forward and backward, and the bytes that a pipeline sends to the next stage if it cuts
after this layer. MODEL is a built-in name, a .yaml file or a PyTorch network.`,
		Example:           "  millrace model show gpt --set layers=4\n  millrace model show mine.yaml --json",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: words.Each(words.Models),
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) > 0 && c.Flags().Changed("model") {
				return cli.BadInput(fmt.Errorf("both %s and --model are named; one model is shown", args[0]))
			}
			if len(args) > 0 {
				flags.Given = append(flags.Given, func(j *job.Job) error { j.Model.Name = args[0]; return nil })
			}
			if len(args) == 0 && !c.Flags().Changed("model") && flags.File == "" {
				return cli.BadInput(errors.New("name a model: a built-in one (millrace model ls), a .yaml file or a network"))
			}
			j, err := flags.Job()
			if err != nil {
				return err
			}
			m, err := prepare.LoadModel(j)
			if err != nil {
				return err
			}
			if asJSON {
				return cli.WriteJSON(c.OutOrStdout(), struct {
					Name       string         `json:"name"`
					Inputs     []model.Tensor `json:"inputs"`
					Parameters int64          `json:"parameters"`
					FLOPs      int64          `json:"flops_per_sample"`
					Learning   string         `json:"learning,omitempty"` // default optimizer and learning rate
					Settings   []setting      `json:"settings,omitempty"`
					Layers     []shownLayer   `json:"layers"`
				}{m.Name, m.Inputs, m.ParameterElements(), flops(m), learning(j, m),
					valued(settingsOf(settingsFor(j.Model.Name)), j.Model.Settings), shownLayers(m)})
			}
			return printModel(c.OutOrStdout(), j, m)
		},
	}
	flags.Add(c, job.ModelOptions)
	cli.Unasked(c, "model")
	cli.JSON(c, &asJSON)
	return c
}

// valued fills in the given values of settings.
func valued(all []setting, given map[string]any) []setting {
	for i := range all {
		all[i].Value = given[all[i].Name]
	}
	return all
}

// settingsFor returns the settings of a built-in model; nil for other models.
func settingsFor(name string) []model.Setting {
	for _, f := range model.Families() {
		if f.Name == name {
			return f.Settings
		}
	}
	return nil
}

func shownLayers(m *model.Model) []shownLayer {
	all := []shownLayer{}
	for i := range m.Layers {
		l := &m.Layers[i]
		shown := shownLayer{Name: l.Name, Kind: l.Kind, From: l.From, Parameters: l.ParameterElements(),
			FLOPs: l.ForwardFLOPs + l.InputFLOPs + l.WeightFLOPs, CutBytes: m.CutBytes(i, 1)}
		for _, t := range l.Outputs {
			shown.Output = append(shown.Output, t.Shape)
		}
		all = append(all, shown)
	}
	return all
}

// learning describes the default training of a model; "" if the model cannot be trained here.
func learning(j *job.Job, m *model.Model) string {
	if prepare.CheckRunnable(m) != nil {
		return ""
	}
	return j.Learning(1)
}

func printModel(w io.Writer, j *job.Job, m *model.Model) error {
	s := terminal.Of(w)
	var inputs []string
	for _, t := range m.Inputs {
		inputs = append(inputs, fmt.Sprintf("%s (%s, %s)", names.Shown(t.Name), t.DType, shape(t.Shape)))
	}
	trains := "planned only, on a described --cluster"
	if by := learning(j, m); by != "" {
		trains = "yes: " + by
	}
	if _, err := io.WriteString(w, s.Facts([][2]string{
		{"model", names.Shown(m.Name)}, {"a sample", strings.Join(inputs, "; ")},
		{"layers", fmt.Sprint(len(m.Layers))}, {"parameters", terminal.Scaled(float64(m.ParameterElements()))},
		{"work", terminal.Scaled(float64(flops(m))) + "FLOP a sample, forward and backward"}, {"trains here", trains},
	})); err != nil {
		return err
	}
	if known := settingsFor(j.Model.Name); known != nil {
		fmt.Fprintln(w)
		if err := settingsTable(known, j.Model.Settings).Write(w, s); err != nil {
			return err
		}
	}
	t := &terminal.Table{Columns: []terminal.Column{{Heading: "no.", Number: true, Spare: 3}, {Heading: "layer"},
		{Heading: "kind"},
		{Heading: "reads", Wraps: true, Spare: 2}, {Heading: "yields"}, {Heading: "parameters", Number: true},
		{Heading: "work", Unit: "FLOP", Number: true}, {Heading: "cut behind", Number: true, Spare: 1}}}
	for i, l := range shownLayers(m) {
		var out []string
		for _, sizes := range l.Output {
			out = append(out, shape(sizes))
		}
		cut := terminal.Bytes(l.CutBytes)
		if i == len(m.Layers)-1 {
			cut = ""
		}
		t.Add(fmt.Sprint(i), names.Shown(l.Name), l.Kind, names.Shown(strings.Join(l.From, ", ")), strings.Join(out, "; "),
			terminal.Scaled(float64(l.Parameters)), terminal.Scaled(float64(l.FLOPs)), cut)
	}
	fmt.Fprintln(w)
	return t.Write(w, s)
}
