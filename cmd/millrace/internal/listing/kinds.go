package listing

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/cmd/internal/words"
	"github.com/millrace-ml/millrace/internal/registry"
	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/nn"
)

// listedKind is a kind of layer as kinds prints it.
type listedKind struct {
	Name     string    `json:"name"`
	Doc      string    `json:"doc"`
	Trains   bool      `json:"trains"`
	Settings []setting `json:"settings"`
	Example  string    `json:"example"`
	Reads    [][]int   `json:"example_reads"` // shapes that the example reads, for one sample
}

func listKinds() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "kinds [KIND]", Short: "List the kinds of layers of a .yaml file, or one with its settings",
		Long: `kinds lists the kinds of layers that a .yaml file can have. For one kind it lists each setting with its values
and default, and shows an example.`,
		Example:           "  millrace model kinds\n  millrace model kinds conv2d",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: words.Each(words.Kinds),
		RunE: func(c *cobra.Command, args []string) error {
			var all []model.Kind
			for _, k := range model.Kinds() {
				if len(k.Reads) > 0 { // kinds without an example are made only by importing
					all = append(all, k)
				}
			}
			if len(args) > 0 {
				one, err := kindOf(all, args[0])
				if err != nil {
					return cli.BadInput(err)
				}
				all = []model.Kind{one}
			}
			switch {
			case asJSON:
				return cli.WriteJSON(c.OutOrStdout(), listedKinds(all))
			case len(args) > 0:
				return printKind(c.OutOrStdout(), all[0])
			}
			return printKinds(c.OutOrStdout(), all)
		},
	}
	cli.JSON(c, &asJSON)
	return c
}

func kindOf(all []model.Kind, name string) (model.Kind, error) {
	var known []string
	for _, k := range all {
		if k.Name == name {
			return k, nil
		}
		known = append(known, k.Name)
	}
	return model.Kind{}, registry.None("kind", name, known)
}

func listedKinds(all []model.Kind) []listedKind {
	out := []listedKind{}
	for _, k := range all {
		listed := listedKind{Name: k.Name, Doc: k.Doc, Trains: nn.Computes(k.Name), Settings: settingsOf(k.Settings),
			Example: k.YAML()}
		for _, x := range k.Reads {
			listed.Reads = append(listed.Reads, x.Shape)
		}
		out = append(out, listed)
	}
	return out
}

func printKinds(w io.Writer, all []model.Kind) error {
	s := terminal.Of(w)
	t := &terminal.Table{Columns: []terminal.Column{{Heading: "kind"}, {Heading: "trains here"},
		{Heading: "settings", Wraps: true, Spare: 1}, {Heading: "what it is", Wraps: true}}}
	for _, k := range all {
		var own []string
		for _, st := range k.Settings {
			own = append(own, st.Name)
		}
		trains := "yes"
		if !nn.Computes(k.Name) {
			trains = "planned only"
		}
		t.Add(k.Name, trains, strings.Join(own, ", "), strings.TrimSuffix(k.Doc, " (described, not computed)"))
	}
	if err := t.Write(w, s); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n"+s.Wrap("", "", cli.Called()+" model kinds KIND says what its settings take."))
	return err
}

func printKind(w io.Writer, k model.Kind) error {
	s := terminal.Of(w)
	trains := "yes"
	if !nn.Computes(k.Name) {
		trains = "planned only, on a described --cluster"
	}
	var reads []string
	for _, x := range k.Reads {
		reads = append(reads, fmt.Sprintf("%s %s", x.DType, shape(x.Shape)))
	}
	if _, err := io.WriteString(w, s.Facts([][2]string{{"kind", k.Name}, {"what it is", k.Doc}, {"trains here", trains},
		{"example", k.YAML()}, {"which reads", strings.Join(reads, " and ")}})); err != nil {
		return err
	}
	if len(k.Settings) == 0 {
		_, err := io.WriteString(w, "\nit has no settings\n")
		return err
	}
	fmt.Fprintln(w)
	return settingsTable(k.Settings, nil).Write(w, s)
}
