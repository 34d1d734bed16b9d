package papers

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/lab/reproduce/table"
	"github.com/millrace-ml/millrace/report"
)

// columns is the width of the page's tables and prose.
const columns = 116

// page is docs/papers.md.
type page struct {
	bytes.Buffer
	figures    []Figure
	mechanisms []Mechanism
	results    map[string]*table.Table
	files      map[string][]byte // includes plots
}

func (p *page) line(format string, args ...any) { fmt.Fprintf(p, format+"\n", args...) }

// prose writes a paragraph or an item of a list.
func (p *page) prose(first, text string) {
	s := terminal.Screen{Columns: columns}
	p.WriteString(s.Wrap(first, strings.Repeat(" ", terminal.Width(first)), text))
}

const head = `# The four papers

<!-- drawn by: millrace-lab papers -->

`

// write returns the whole page.
func (p *page) write() []byte {
	p.WriteString(head)
	p.prose("", "This page has every table and figure of PipeDream (SOSP 2019), DAPPLE (PPoPP 2021), BaPipe (2020) and "+
		"AvgPipe (PPoPP 2023), and every mechanism of these papers. `make papers` runs the experiments and writes the page. "+
		"No experiment trains: our values are computed from layer descriptions, described devices, planners and the "+
		"simulator. Results are in `"+ResultsFolder+"`, and `millrace-lab reproduce NAME` computes and prints one of them.")
	p.line("")
	p.prose("", "The first table counts what agrees with the papers.")
	p.line("")
	for _, rule := range []string{
		fmt.Sprintf("A value agrees if it is within %.0f %% of the paper's.", 100*table.Near),
		"A sign agrees if a ratio is on the paper's side of 1.",
		fmt.Sprintf("An order compares two systems. It is counted if they differ by more than %.0f %% in the paper.",
			100*table.Apart),
		"A bound is \"at least\" or \"at most\" in the text.",
		"A crossover is the point where one system overtakes another.",
		"A word is a plan, or a statement that holds or does not.",
	} {
		p.prose("- ", rule)
	}
	p.line("")
	p.prose("", "\"If\" marks an ablation: one or several assumptions are changed, and the rest stays. Of all "+
		"combinations that an experiment tries, the page shows the smallest one under which most signs, orders, bounds "+
		"and crossovers agree, and lists what still differs. The people who chose the assumptions knew the paper's "+
		"values, so a combination shows what would explain the paper's values, not what was the case.")
	p.line("")
	p.summary()
	for _, paper := range p.papers() {
		p.paper(paper)
	}
	p.line("## Mechanisms\n")
	p.counts()
	for _, paper := range p.ofMechanisms() {
		p.line("### %s\n", sentence(paper))
		for _, m := range p.mechanisms {
			if m.Paper == paper {
				p.mechanism(m)
			}
		}
		p.line("")
	}
	p.line("<!-- end of the drawing -->")
	return p.Bytes()
}

func sentence(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// papers returns the names of the papers in order.
func (p *page) papers() (all []string) {
	for _, f := range p.figures {
		if !slices.Contains(all, f.Paper) {
			all = append(all, f.Paper)
		}
	}
	return all
}

func (p *page) ofMechanisms() (all []string) {
	for _, m := range p.mechanisms {
		if !slices.Contains(all, m.Paper) {
			all = append(all, m.Paper)
		}
	}
	return all
}

// experiments returns a paper's experiments, in the order in which its figures name them.
func (p *page) experiments(paper string) (all []string) {
	for _, f := range p.figures {
		for _, name := range f.Experiments {
			if f.Paper == paper && !slices.Contains(all, name) {
				all = append(all, name)
			}
		}
	}
	return all
}

// summary writes how much agrees with the papers, by paper and by experiment.
func (p *page) summary() {
	p.line("## What agrees\n")
	t := report.Table{Head: []string{"experiment", " values", " signs", " orders", " bounds", " crossovers", " words"}}
	of := func(c table.Count) string {
		if c.Of == 0 {
			return "-"
		}
		return fmt.Sprintf("%d of %d", c.Same, c.Of)
	}
	row := func(name string, a table.Agreement) {
		t.Add(name, of(a.Values), of(a.Signs), of(a.Orders), of(a.Bounds), of(a.Crossovers), of(a.Words))
	}
	var notAll []string
	for _, paper := range p.papers() {
		var sum table.Agreement
		for _, name := range p.experiments(paper) {
			a := p.results[name].Agreement()
			row(fmt.Sprintf("[%s](#%s)", name, name), a)
			sum = table.Agreement{Values: sum.Values.Add(a.Values), Signs: sum.Signs.Add(a.Signs),
				Orders: sum.Orders.Add(a.Orders), Bounds: sum.Bounds.Add(a.Bounds),
				Crossovers: sum.Crossovers.Add(a.Crossovers), Words: sum.Words.Add(a.Words)}
			if v := p.results[name].Verdict(); v.Order.Same < v.Order.Of {
				notAll = append(notAll, name+": "+v.String())
			}
		}
		row("**"+paper+"**", sum)
	}
	_ = t.Markdown(p) // writes to memory
	p.line("\nExperiments in which some signs, orders, bounds or crossovers differ, and the changed assumptions that " +
		"explain most:\n")
	for _, one := range notAll {
		p.prose("- ", one)
	}
	p.line("")
}

// paper lists a paper's tables and figures, and shows those that experiments reproduce.
func (p *page) paper(name string) {
	p.line("## %s\n", name)
	for _, f := range p.figures {
		if f.Paper == name {
			p.prose("- ", f.text())
		}
	}
	p.line("")
	for _, e := range p.experiments(name) {
		p.experiment(e)
	}
}

// text returns a figure's line in the list of its paper.
func (f Figure) text() string {
	var parts []string
	for _, e := range f.Experiments {
		parts = append(parts, fmt.Sprintf("[%s](#%s)", e, e))
	}
	if f.Draws != "" {
		parts = append(parts, "`"+f.Draws+"` draws it")
	}
	if f.Knows != "" {
		parts = append(parts, f.Knows)
	}
	if f.Trains != "" {
		text := "`" + f.Trains + "` trains a similar case"
		if len(parts) == 0 {
			text = "not reproduced, because this needs training; " + text
		}
		parts = append(parts, text)
	}
	text := fmt.Sprintf("%s, %s: %s", f.Name, f.Title, strings.Join(parts, "; "))
	if f.Why != "" {
		text += " (" + f.Why + ")"
	}
	return text + "."
}

// experiment shows an experiment's plots, and its table as millrace-lab reproduce prints it.
func (p *page) experiment(name string) {
	p.line("### %s\n", name)
	for i := 0; ; i++ {
		path := plotPath(name, i)
		if _, drawn := p.files[path]; !drawn {
			break
		}
		p.line("![%s](%s)\n", p.results[name].Title, strings.TrimPrefix(path, "docs/"))
	}
	p.line("```")
	var text bytes.Buffer
	p.results[name].Print(&text, terminal.Screen{Columns: columns})
	for line := range strings.Lines(strings.TrimSpace(text.String())) {
		p.line("%s", strings.TrimRight(line, " \n"))
	}
	p.line("```\n")
}

// counts writes how many mechanisms are in each state.
func (p *page) counts() {
	states := map[string]int{}
	for _, m := range p.mechanisms {
		states[m.State]++
	}
	p.prose("", fmt.Sprintf("Of these mechanisms %d work, %d work partly, and %d are absent. Each line has a command "+
		"that uses the mechanism. The named tests fail if the mechanism is wrong; another test checks that they exist.",
		states["works"], states["partly"], states["absent"]))
	p.line("")
}

func (p *page) mechanism(m Mechanism) {
	text := m.Name
	if m.Section != "" {
		text += " (§" + m.Section + ")"
	}
	text += ": **" + m.State + "**"
	if m.How != "none" {
		text += ", " + m.How
	}
	if m.Missing != "" {
		text += ". " + strings.TrimSuffix(m.Missing, ".")
	}
	tests := strings.Join(slices.SortedFunc(slices.Values(m.Tests), cmp.Compare), ", ")
	if tests != "" {
		text += ". Tests: " + tests
	}
	p.prose("- ", text+".")
}
