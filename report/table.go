package report

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// Table is rows under a head. Columns whose head starts with a blank are aligned to
// the right, as numbers are.
type Table struct {
	Head []string
	Rows [][]string
}

// Add appends a row; cells are formatted with %v.
func (t *Table) Add(cells ...any) {
	row := make([]string, len(cells))
	for i, c := range cells {
		row[i] = fmt.Sprint(c)
	}
	t.Rows = append(t.Rows, row)
}

// Text writes the table with columns aligned, two blanks apart.
func (t *Table) Text(w io.Writer) error {
	widths := make([]int, len(t.Head))
	for i, h := range t.Head {
		widths[i] = utf8.RuneCountInString(strings.TrimPrefix(h, " "))
	}
	for _, row := range t.Rows {
		for i, c := range row {
			if i < len(widths) {
				widths[i] = max(widths[i], utf8.RuneCountInString(printable(c)))
			}
		}
	}
	var b strings.Builder
	line := func(row []string) {
		var l strings.Builder
		for i := range widths {
			cell := ""
			if i < len(row) {
				cell = printable(strings.TrimPrefix(row[i], " "))
			}
			if i > 0 {
				l.WriteString("  ")
			}
			fill := strings.Repeat(" ", max(0, widths[i]-utf8.RuneCountInString(cell)))
			if t.right(i) {
				l.WriteString(fill + cell)
			} else {
				l.WriteString(cell + fill)
			}
		}
		b.WriteString(strings.TrimRight(l.String(), " ") + "\n")
	}
	line(t.Head)
	for _, row := range t.Rows {
		line(row)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Markdown writes the table as Markdown, with what would break a cell escaped.
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
