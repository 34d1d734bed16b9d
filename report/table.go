package report

import (
	"fmt"
	"io"
	"strings"

	"github.com/millrace-ml/millrace/internal/terminal"
)

// Table is rows under a head. Columns whose head begins with a blank are aligned right, for numbers.
type Table struct {
	Head []string
	Rows [][]string
	// Chosen is the number of the row that is highlighted on a page, from 1; 0: none.
	Chosen int
}

// Add appends a row; cells are formatted with %v.
func (t *Table) Add(cells ...any) {
	row := make([]string, len(cells))
	for i, c := range cells {
		row[i] = fmt.Sprint(c)
	}
	t.Rows = append(t.Rows, row)
}

// Text writes the table to fit w. Cells of text columns after the first may be broken into lines.
func (t *Table) Text(w io.Writer) error {
	var laid terminal.Table
	for i, h := range t.Head {
		laid.Columns = append(laid.Columns, terminal.Column{Heading: strings.TrimPrefix(h, " "), Number: t.right(i),
			Wraps: i > 0 && !t.right(i)})
	}
	for _, row := range t.Rows {
		cells := make([]string, min(len(row), len(t.Head)))
		for i := range cells {
			cells[i] = printable(strings.TrimPrefix(row[i], " "))
		}
		laid.Add(cells...)
	}
	return laid.Write(w, terminal.Of(w))
}

// Markdown writes the table as Markdown. It escapes characters that would break a cell.
func (t *Table) Markdown(w io.Writer) error {
	var b strings.Builder
	line := func(row []string) {
		for i := range t.Head {
			cell := ""
			if i < len(row) {
				cell = strings.NewReplacer("|", `\|`, "\n", " ", "\r", " ").Replace(strings.TrimPrefix(row[i], " "))
			}
			b.WriteString("| " + cell + " ")
		}
		b.WriteString("|\n")
	}
	line(t.Head)
	for i := range t.Head {
		if t.right(i) {
			b.WriteString("|---:")
		} else {
			b.WriteString("|---")
		}
	}
	b.WriteString("|\n")
	for _, row := range t.Rows {
		line(row)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (t *Table) right(i int) bool { return strings.HasPrefix(t.Head[i], " ") }
