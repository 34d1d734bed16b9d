package terminal

import (
	"cmp"
	"io"
	"slices"
	"strings"
)

// Column is a column of a Table.
type Column struct {
	Heading string
	Unit    string // below the heading, or in the group's heading if all its columns have the same unit
	Group   string // a heading above neighbours of the same group
	Number  bool   // aligned to the right
	Wraps   bool   // its texts may be broken into lines if the table is too wide
	// Spare says which columns are left out if the table is too wide. Columns with the greatest number are left out
	// first, columns with 0 last. Columns of a group that have the same number above 0 are left out together.
	Spare int
}

// Table is a list of rows below headings, at most as wide as its screen. If it is too wide, columns that wrap become
// narrower. Then columns are left out, and a line below says which.
type Table struct {
	Columns []Column
	rows    []row
}

type row struct {
	cells []string
	mark  bool
	style Style
}

// Add adds a row; missing cells are empty.
func (t *Table) Add(cells ...string) { t.add(row{cells: cells}) }

// AddMarked adds a highlighted row: bold, with a ">" before it.
func (t *Table) AddMarked(cells ...string) { t.add(row{cells: cells, mark: true, style: Bold}) }

// AddFaint adds a row in faint style.
func (t *Table) AddFaint(cells ...string) { t.add(row{cells: cells, style: Faint}) }

func (t *Table) add(r row) {
	for i := range r.cells {
		r.cells[i] = strings.ReplaceAll(r.cells[i], "\n", " ")
	}
	for len(r.cells) < len(t.Columns) {
		r.cells = append(r.cells, "")
	}
	t.rows = append(t.rows, r)
}

const (
	gutter  = "  " // before rows, where a mark may be
	between = "  "
	// readable is the width that a wrapping column keeps while other columns can be left out. squeezed is the least
	// width of a wrapping column.
	readable, squeezed = 28, 8
)

// Shows reports whether Write shows the column with a heading on a screen.
func (t *Table) Shows(s Screen, heading string) bool {
	shown, _, _ := t.layout(s)
	return slices.ContainsFunc(shown, func(i int) bool { return t.Columns[i].Heading == heading })
}

// layout returns which columns are shown, how wide each of them is, and which columns have no room.
func (t *Table) layout(s Screen) (shown, widths []int, out []Column) {
	shown = make([]int, 0, len(t.Columns))
	for i := range t.Columns {
		if slices.ContainsFunc(t.rows, func(r row) bool { return r.cells[i] != "" }) {
			shown = append(shown, i)
		}
	}
	widths = t.fit(shown, s.Columns, readable)
	for widths == nil && len(shown) > 1 {
		last := slices.MaxFunc(shown, func(a, b int) int { return cmp.Or(t.Columns[a].Spare-t.Columns[b].Spare, a-b) })
		if t.Columns[last].Spare == 0 {
			if widths = t.fit(shown, s.Columns, squeezed); widths != nil {
				break
			}
		}
		gone := func(i int) bool {
			return i == last || t.Columns[i].Group != "" && t.Columns[i].Spare > 0 &&
				t.Columns[i].Group == t.Columns[last].Group && t.Columns[i].Spare == t.Columns[last].Spare
		}
		name, before := t.Columns[last], len(shown)
		if !slices.ContainsFunc(shown, func(i int) bool { return !gone(i) }) { // not all columns are left out
			gone = func(i int) bool { return i == last }
		}
		if shown = slices.DeleteFunc(shown, gone); len(shown) < before-1 {
			name.Heading = "" // the whole group is left out, so only the group is named
		}
		out = append(out, name)
		widths = t.fit(shown, s.Columns, readable)
	}
	slices.Reverse(out)
	return shown, widths, out
}

// Write writes the table. Columns with only empty cells are not shown.
func (t *Table) Write(w io.Writer, s Screen) error {
	shown, widths, out := t.layout(s)
	if len(shown) == 0 {
		return nil
	}
	if widths == nil { // only one column is left
		widths = []int{s.Columns - len(gutter)}
	}
	var b strings.Builder
	t.head(&b, s, shown, widths)
	for _, r := range t.rows {
		t.line(&b, s, shown, widths, r)
	}
	if len(out) > 0 {
		b.WriteString(s.Wrap(gutter, gutter, "("+names(out)+": not shown in "+Count(s.Columns, "column")+")"))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// name returns a column's name for places where its group's heading is not above it: the group, and then the heading.
func (c *Column) name() string { return strings.TrimSpace(c.Group + " " + c.Heading) }

// names lists columns. Of neighbours in one group only the first has the group's name.
func names(columns []Column) string {
	var all []string
	for k, c := range columns {
		if k > 0 && c.Group == columns[k-1].Group && c.Heading != "" {
			c.Group = ""
		}
		all = append(all, c.name())
	}
	return strings.Join(all, ", ")
}

// units reports whether a line of units is shown below the headings. It also returns a function that gives the heading
// of a column's group. If all columns of a group have the same unit, the group's heading contains it.
func (t *Table) units(shown []int) (line bool, group func(i int) string) {
	one := map[string]bool{} // groups with a common unit
	for _, i := range shown {
		c := &t.Columns[i]
		same := c.Group != "" && c.Unit != "" && !slices.ContainsFunc(shown, func(j int) bool {
			return t.Columns[j].Group == c.Group && t.Columns[j].Unit != c.Unit
		})
		if same {
			one[c.Group] = true
		} else if c.Unit != "" {
			line = true
		}
	}
	return line, func(i int) string {
		if c := &t.Columns[i]; one[c.Group] {
			return c.Group + ", " + c.Unit
		} else {
			return c.Group
		}
	}
}

// fit returns widths with which the shown columns fit into `columns` columns of the screen. A wrapping column is at
// least `least` wide. If there is no room, fit returns nil.
func (t *Table) fit(shown []int, columns, least int) []int {
	widths, floors := make([]int, len(shown)), make([]int, len(shown))
	line, group := t.units(shown)
	for k, i := range shown {
		c := &t.Columns[i]
		widths[k] = Width(c.Heading)
		if line {
			widths[k] = max(widths[k], Width(c.Unit))
		}
		floors[k] = max(least, widths[k])
		for _, r := range t.rows {
			widths[k] = max(widths[k], Width(r.cells[i]))
		}
		if floors[k] = min(floors[k], widths[k]); !c.Wraps {
			floors[k] = widths[k]
		}
	}
	for k := 0; k < len(shown); { // widens the last column of a group whose heading is wider than its columns
		end := t.group(shown, k)
		for _, w := range [][]int{widths, floors} {
			w[end-1] += max(0, Width(group(shown[k]))-room(w[k:end]))
		}
		k = end
	}
	for total := len(gutter) + room(widths); total > columns; total-- {
		widest := -1
		for k := range widths {
			if widths[k] > floors[k] && (widest < 0 || widths[k] > widths[widest]) {
				widest = k
			}
		}
		if widest < 0 {
			return nil
		}
		widths[widest]--
	}
	return widths
}

// group returns the end of the group of shown column k. The end is the position after the last neighbour of the same
// group.
func (t *Table) group(shown []int, k int) (end int) {
	name := t.Columns[shown[k]].Group
	for end = k + 1; end < len(shown) && name != "" && t.Columns[shown[end]].Group == name; end++ {
	}
	return end
}

// room returns the width of a row: the sum of its columns' widths, and of the gaps between them.
func room(widths []int) int {
	total := len(between) * (len(widths) - 1)
	for _, n := range widths {
		total += n
	}
	return total
}

// head writes the headings, the groups above them and the units below.
func (t *Table) head(b *strings.Builder, s Screen, shown, widths []int) {
	units, group := t.units(shown)
	var top strings.Builder
	for k := 0; k < len(shown); {
		end, title := t.group(shown, k), group(shown[k])
		wide := room(widths[k:end])
		if spare := wide - Width(title) - 2; title != "" && end > k+1 && spare >= 6 {
			title = strings.Repeat("─", spare/2) + " " + title + " " + strings.Repeat("─", spare-spare/2)
		}
		title = Clip(title, wide, "…")
		top.WriteString(pad(title, wide, t.Columns[shown[k]].Number) + between)
		k = end
	}
	if text := strings.TrimRight(top.String(), " "); text != "" {
		b.WriteString(s.Paint(Faint, gutter+text) + "\n")
	}
	heads, below := row{style: Faint}, row{style: Faint}
	for i := range t.Columns {
		heads.cells = append(heads.cells, t.Columns[i].Heading)
		unit := t.Columns[i].Unit
		if group(i) != t.Columns[i].Group {
			unit = ""
		}
		below.cells = append(below.cells, unit)
	}
	if slices.ContainsFunc(shown, func(i int) bool { return heads.cells[i] != "" }) {
		t.line(b, s, shown, widths, heads)
	}
	if units {
		t.line(b, s, shown, widths, below)
	}
}

// line writes a row, in as many lines as its longest cell needs.
func (t *Table) line(b *strings.Builder, s Screen, shown, widths []int, r row) {
	cells, tall := make([][]string, len(shown)), 1
	for k, i := range shown {
		cells[k] = []string{r.cells[i]}
		if Width(r.cells[i]) > widths[k] {
			cells[k] = broken(r.cells[i], widths[k])
		}
		tall = max(tall, len(cells[k]))
	}
	for n := range tall {
		text := gutter
		if r.mark && n == 0 {
			text = "> "
		}
		for k, i := range shown {
			cell := ""
			if n < len(cells[k]) {
				cell = cells[k][n]
			}
			text += pad(cell, widths[k], t.Columns[i].Number) + between
		}
		text = strings.ReplaceAll(strings.TrimRight(text, " "), "\u00a0", " ")
		b.WriteString(s.Paint(r.style, text) + "\n")
	}
}
