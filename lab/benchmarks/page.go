package benchmarks

import (
	_ "embed"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/template"

	"github.com/millrace-ml/millrace/internal/document"
	"github.com/millrace-ml/millrace/internal/stats"
	"github.com/millrace-ml/millrace/lab/record"
)

//go:embed benchmarks.md.tmpl
var text string

const (
	none = "not measured"
	mark = "¹" // marks numbers whose single measurements were not kept
)

type page struct {
	files
	carried []string // sources of the marked numbers
}

// Page returns BENCHMARKS.md for the repository in a folder.
func Page(dir string) (string, error) {
	all, err := read(filepath.Join(dir, Folder))
	if err != nil {
		return "", err
	}
	p := &page{files: all}
	t, err := template.New("BENCHMARKS.md").Funcs(template.FuncMap{
		"commands": p.commands, "machines": p.machines, "carried": p.sources, "missed": p.missed,
		"peer": p.peer, "speedup": p.speedup, "prediction": p.prediction, "tuner": p.tuner, "orders": p.orders,
		"order": p.order, "held": p.held, "methods": p.methods, "gains": p.gains, "imported": p.imported,
		"processes": p.processes, "message": p.message, "arrival": p.arrival, "ranks": p.ranks, "overDDP": p.overDDP,
		"slowest": p.slowRange, "watched": p.watched, "livepage": p.livepage, "quick": p.quick, "shapes": p.shapes,
		"bounds": p.bounds,
	}).Parse(text)
	if err != nil {
		return "", fmt.Errorf("benchmarks: %w", err)
	}
	var out strings.Builder
	if err := t.Execute(&out, nil); err != nil {
		return "", fmt.Errorf("benchmarks: %w", err)
	}
	return reflowed(out.String()), nil
}

// reflowed wraps the paragraphs of a page to the width. Tables, headings, code and comments keep their lines.
func reflowed(page string) string {
	blocks := strings.Split(page, "\n\n")
	for i, block := range blocks {
		if !strings.HasPrefix(block, "|") && !strings.HasPrefix(block, "    ") && !strings.HasPrefix(block, "#") &&
			!strings.HasPrefix(block, "<") {
			blocks[i] = wrapped(block)
		}
	}
	return strings.TrimRight(strings.Join(blocks, "\n\n"), "\n") + "\n"
}

// Write writes the page to a file. The repository is in the folder `dir`.
func Write(dir, path string) error {
	text, err := Page(dir)
	if err != nil {
		return err
	}
	return document.WriteText(path, text)
}

// marked adds a mark to a value that was carried over.
func (p *page) marked(h *record.Head, value string) string {
	if !h.Carried() {
		return value
	}
	if !slices.Contains(p.carried, h.CarriedOver) {
		p.carried = append(p.carried, h.CarriedOver)
	}
	return value + mark
}

// row returns the cells of a row without its first cell, each with a mark if it was carried over.
func (p *page) row(h *record.Head, cells ...string) string {
	for i, c := range cells {
		if c != "-" { // a dash means that there is no value
			cells[i] = p.marked(h, c)
		}
	}
	return row(cells...)
}

// sources says where the marked numbers come from.
func (p *page) sources() string {
	const page = "BENCHMARKS.md of commit "
	var commits, others []string
	for _, from := range p.carried {
		if commit, is := strings.CutPrefix(from, page); is {
			commits = append(commits, commit)
		} else {
			others = append(others, from)
		}
	}
	slices.Sort(commits)
	if len(commits) > 0 {
		others = append(others, "the BENCHMARKS.md of "+strings.Join(commits, ", "))
	}
	if len(others) == 0 {
		return ""
	}
	return mark + " Carried over from " + strings.Join(others, ", ") + ": only medians were kept."
}

// width is the largest number of columns in a line of prose.
const width = 120

func wrapped(text string) string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && len([]rune(line))+1+len([]rune(word)) > width {
			lines, line = append(lines, line), ""
		}
		line = strings.TrimSpace(line + " " + word)
	}
	return strings.Join(append(lines, line), "\n")
}

// machines says on which machines and when the results were measured, if the files say so.
func (f files) machines() string {
	var names []string
	for _, one := range f {
		m := one.head.Machine
		name := fmt.Sprintf("%s, %d cores", m.Processor, m.Cores)
		if m.Processor != record.Unknown && m.Cores > 0 && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return none
	}
	slices.Sort(names)
	return fmt.Sprintf("%s; %s to %s", strings.Join(names, "; "), f[0].head.Machine.Date, f[len(f)-1].head.Machine.Date)
}

// commands returns the commands that made the files with these names, as a block of code. Long commands continue on the
// next line.
func (f files) commands(names ...string) string {
	var lines []string
	for _, name := range names {
		for _, one := range f {
			if one.name == name && one.head.Command != record.Unknown {
				lines = append(lines, command(one.head.Command)...)
			}
		}
	}
	return strings.Join(lines, "\n")
}

// output matches a command's flag for the file of results. The page leaves this flag out.
var output = regexp.MustCompile(` (-o|--output) \S+`)

func command(text string) (lines []string) {
	line := "    $"
	words := strings.Fields(output.ReplaceAllString(text, ""))
	for i := 0; i < len(words); i++ {
		word := words[i]
		if strings.HasPrefix(word, "-") && i+1 < len(words) && !strings.HasPrefix(words[i+1], "-") { // a flag and its value
			i++
			word += " " + words[i]
		}
		if len(line)+len(word) > width-2 {
			lines, line = append(lines, line+` \`), "       "
		}
		line += " " + word
	}
	return append(lines, line)
}

// between formats a median, with its interval if there is one.
func between(format string, median float64, i stats.Interval) string {
	text := fmt.Sprintf(format, median)
	if i == (stats.Interval{}) {
		return text
	}
	return text + fmt.Sprintf(" ("+format+" to "+format+")", i.Lo, i.Hi)
}

func percent(part float64) string { return fmt.Sprintf("%.1f %%", 100*part) }

// row formats the cells of a row without its first cell.
func row(cells ...string) string { return strings.Join(cells, " | ") + " |" }

// empty returns this many cells of a row that was not measured.
func empty(cells int) string { return row(slices.Repeat([]string{none}, cells)...) }
