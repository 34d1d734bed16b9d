package listing

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/data"
	"github.com/millrace-ml/millrace/internal/terminal"
)

// listedData is a built-in data set as ls prints it.
type listedData struct {
	Name    string `json:"name"`
	Doc     string `json:"doc"`
	Path    string `json:"path,omitempty"` // absent: the data set is a part of millrace
	Bytes   int64  `json:"bytes,omitempty"`
	Missing string `json:"missing,omitempty"` // why the data set cannot be read
}

// listedSources is what ls prints with --json.
type listedSources struct {
	Builtin []listedData  `json:"built_in"`
	Files   []data.Format `json:"files"`
}

// DataCommand returns the verb "data ls".
func DataCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "ls", Short: "List the built-in data sets and the kinds of files that can be trained on",
		Long: `ls lists what --data takes: the built-in data sets with their places and sizes, and the kinds of files with the
rows that are held out. Held-out rows are used for evaluation, not for training.`,
		Example: "  millrace data ls\n  millrace data ls --json",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			all := listedSources{Files: data.Formats()}
			for _, b := range data.Builtins() {
				of := listedData{Name: b.Name, Doc: b.Doc}
				var err error
				if of.Path, of.Bytes, err = b.Place(); err != nil {
					of.Missing = err.Error()
				}
				all.Builtin = append(all.Builtin, of)
			}
			if asJSON {
				return cli.WriteJSON(c.OutOrStdout(), all)
			}
			return all.print(c.OutOrStdout())
		},
	}
	cli.JSON(c, &asJSON)
	return c
}

// print prints the sources for people.
func (l *listedSources) print(w io.Writer) error {
	s := terminal.Of(w)
	t := &terminal.Table{Columns: []terminal.Column{{Heading: "data"}, {Heading: "what it is", Wraps: true},
		{Heading: "size", Number: true}, {Heading: "where it lies"}}}
	missing := ""
	for _, d := range l.Builtin {
		size, where := terminal.Bytes(d.Bytes), d.Path
		switch {
		case d.Missing != "":
			size, missing = "-", missing+s.Wrap("", "  ", d.Name+" is "+d.Missing)
		case where == "":
			where = "in the program millrace"
		}
		t.Add(d.Name, d.Doc, size, where)
	}
	if err := t.Write(w, s); err != nil {
		return err
	}
	fmt.Fprint(w, missing, "\n")
	t = &terminal.Table{Columns: []terminal.Column{{Heading: "file"}, {Heading: "what is in it", Wraps: true},
		{Heading: "held out", Wraps: true}}}
	for _, f := range l.Files {
		t.Add(f.Spec, f.Doc, f.Test)
	}
	if err := t.Write(w, s); err != nil {
		return err
	}
	_, err := fmt.Fprint(w, "\n"+s.Wrap("", "", "Rows that are held out are evaluated and do not train. "+cli.Called()+
		" data show DATA shows the rows and arrays of one."))
	return err
}
