package report

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/report/picture"
	"github.com/millrace-ml/millrace/trace"
)

// Terminal writes the summary: drawings of the plan and of the predicted and the measured step, the hosts, a comparison
// of the steps' numbers, why workers idled, stragglers, losses and facts. It fits the width of the terminal w; see
// package terminal.
func Terminal(w io.Writer, in Inputs) error {
	in, err := in.filled()
	if err != nil {
		return err
	}
	if _, err = io.WriteString(w, summary(terminal.Of(w), in)); err != nil {
		return fmt.Errorf("report: terminal: %w", err)
	}
	return nil
}

// summary returns what Terminal writes.
func summary(screen terminal.Screen, in Inputs) string {
	d := &drawing{in: in, screen: screen}
	d.head()
	d.plan()
	d.hosts()
	d.steps()
	d.numbers()
	d.idle()
	d.stragglers()
	d.learning()
	d.facts()
	return d.b.String()
}

type drawing struct {
	in     Inputs
	screen terminal.Screen
	b      strings.Builder
}

func (d *drawing) line(format string, args ...any) {
	d.b.WriteString(strings.TrimRight(fmt.Sprintf(format, args...), " ") + "\n")
}

func (d *drawing) section(title, more string) {
	title = d.screen.Paint(terminal.Bold, title)
	if more != "" {
		title += ": " + more
	}
	d.b.WriteString("\n" + d.screen.Wrap("", "  ", title))
}

// table writes a table; writing to a string builder cannot fail.
func (d *drawing) table(t *terminal.Table) { _ = t.Write(&d.b, d.screen) }

func (d *drawing) head() {
	in := d.in
	title := printable(in.Title)
	if m := in.model(); m != in.Title {
		title += " · " + printable(m)
	}
	d.line("%s", d.screen.Paint(terminal.Bold, terminal.Clip(title, d.screen.Columns, "…")))
}

// facts writes Inputs.Facts as a table.
func (d *drawing) facts() {
	if len(d.in.Facts) == 0 {
		return
	}
	d.section("This run", "")
	t := terminal.Table{Columns: []terminal.Column{{}, {Wraps: true}}}
	for _, f := range d.in.Facts {
		t.Add(printable(f.Name), printable(f.Value))
	}
	d.table(&t)
}

// plan draws stages as rows and layers as columns. A column may stand for several layers.
func (d *drawing) plan() {
	p := d.in.Plan
	if p == nil || len(p.Stages) == 0 {
		return
	}
	each := ""
	if n := p.Together(); n > 1 {
		each = " for each of " + terminal.Count(n, "pipeline")
	}
	d.section("Plan", fmt.Sprintf("%s, %s of %s%s, weights %s", printable(p.Schedule),
		terminal.Count(p.MicroBatches, "micro-batch"), terminal.Count(p.MicroBatch, "sample"), each, printable(p.Weights)))
	layers := 0
	for _, s := range p.Stages {
		layers = max(layers, s.LastLayer+1)
	}
	const most = 30
	columns := min(layers, most)
	t := terminal.Table{Columns: []terminal.Column{{Heading: "stage", Number: true}, {Heading: "of the layers", Spare: 3},
		{Heading: "layers"}, {Heading: "worker", Wraps: true}, {Heading: "warm-up", Number: true, Spare: 2},
		{Heading: "recompute", Spare: 1}, {Heading: "weights", Wraps: true}}}
	for i, s := range p.Stages[:min(maxRows, len(p.Stages))] {
		first, last := s.FirstLayer*columns/layers, max(s.FirstLayer*columns/layers, (s.LastLayer+1)*columns/layers-1)
		bar := strings.Repeat("·", max(0, first)) + d.screen.Paint(terminal.Blue,
			strings.Repeat("■", max(0, last-first+1))) + strings.Repeat("·", max(0, columns-1-last))
		warmup, again := "", ""
		if s.Warmup > 0 {
			warmup = strconv.Itoa(s.Warmup)
		}
		if s.Recompute.Again() {
			again = s.Recompute.String()
		}
		t.Add(strconv.Itoa(i), bar, layersOf(&s), list(s.Devices), warmup, again, d.in.weightsOf(i))
	}
	d.table(&t)
	if more := len(p.Stages) - maxRows; more > 0 {
		d.line("  … and %s", terminal.Count(more, "more stage"))
	}
	if p.LowerBound != nil && p.LowerBound.StepS > 0 {
		d.wrap("  ", fmt.Sprintf("no such plan takes less than %s a step; this one is %s",
			terminal.Duration(p.LowerBound.StepS), p.LowerBound.Above()))
	}
	for i, why := range p.Why {
		if i == mostWhy {
			d.wrap("  ", fmt.Sprintf("… and %s; the plan's file has all", terminal.Count(len(p.Why)-i, "more reason")))
			break
		}
		d.wrap("  ", printable(why))
	}
}

// mostWhy is the maximal number of reasons of a plan that are shown: its own and those of five rivals.
const mostWhy = 6

// maxRows is the maximal number of stages or workers that are drawn one by one.
const maxRows = 16

// wrap writes indented prose.
func (d *drawing) wrap(indent, s string) { d.b.WriteString(d.screen.Wrap(indent, indent+"  ", s)) }

// numbers compares predictions with measurements. Neighbouring workers with the same text share a row.
func (d *drawing) numbers() {
	predicted, measured := d.in.numbers()
	rows := compareNumbers(predicted, measured, d.in.workers())
	if len(rows) == 0 {
		return
	}
	t := terminal.Table{Columns: []terminal.Column{{}, {Heading: "worker"}, {Heading: "predicted", Number: true},
		{Heading: "measured", Number: true}, {Heading: "difference", Number: true}}}
	title, which := "Predicted", ""
	switch {
	case predicted == nil:
		title, which = "Measured", measured.which()
		t.Columns[2].Heading = ""
	case measured != nil:
		title, which = "Predicted against measured", measured.which()
	}
	d.section(title, which)
	shown, name := 0, ""
	for i := 0; i < len(rows); shown++ {
		c := &rows[i]
		var workers []int
		for ; i < len(rows) && rows[i].Name == c.Name && d.cells(&rows[i]) == d.cells(c); i++ {
			workers = append(workers, rows[i].Worker)
		}
		if shown >= 3*maxRows {
			continue
		}
		cells := d.cells(c)
		row := []string{"", list(workers), cells[0], cells[1], cells[2]}
		if c.Name != name {
			row[0], name = c.Name, c.Name
		}
		if c.Worker < 0 {
			row[1] = ""
		}
		t.Add(row...)
	}
	d.table(&t)
	if more := shown - 3*maxRows; more > 0 {
		d.line("  … and %s; --json has all", terminal.Count(more, "more row"))
	}
	if p := d.in.Plan; p != nil && p.Tensor != nil && predicted != nil && len(predicted.PeakBytes) > 0 {
		n := p.Tensor.Devices
		d.wrap("  ", fmt.Sprintf("a worker is a group of %s, and its memory is that of all: at most %s on each",
			terminal.Count(n, "device"), terminal.Bytes(slices.Max(predicted.PeakBytes)/int64(n))))
	}
	if note := d.in.memoryNote(); note != "" {
		d.wrap("  ", note)
	}
}

// cells returns both sides of a comparison and their difference. The difference is green, yellow or red, as the method
// `off` rates it. An unknown side is empty.
func (d *drawing) cells(c *Comparison) (cells [3]string) {
	for i, x := range []*float64{c.Predicted, c.Measured} {
		if x != nil {
			cells[i] = c.Unit.Format(*x)
		}
	}
	if c.Difference != nil {
		style := []terminal.Style{terminal.Green, terminal.Yellow, terminal.Red}[c.off()]
		cells[2] = d.screen.Paint(style, c.differenceText())
	}
	return cells
}

// idle writes for each worker what it waited for in the step.
func (d *drawing) idle() {
	title := "Idle time, measured"
	t, _ := d.in.measuredStep()
	if t == nil {
		title = "Idle time, predicted"
		if t, _ = d.in.predictedStep(); t == nil {
			return
		}
	}
	start, end := t.Extent()
	if end <= start {
		return
	}
	label := picture.Label(t.Workers)
	d.section(title, "part of the step that is drawn")
	d.line("%s", d.screen.Paint(terminal.Faint, fmt.Sprintf("%*s", label, "worker")))
	gaps := trace.AllGaps(t)
	why := func(w int) string {
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
		return strings.Join(parts, ", ")
	}
	d.byHost(t.Workers, func(a, b int) bool { return why(a) == why(b) }, func(first, last int) {
		d.b.WriteString(d.screen.Wrap(fmt.Sprintf("%*s  ", label, span(first, last)), strings.Repeat(" ", label+2),
			why(first)))
	})
}

// byHost draws a row for each worker, or one row for neighbours that are alike. With several processes, workers are
// grouped under their hosts' names.
func (d *drawing) byHost(workers int, alike func(a, b int) bool, row func(first, last int)) {
	rows, left := 0, workers
	for _, h := range d.in.groups() {
		if len(h.Processes) > 0 && len(h.Workers) > 0 && rows < maxRows {
			d.line("  %s", d.screen.Paint(terminal.Faint, terminal.Clip(h.title(), d.screen.Columns-2, "…")))
		}
		for i := 0; i < len(h.Workers) && h.Workers[i] < workers && rows < maxRows; rows++ {
			first, last := h.Workers[i], h.Workers[i]
			for i++; i < len(h.Workers) && h.Workers[i] == last+1 && last+1 < workers && alike(first, last+1); i++ {
				last++
			}
			row(first, last)
			left -= last + 1 - first
		}
	}
	if left > 0 {
		d.line("  … and %s", terminal.Count(left, "more worker"))
	}
}

// hosts writes which workers are on which host, and how precisely the clocks agree.
func (d *drawing) hosts() {
	t := d.in.Measured
	all := hostsOf(t)
	if all == nil {
		return
	}
	d.section("Hosts", "")
	rows := 0
	table := terminal.Table{Columns: []terminal.Column{{Heading: "host", Wraps: true}, {Heading: "rank", Number: true},
		{Heading: "has", Wraps: true}}}
	for _, h := range all {
		name := printable(h.Name)
		for _, p := range h.Processes {
			if rows++; rows <= maxRows {
				table.Add(name, strconv.Itoa(p), d.in.heldBy(t, p))
			}
			name = ""
		}
	}
	d.table(&table)
	if rows > maxRows {
		d.line("  … and %s", terminal.Count(rows-maxRows, "more process"))
	}
	for _, s := range clocks(t) {
		d.wrap("  ", s)
	}
}

func (d *drawing) stragglers() {
	all := stragglers(d.in)
	if all == nil {
		return
	}
	d.section("Stragglers", "")
	for i, s := range all {
		if i == maxRows {
			d.line("  … and %s", terminal.Count(len(all)-maxRows, "more time"))
			break
		}
		d.wrap("  ", printable(s))
	}
}

// learning draws the loss as a line of blocks, and writes the last evaluation. If there is a reference, it also draws
// its distance from the average.
func (d *drawing) learning() {
	losses := d.in.Losses
	if len(losses) > 0 {
		first, last := losses[0], losses[len(losses)-1]
		d.section("Loss", fmt.Sprintf("step %s to %s", terminal.Whole(trace.StepNumber(first.Step)),
			terminal.Whole(trace.StepNumber(last.Step))))
		values := make([]float64, len(losses))
		for i, l := range losses {
			values[i] = l.Value
		}
		line := sparkline(values, min(48, d.screen.Columns-18))
		d.line("  %s %s %s", terminal.Loss(first.Value), d.screen.Paint(terminal.Cyan, line), terminal.Loss(last.Value))
	}
	if n := len(d.in.Evaluations); n > 0 {
		e := d.in.Evaluations[n-1]
		s := fmt.Sprintf("evaluation after %s: loss %s", terminal.Count(trace.StepNumber(e.Step), "step"),
			terminal.Loss(e.Loss))
		if e.Samples > 0 {
			s += fmt.Sprintf(", accuracy %.2f %% (%s of %s)", 100*e.Accuracy(), terminal.Whole(e.Correct),
				terminal.Whole(e.Samples))
		}
		s += e.Said()
		d.wrap("  ", s)
	}
	var apart []float64
	for _, e := range d.in.Evaluations {
		if e.Apart != nil {
			apart = append(apart, *e.Apart)
		}
	}
	if len(apart) > 0 {
		line := d.screen.Paint(terminal.Cyan, sparkline(apart, min(32, d.screen.Columns-8)))
		d.wrap("  ", fmt.Sprintf("reference off its average %s at most %.1e", line, slices.Max(apart)))
	}
}

// sparkline divides xs into equal parts, and draws the mean of each as a block. Blocks go from the lowest to the
// highest mean.
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
