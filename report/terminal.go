package report

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/millrace-ml/millrace/trace"
	"golang.org/x/term"
)

// terminalWidth is what the summary is drawn for; wider terminals gain nothing.
const terminalWidth = 80

// Terminal writes the summary: the plan drawn, the predicted and the measured step
// drawn, predicted against measured in numbers, why workers idled, and losses. It uses
// colour only where w is a terminal and NO_COLOR is not set.
func Terminal(w io.Writer, in Inputs) error {
	in, err := in.filled()
	if err != nil {
		return err
	}
	d := &drawing{in: in, ink: inkFor(w)}
	d.head()
	d.plan()
	d.hosts()
	d.steps()
	d.numbers()
	d.idle()
	d.stragglers()
	d.learning()
	_, err = io.WriteString(w, d.b.String())
	if err != nil {
		return fmt.Errorf("report: terminal: %w", err)
	}
	return nil
}

// ink is whether colours are written.
type ink bool

// inkFor says whether w shows colours, by the convention of no-color.org.
func inkFor(w io.Writer) ink {
	f, ok := w.(interface{ Fd() uintptr }) // a file, or what stands before one
	return ink(ok && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && term.IsTerminal(int(f.Fd())))
}

// ANSI codes; the sixteen basic ones, which every theme makes readable.
const (
	bold   = "1"
	faint  = "2"
	red    = "31"
	green  = "32"
	yellow = "33"
)

func (k ink) paint(code, s string) string {
	if !k || s == "" {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

// codeOf is the colour of a kind of instruction, close to the page's.
func codeOf(kind byte) string {
	switch kind {
	case 'F', 'E':
		return "34"
	case 'B', 'I':
		return "33"
	case 'W':
		return "36"
	case 'U':
		return "35"
	}
	return faint
}

type drawing struct {
	in  Inputs
	ink ink
	b   strings.Builder
}

func (d *drawing) line(format string, args ...any) {
	d.b.WriteString(strings.TrimRight(fmt.Sprintf(format, args...), " ") + "\n")
}

func (d *drawing) section(title, more string) {
	d.line("")
	if more != "" {
		more = "  " + d.ink.paint(faint, more)
	}
	d.line("%s%s", d.ink.paint(bold, title), more)
}

func (d *drawing) head() {
	in := d.in
	title := printable(in.Title)
	if m := in.model(); m != in.Title {
		title += " · " + printable(m)
	}
	d.line("%s", d.ink.paint(bold, clip(title, terminalWidth)))
	for _, f := range in.Facts {
		d.line("%s", clip(fmt.Sprintf("  %-18s %s", printable(f.Name), printable(f.Value)), terminalWidth))
	}
}

// plan draws stages over layers: a row a stage, a column a layer (or several).
func (d *drawing) plan() {
	p := d.in.Plan
	if p == nil || len(p.Stages) == 0 {
		return
	}
	d.section("Plan", fmt.Sprintf("%s, %d micro-batches of %d, weights %s", printable(p.Schedule), p.MicroBatches,
		p.MicroBatch, printable(p.Weights)))
	layers := 0
	for _, s := range p.Stages {
		layers = max(layers, s.LastLayer+1)
	}
	const most = 30
	columns := min(layers, most)
	for i, s := range p.Stages {
		if i == maxRows {
			d.line("  … and %d more stages", len(p.Stages)-maxRows)
			break
		}
		first, last := s.FirstLayer*columns/layers, max(s.FirstLayer*columns/layers, (s.LastLayer+1)*columns/layers-1)
		bar := strings.Repeat("·", max(0, first)) + strings.Repeat("■", max(0, last-first+1)) +
			strings.Repeat("·", max(0, columns-1-last))
		note := "layers " + layersOf(&s)
		if len(s.Devices) > 1 {
			note += " workers " + list(s.Devices)
		} else if len(s.Devices) == 1 {
			note += fmt.Sprintf(" worker %d", s.Devices[0])
		}
		if s.Warmup > 0 {
			note += fmt.Sprintf(" K %d", s.Warmup)
		}
		if s.Recompute.Again() {
			note += " recompute " + s.Recompute.String()
		}
		bar = strings.ReplaceAll(bar, strings.Repeat("■", max(1, last-first+1)),
			d.ink.paint("34", strings.Repeat("■", max(1, last-first+1))))
		d.line("  stage %-2d %s  %s", i, bar, clip(note, terminalWidth-13-columns))
	}
	if p.LowerBound != nil && p.LowerBound.StepS > 0 {
		d.line("  no such plan takes less than %s a step; this one is %s", trace.Seconds(p.LowerBound.StepS),
			p.LowerBound.Above())
	}
	for _, why := range p.Why {
		d.wrap("  ", printable(why))
	}
}

// maxRows is the most stages or workers that are drawn one by one.
const maxRows = 16

// wrap writes words in lines of the terminal's width, each after the indent.
func (d *drawing) wrap(indent, s string) {
	line := indent
	for word := range strings.FieldsSeq(s) {
		if utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > terminalWidth && line != indent {
			d.line("%s", line)
			line = indent + "  "
		}
		if strings.TrimSpace(line) != "" {
			line += " "
		}
		line += word
	}
	d.line("%s", line)
}

func (d *drawing) numbers() {
	predicted, measured := d.in.numbers()
	rows := compareNumbers(predicted, measured, d.in.workers())
	if len(rows) == 0 {
		return
	}
	d.section("Predicted against measured", measured.which())
	var b strings.Builder
	for i := range rows {
		c := &rows[i]
		if i == 3*maxRows {
			fmt.Fprintf(&b, "  … and %d more rows; --json has them all\n", len(rows)-i)
			break
		}
		fmt.Fprintf(&b, "  %-28s %12s %12s %s\n", c.label(), c.text(c.Predicted), c.text(c.Measured), d.judged(c))
	}
	d.line("%s", d.ink.paint(faint, fmt.Sprintf("  %-28s %12s %12s %14s", "", "predicted", "measured", "difference")))
	d.b.WriteString(b.String())
}

// judged is the difference, green within 5 %, yellow within 15 %, red beyond.
func (d *drawing) judged(c *Comparison) string {
	s := fmt.Sprintf("%14s", c.differenceText())
	if c.Difference == nil {
		return d.ink.paint(faint, s)
	}
	return d.ink.paint([]string{green, yellow, red}[c.off()], s)
}

// idle says for each worker what it waited for in the step shown.
func (d *drawing) idle() {
	title := "Idle time, measured"
	t, _ := d.measuredStep()
	if t == nil {
		title = "Idle time, predicted"
		if t, _ = shownStep(d.in.Simulated, 0); t == nil {
			return
		}
	}
	start, end := t.Extent()
	if end <= start {
		return
	}
	d.section(title, "part of the step")
	gaps := trace.AllGaps(t)
	d.byHost(t.Workers, func(w int) {
		idle := trace.Idle(gaps[w])
		var parts []string
		for _, c := range trace.Causes {
			if part := idle[c] / (end - start); part >= .0005 {
				parts = append(parts, fmt.Sprintf("%s %.1f %%", c.Label(), 100*part))
			}
		}
		if parts == nil {
			parts = []string{"none"}
		}
		d.wrap("  ", fmt.Sprintf("w%d  %s", w, strings.Join(parts, ", ")))
	})
}

// byHost draws a row for each worker, those of a host under its name where there are several processes.
func (d *drawing) byHost(workers int, row func(worker int)) {
	rows := 0
	for _, h := range d.in.groups() {
		if len(h.Processes) > 0 && len(h.Workers) > 0 && rows < maxRows {
			d.line("  %s", d.ink.paint(faint, clip(h.title(), terminalWidth-2)))
		}
		for _, w := range h.Workers {
			if rows++; w < workers && rows <= maxRows {
				row(w)
			}
		}
	}
	if workers > maxRows {
		d.line("  … and %d more workers", workers-maxRows)
	}
}

// hosts says which workers are where, and how well the clocks agree.
func (d *drawing) hosts() {
	t := d.in.Measured
	all := hostsOf(t)
	if all == nil {
		return
	}
	d.section("Hosts", "")
	wide := 0
	for _, h := range all {
		wide = min(18, max(wide, utf8.RuneCountInString(h.Name)))
	}
	rows := 0
	for _, h := range all {
		name := printable(h.Name)
		for _, p := range h.Processes {
			if rows++; rows <= maxRows {
				d.line("  %-*s  %s", wide, clip(name, wide), clip(fmt.Sprintf("rank %d: %s", p, d.in.heldBy(t, p)),
					terminalWidth-4-wide))
			}
			name = ""
		}
	}
	if rows > maxRows {
		d.line("  … and %d more processes", rows-maxRows)
	}
	for _, s := range clocks(t) {
		d.wrap("  ", s)
	}
}

// stragglers names those that there were.
func (d *drawing) stragglers() {
	all := stragglers(d.in.Measured)
	if all == nil {
		return
	}
	d.section("Stragglers", "")
	for i, s := range all {
		if i == maxRows {
			d.line("  … and %d more times", len(all)-maxRows)
			break
		}
		d.wrap("  ", printable(s))
	}
}

// learning draws the loss as a line of blocks, and names the last evaluation.
func (d *drawing) learning() {
	losses := d.in.Losses
	if len(losses) > 0 {
		first, last := losses[0], losses[len(losses)-1]
		d.section("Loss", fmt.Sprintf("step %d to %d", first.Step, last.Step))
		values := make([]float64, len(losses))
		for i, l := range losses {
			values[i] = l.Value
		}
		d.line("  %.4f %s %.4f", first.Value, d.ink.paint("36", sparkline(values, 48)), last.Value)
	}
	if n := len(d.in.Evaluations); n > 0 {
		e := d.in.Evaluations[n-1]
		s := fmt.Sprintf("  evaluation after %d steps: loss %.4f", e.Step+1, e.Loss)
		if e.Samples > 0 && e.Correct > 0 {
			s += fmt.Sprintf(", accuracy %.2f %% (%d of %d)", 100*e.Accuracy(), e.Correct, e.Samples)
		}
		s += e.Said()
		d.line("%s", s)
	}
	var apart []float64
	for _, e := range d.in.Evaluations {
		if e.Apart != nil {
			apart = append(apart, *e.Apart)
		}
	}
	if len(apart) > 0 {
		d.line("  reference off its average %s at most %.1e", d.ink.paint("36", sparkline(apart, 32)), slices.Max(apart))
	}
}

// sparkline draws means of equal parts of xs as blocks from the lowest to the highest.
func sparkline(xs []float64, columns int) string {
	columns = min(columns, len(xs))
	means := make([]float64, columns)
	low, high := 0.0, 0.0
	for c := range means {
		part := xs[c*len(xs)/columns : (c+1)*len(xs)/columns]
		for _, x := range part {
			means[c] += x / float64(len(part))
		}
		if c == 0 || means[c] < low {
			low = means[c]
		}
		if c == 0 || means[c] > high {
			high = means[c]
		}
	}
	blocks := []rune("▁▂▃▄▅▆▇█")
	out := make([]rune, columns)
	for c, x := range means {
		k := 0
		if high > low {
			k = int((x - low) / (high - low) * float64(len(blocks)-1))
		}
		out[c] = blocks[min(max(k, 0), len(blocks)-1)]
	}
	return string(out)
}
