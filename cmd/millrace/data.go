package main

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/cmd/internal/words"
	"github.com/millrace-ml/millrace/cmd/millrace/internal/listing"
	"github.com/millrace-ml/millrace/data"
	"github.com/millrace-ml/millrace/internal/names"
	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/report"
)

func dataCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "data", Short: "List and show what there is to train on",
		Example: "  millrace data ls\n  millrace data show data.npz",
		Args:    cobra.NoArgs,
		RunE:    func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(listing.DataCommand(), showData())
	return c
}

const dataHelp = `show describes the data that train --data reads: how many rows are for training and how many for evaluation. For
each array it prints the name, the shape of a row, the type of the elements, and the first values of a row. If an
array has at most 2^26 elements, it also prints their range. Tables, images and texts are shown as a model with one
input and one target reads them: numbers are scaled, and a text has windows of 128 bytes or tokens.

In a .csv file the last column is the class, a whole number or a word. If the first row has no number, it names the
columns. Every fifth row is held out for evaluation.

With --rows test it prints only the numbers of the rows that are held out, one a line, in the order in which an
evaluation reads them. With --rows train it prints those of the other rows, in ascending order. Rows count from 0, as
in Python. The first row of a .csv file that names the columns does not count.`

func showData() *cobra.Command {
	var asJSON bool
	var trainPart float64
	var tokenizer, part string
	c := &cobra.Command{
		Use: "show DATA", Short: "Show rows, arrays, types and ranges of data", Long: dataHelp,
		Example: "  millrace data show digits\n  millrace data show data.npz --train-part 0.8 --json\n" +
			"  millrace data show data.npz --rows test > held-out.txt",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: words.Each(words.Data),
		RunE: func(c *cobra.Command, args []string) error {
			if c.Flags().Changed("train-part") && !(trainPart > 0 && trainPart <= 1) {
				return cli.BadInput(fmt.Errorf("--train-part %v; it is above 0, and with 1 all rows train", trainPart))
			}
			set, err := data.Open(args[0], data.Options{Seed: 1, TrainPart: trainPart, Tokenizer: tokenizer})
			if err != nil {
				return cli.BadInput(err)
			}
			if c.Flags().Changed("rows") {
				return writeRows(c.OutOrStdout(), set, part, asJSON)
			}
			seen, err := look(set)
			if err != nil {
				return cli.BadInput(err)
			}
			if asJSON {
				return cli.WriteJSON(c.OutOrStdout(), seen)
			}
			return seen.print(c.OutOrStdout())
		},
	}
	cli.JSON(c, &asJSON)
	c.Flags().Float64Var(&trainPart, "train-part", 0,
		"fraction of the rows of arrays that is for training (default: 0.9)")
	c.Flags().StringVar(&tokenizer, "tokenizer", "",
		"split a text into tokens: gpt2, p50k, cl100k, o200k (default: bytes)")
	c.Flags().StringVar(&part, "rows", "", "print only the numbers of the rows of one `PART`: train or test")
	_ = c.RegisterFlagCompletionFunc("rows", words.One("train", "test")) // fails only without the flag
	return c
}

// writeRows prints the numbers of the rows of one part of a data set.
func writeRows(w io.Writer, set *data.Set, part string, asJSON bool) error {
	splits := map[string]data.Split{"train": set.Train, "test": set.Test}
	s, known := splits[part]
	switch {
	case !known:
		return cli.BadInput(fmt.Errorf("--rows is %q; it is train or test", part))
	case s == nil:
		return cli.BadInput(fmt.Errorf("--rows test: all rows of %s train, and none is held out", set.Name))
	}
	rows, err := data.Rows(s)
	if err != nil {
		return cli.BadInput(fmt.Errorf("--rows: %s: %w", set.Name, err))
	}
	if part == "train" {
		slices.Sort(rows) // ascending, because each epoch has its own order
	}
	if asJSON {
		return cli.WriteJSON(w, rows)
	}
	var b strings.Builder
	for _, row := range rows {
		fmt.Fprintln(&b, row)
	}
	_, err = io.WriteString(w, b.String())
	return err
}

// seenData is a data set as show prints it in JSON.
type seenData struct {
	Data    string            `json:"data"`
	Train   int               `json:"train"`
	Test    int               `json:"test"`
	Classes int               `json:"classes,omitempty"`
	Names   []string          `json:"class_names,omitempty"` // by class number, if the classes are words
	named   string            // Names as text for people
	Heading []string          `json:"heading,omitempty"` // names of a table's columns; the last column is the class
	Kept    string            `json:"kept,omitempty"`    // which rows are evaluated
	Arrays  []*seenArray      `json:"arrays"`
	Refused map[string]string `json:"refused,omitempty"` // why arrays cannot be read, by name
}

// seenArray is one array of the data. Numbers that are not finite are null.
type seenArray struct {
	Name     string   `json:"name"`
	Shape    []int    `json:"shape"` // of one row
	Type     string   `json:"type"`
	Stored   string   `json:"stored,omitempty"` // the type in the file
	Least    *float64 `json:"least,omitempty"`
	Greatest *float64 `json:"greatest,omitempty"`
	// NotFinite counts the numbers that are outside the range because they are not finite.
	NotFinite int   `json:"not_finite,omitempty"`
	First     []any `json:"first"` // first values of a row
}

const (
	rangedNumbers = 1 << 26 // if an array has more numbers than this, over all rows, no range is computed
	firstValues   = 8
	atOnce        = 1 << 20 // numbers that are read at once
)

// look collects what show prints about a data set.
func look(set *data.Set) (*seenData, error) {
	seen := &seenData{Data: set.Name, Train: set.Train.Len(), Classes: set.Classes, Refused: set.Refused,
		Names: set.ClassNames, named: set.Named(), Heading: set.Heading, Kept: set.Kept}
	splits := []data.Split{set.Train}
	if set.Test != nil {
		seen.Test, splits = set.Test.Len(), append(splits, set.Test)
	}
	row, err := set.Train.Batch(0, 1, 0, 1)
	if err != nil {
		return nil, err
	}
	for _, f := range set.Fields {
		a := &seenArray{Name: f.Name, Shape: f.Shape, Type: string(f.DType), Stored: set.Stored[f.Name]}
		if a.Shape == nil {
			a.Shape = []int{}
		}
		each(row[f.Name], func(v any, x float64) bool {
			if math.IsNaN(x) || math.IsInf(x, 0) {
				v = nil
			}
			a.First = append(a.First, v)
			return len(a.First) < firstValues
		})
		seen.Arrays = append(seen.Arrays, a)
		if int64(f.Elements())*int64(seen.Train+seen.Test) > rangedNumbers {
			continue
		}
		for _, s := range splits {
			if err := a.rangeOf(s, max(1, atOnce/f.Elements())); err != nil {
				return nil, err
			}
		}
	}
	return seen, nil
}

// rangeOf extends the range of an array so that it covers all rows of a split. It reads `rows` rows at a time.
func (a *seenArray) rangeOf(s data.Split, rows int) error {
	for k := 0; k*rows < s.Len(); k++ {
		b, err := data.Only(s, a.Name).Batch(k, rows, 0, min(rows, s.Len()-k*rows))
		if err != nil {
			return err
		}
		each(b[a.Name], func(_ any, x float64) bool {
			switch {
			case math.IsNaN(x) || math.IsInf(x, 0):
				a.NotFinite++
			case a.Least == nil:
				a.Least, a.Greatest = new(x), new(x)
			default:
				*a.Least, *a.Greatest = min(*a.Least, x), max(*a.Greatest, x)
			}
			return true
		})
	}
	return nil
}

// each calls f for each element of an array, with the element as it is and as a float, until f returns false.
func each(a data.Array, f func(v any, x float64) bool) {
	for _, v := range a.Floats {
		if !f(v, float64(v)) {
			return
		}
	}
	for _, v := range a.Ints {
		if !f(v, float64(v)) {
			return
		}
	}
	for _, v := range a.Bools {
		x := 0.0
		if v {
			x = 1
		}
		if !f(v, x) {
			return
		}
	}
}

// print prints the data set for people.
func (s *seenData) print(w io.Writer) error {
	part := terminal.Number(float64(s.Test), 0) + " to evaluate"
	if s.Test == 0 {
		part = "none to evaluate"
	}
	if s.Kept != "" {
		part += ": " + s.Kept
	}
	facts := [][2]string{{"data", s.Data}, {"rows", fmt.Sprintf("%s to train, %s", terminal.Number(float64(s.Train), 0),
		part)}}
	if n := len(s.Heading); n > 0 {
		facts = append(facts, [2]string{"columns", strings.Join(s.Heading[:n-1], ", ") + "; class " + s.Heading[n-1]})
	}
	if s.Classes > 0 {
		classes := fmt.Sprint(s.Classes)
		if s.named != "" {
			classes += ": " + s.named
		}
		facts = append(facts, [2]string{"classes", classes})
	}
	if err := writeFacts(w, facts); err != nil {
		return err
	}
	unread := false
	t := &report.Table{Head: []string{"array", "a row", "type", "in the file", " least", " greatest", "a row begins"}}
	for _, a := range s.Arrays {
		least, greatest := "", ""
		if a.Least != nil {
			least, greatest = fmt.Sprintf("%.6g", *a.Least), fmt.Sprintf("%.6g", *a.Greatest)
		} else if a.NotFinite == 0 {
			least, greatest, unread = "-", "-", true
		}
		if a.NotFinite > 0 {
			greatest += fmt.Sprintf(", %d not finite", a.NotFinite)
		}
		var first []string
		for _, v := range a.First {
			switch v := v.(type) {
			case nil:
				first = append(first, "not finite")
			case float32:
				first = append(first, fmt.Sprintf("%.4g", v))
			default:
				first = append(first, fmt.Sprint(v))
			}
		}
		t.Add(names.Shown(a.Name), fmt.Sprint(a.Shape), a.Type, a.Stored, least, greatest, strings.Join(first, " "))
	}
	if err := section(w, t); err != nil {
		return err
	}
	if unread {
		fmt.Fprint(w, terminal.Of(w).Wrap("", "", "- is of more than 2^26 numbers, whose range is not looked for"))
	}
	if len(s.Refused) == 0 {
		return nil
	}
	t = &report.Table{Head: []string{"not read", "because"}}
	for _, name := range slices.Sorted(maps.Keys(s.Refused)) {
		t.Add(names.Shown(name), names.Shown(s.Refused[name]))
	}
	return section(w, t)
}
