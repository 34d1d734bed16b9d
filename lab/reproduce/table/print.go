package table

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/millrace-ml/millrace/internal/terminal"
)

// widest is the number of characters of the longest value that fits into a column. Tables with longer values are
// stacked.
const widest = 36

// Print writes the table for a terminal. A reason that many rows share is a numbered note.
func (t *Table) Print(w io.Writer, s terminal.Screen) {
	item := func(mark, text string) {
		fmt.Fprint(w, s.Wrap(mark, strings.Repeat(" ", terminal.Width(mark)), text))
	}
	item("", s.Paint(terminal.Bold, t.Title))
	item("paper's values: ", t.Source)
	fmt.Fprintln(w)
	stacked := slices.ContainsFunc(t.Rows, func(r Row) bool {
		return max(terminal.Width(r.Paper), terminal.Width(r.Ours)) > widest
	})
	rows := terminal.Table{Columns: []terminal.Column{{Wraps: true}, {Heading: "paper", Number: true},
		{Heading: "ours", Number: true}, {Heading: "difference", Number: true}, {}}}
	var whys []string
	number := map[string]int{}
	for _, r := range t.Rows {
		note := ""
		if r.Why != "" {
			if number[r.Why] == 0 {
				whys = append(whys, r.Why)
				number[r.Why] = len(whys)
			}
			note = fmt.Sprintf("[%d]", number[r.Why])
		}
		if stacked {
			item("  ", r.What+": "+r.Difference+" "+note)
			item("    paper  ", r.Paper)
			item("    ours   ", r.Ours)
			for _, a := range r.Ablations {
				item("    if     ", a.Assumption+": "+a.Ours)
			}
			continue
		}
		rows.Add(r.What, r.Paper, r.Ours, r.Difference, note)
		for _, a := range r.Ablations {
			rows.AddFaint("· if "+a.Assumption, "", a.Ours, "", "")
		}
	}
	_ = rows.Write(w, s) // errors of the other lines are ignored too
	fmt.Fprintln(w)
	for i, why := range whys {
		item(fmt.Sprintf("  [%d] ", i+1), why)
	}
	for _, n := range t.Notes {
		item("  - ", n)
	}
	if agrees := t.Agreement().String(); agrees != "" {
		item("  agreement: ", agrees)
	}
	for _, a := range t.Assumptions() {
		under, _ := t.Under(a)
		fmt.Fprint(w, s.Wrap("    if ", "       ", a+": "+under.Agreement().String()))
	}
	v := t.Verdict()
	if verdict := v.String(); verdict != "" {
		item("  so ", verdict)
	}
	for _, apart := range v.Apart {
		item("     apart: ", apart)
	}
	fmt.Fprintln(w)
}
