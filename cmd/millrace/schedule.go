package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/cmd/internal/words"
	"github.com/millrace-ml/millrace/cmd/millrace/internal/listing"
	"github.com/millrace-ml/millrace/internal/document"
	"github.com/millrace-ml/millrace/internal/names"
	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/report"
	"github.com/millrace-ml/millrace/report/picture"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/check"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/sim"
	"github.com/millrace-ml/millrace/trace"
	"github.com/millrace-ml/millrace/tune/contest"
)

const (
	// mostDrawn is the maximal number of instructions of a Program that is drawn on a terminal.
	mostDrawn = 1 << 20
	// mostInFile is the maximal number of instructions in a drawing's file, because browsers cannot open larger files.
	mostInFile = 1 << 22
)

func scheduleCommand() *cobra.Command {
	var s shape
	var asJSON, text bool
	var svg, page string
	c := &cobra.Command{
		Use: "schedule [NAME | FILE]", Short: "Write, check and draw a schedule",
		Long: `schedule makes the Program of a schedule's name, or reads a Program from a file. It proves that the Program cannot
block, simulates it on uniform stages, and draws it: one row for each worker, time to the right. F is a forward, B a
backward, I and W its two halves (the input gradient and the weight gradient), U an update. The number behind the
letter is the micro-batch.

millrace schedule ls lists the names.`,
		Example: "  millrace schedule pb --workers 4 --micro-batches 8 --transfer 0.2\n" +
			"  millrace schedule zb-v --html zb-v.html\n  millrace schedule runs/gpt/program.txt --svg step.svg\n" +
			"  millrace schedule compare --workers 4 --micro-batches 8",
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: words.Each(words.SchedulesAndFiles),
		RunE: func(c *cobra.Command, args []string) error {
			s.norms.clip = s.norms.clip || c.Flags().Changed("norm")
			if err := s.name(c, args); err != nil {
				return cli.BadInput(err)
			}
			for _, take := range []func(c *cobra.Command) error{s.filed, s.sized, s.chunked, s.streams} {
				if err := take(c); err != nil {
					return cli.BadInput(err)
				}
			}
			p, rep, err := s.program()
			if err != nil {
				return err
			}
			if s.note != "" {
				fmt.Fprintf(c.ErrOrStderr(), "millrace: %s\n", s.note)
			}
			out := c.OutOrStdout()
			if text {
				_, err := fmt.Fprint(out, p.Text())
				return err
			}
			size := p.Instructions()
			if wanted := svg + page; wanted != "" && size > mostInFile {
				return cli.BadInput(fmt.Errorf("%s: a drawing in a file shows %d instructions at most; this program has %d, "+
					"repetitions counted", wanted, mostInFile, size))
			}
			recorded := svg != "" || page != "" || !asJSON && size <= mostDrawn
			t, sum, err := s.play(p, recorded)
			if err != nil {
				return err
			}
			if svg+page != "" {
				drawing, err := s.drawing(p, rep, t, sum)
				if err == nil {
					err = writeDrawings(drawing, svg, page)
				}
				if err != nil {
					return err
				}
			}
			if asJSON {
				return cli.WriteJSON(out, struct {
					Program *schedule.Program  `json:"program"`
					Check   check.Report       `json:"check"`
					Stages  []schedule.Holding `json:"stages"`
					Summary sim.Summary        `json:"summary"`
				}{p, rep, p.Holdings(), sum})
			}
			return errors.Join(s.print(out, p, rep, t, sum), cli.Wrote(out, svg, page))
		},
	}
	s.add(c)
	f := c.Flags()
	f.BoolVar(&asJSON, "json", false, "print the result as JSON")
	f.BoolVar(&text, "text", false, "print the Program's text form, which --program reads")
	f.StringVar(&svg, "svg", "", "draw it into this SVG file")
	f.StringVar(&page, "html", "", "draw it into this HTML file, which needs no other files")
	cli.Writes(c, "svg", "html")
	c.AddCommand(listing.SchedulesCommand(), compareCommand())
	return c
}

// trained returns how many micro-batches a Program trains on.
func trained(p *schedule.Program) int {
	return p.Minibatches() * max(1, p.MicroBatches/max(1, p.Period))
}

// drawing returns a simulated Program as a drawing for a page.
func (s *shape) drawing(p *schedule.Program, rep check.Report, t *trace.Timeline,
	sum sim.Summary) (*report.Grid, error) {
	facts, err := s.facts(p, rep, sum)
	facts = append(facts, report.Fact{Name: "weights", Value: string(p.Weights)},
		report.Fact{Name: "costs", Value: s.costsInWords(p)})
	return &report.Grid{Title: s.titleOf(p), Timeline: t, Stages: stageTable(p), Facts: facts}, err
}

// stageTable returns what each stage keeps and sends. It counts messages for the micro-batches of one step.
func stageTable(p *schedule.Program) *report.Table {
	t := &report.Table{Head: []string{" stage", " worker", " in flight", " versions", " activations sent",
		" gradients sent", " all-reduces"}}
	steps := max(1, p.Minibatches())
	holdings := p.Holdings()
	several := len(p.Placement) > 1
	replicated := slices.ContainsFunc(holdings, func(h schedule.Holding) bool { return h.Replica > 0 })
	for _, h := range holdings {
		name := fmt.Sprint(h.Stage)
		if several {
			name = fmt.Sprintf("p%d/%d", h.Pipeline, h.Stage)
		}
		if replicated {
			name += fmt.Sprintf("@r%d", h.Replica)
		}
		per := func(n int) string { return fmt.Sprintf("%.4g", float64(n)/float64(steps)) }
		t.Add(name, h.Worker, h.Peak, h.Versions, per(h.Activations), per(h.Gradients), per(h.Reductions))
	}
	return t
}

// writeDrawings writes the drawings that were asked for.
func writeDrawings(g *report.Grid, svg, page string) error {
	for _, f := range []struct {
		path  string
		write func(io.Writer) error
	}{{svg, g.SVG}, {page, g.HTML}} {
		if f.path == "" {
			continue
		}
		if err := document.Write(f.path, f.write); err != nil {
			return err
		}
	}
	return nil
}

// mostRows is the maximal number of workers, and of stages, shown on a terminal.
const mostRows = 32

// print prints for people the drawing, a step's time and memory, and each stage's share.
func (s *shape) print(w io.Writer, p *schedule.Program, rep check.Report, t *trace.Timeline, sum sim.Summary) error {
	screen := terminal.Of(w)
	var b strings.Builder
	b.WriteString(screen.Wrap("", "", screen.Paint(terminal.Bold, s.titleOf(p))))
	if s.file == "" {
		f, err := family.Lookup(s.family)
		if err != nil {
			return err
		}
		about := f.Doc
		if named := strings.ToLower(s.family); named != f.Name {
			about = fmt.Sprintf("%s is %s here: %s", s.family, f.Name, f.Doc)
		}
		b.WriteString(screen.Wrap("", "", about))
	}
	b.WriteString(screen.Wrap("", "", s.costsInWords(p)+"."))
	size := p.Instructions()
	if size <= mostDrawn {
		b.WriteString(drawn(screen, t))
	} else {
		b.WriteString(screen.Wrap("", "", fmt.Sprintf("Not drawn here: it has %s, repetitions counted, and %s are drawn; "+
			"--svg and --html draw up to %s.", terminal.Count(int(size), "instruction"), terminal.Number(mostDrawn, 0),
			terminal.Number(mostInFile, 0))))
	}
	facts, err := s.facts(p, rep, sum)
	if err != nil {
		return err
	}
	laid := terminal.Table{Columns: []terminal.Column{{}, {Wraps: true}}}
	for _, f := range facts {
		laid.Add(f.Name, f.Value)
	}
	b.WriteString("\n")
	if err := laid.Write(&b, screen); err != nil {
		return err
	}
	b.WriteString("\n")
	if err := stagesShown(stageTable(p)).Write(&b, screen); err != nil {
		return err
	}
	if more := len(p.Holdings()) - mostRows; more > 0 {
		b.WriteString(screen.Wrap("  ", "  ", fmt.Sprintf("… and %s; --json has all", terminal.Count(more, "more row"))))
	}
	_, err = io.WriteString(w, b.String())
	return err
}

// streams sets the default number of micro-batches of an order without a flush to the smallest possible. For most
// orders that is one. Under a policy that accumulates, it is the number of stages, or of a stage's replicas if these
// are more.
func (s *shape) streams(c *cobra.Command) error {
	f, err := family.Lookup(s.family)
	if err != nil || !f.Asynchronous() || s.file != "" || c.Flags().Changed("micro-batches") {
		return nil // an unknown family is refused later
	}
	s.micros = 1
	keeps := cmp.Or(schedule.Policy(s.weights), f.DefaultPolicy())
	placement, err := s.placement(f)
	if err == nil && keeps.Accumulates() {
		s.micros = len(placement)
		for _, on := range placement {
			s.micros = max(s.micros, len(on))
		}
	}
	return err
}

// play simulates the Program of a shape on uniform stages. It records every event if `recorded` is set.
func (s *shape) play(p *schedule.Program, recorded bool) (*trace.Timeline, sim.Summary, error) {
	t, sum, err := sim.Run(p, s.times.costs(p), sim.Options{Record: recorded})
	if err != nil || p.Weights.Flushes() || p.Period < 2 || p.Repeat < 1 || p.Instructions() > mostDrawn/3 {
		return t, sum, cli.BadInput(err)
	}
	longer := *p // replicas end minibatches together, so the time of one minibatch needs a longer run
	longer.Repeat = 2*p.Repeat + 1
	_, more, err := sim.Run(&longer, s.times.costs(p), sim.Options{})
	more = more.Steadily(sum, nil)
	sum.StepS, sum.BusyS, sum.Bubble = more.StepS, more.BusyS, more.Bubble
	return t, sum, cli.BadInput(err)
}

// facts lists the time of a step by itself, and the time of a step with others before and after it. It also lists the
// micro-batches in flight, and what was checked.
func (s *shape) facts(p *schedule.Program, rep check.Report, sum sim.Summary) (all []report.Fact, err error) {
	add := func(name, value string) { all = append(all, report.Fact{Name: name, Value: value}) }
	takes := func(stepS, bubble float64) string { return fmt.Sprintf("%.4g, bubble %.1f %%", stepS, 100*bubble) }
	alone := takes(sum.StepS, sum.Bubble)
	steadyS, bubble, err := s.steady(p, p.Instructions())
	switch {
	case err != nil:
		return nil, err
	case !p.Weights.Flushes():
		add("minibatch", alone+", in the stream")
	case sum.Steps != 1:
		add("step", alone+", from one's end to the next one's")
	case steadyS == 0:
		add("step", alone+", by itself")
	case takes(steadyS, bubble) == alone:
		add("step", alone+", by itself and with others before and after it")
	default:
		add("step", alone+", by itself")
		steady := takes(steadyS, bubble) + ", with others before and after it"
		if n := p.Pipelines(); n > 1 {
			steady += fmt.Sprintf("; %.4g for the batch of each pipeline", steadyS/float64(n))
		}
		add("steady step", steady)
	}
	add("in flight", inFlight(p, rep.PeakActivations))
	add("checked", checkedWords(p, rep))
	return all, nil
}

// steady returns the time and the bubble of a step with other steps before and after it. The Program must have a single
// step that ends with a flush. For any other Program, or if the simulation would take too long, steady returns 0.
func (s *shape) steady(p *schedule.Program, size int64) (stepS, bubble float64, err error) {
	if !p.Weights.Flushes() || p.Minibatches() != 1 || size > mostDrawn/contest.Steps {
		return 0, 0, nil
	}
	repeated := *p
	repeated.Repeat = contest.Steps
	if s.file == "" { // a family may order consecutive steps differently than a single step
		again := *s
		again.minibatches = contest.Steps
		written, _, err := again.program()
		if err != nil {
			return 0, 0, err
		}
		repeated = *written
	}
	stepS, lost, err := contest.Steady(&repeated, s.times.costs(p))
	return stepS, lost.Sum(), err
}

// drawn draws a Timeline as boxes. If the boxes do not fit, it draws the whole Timeline as letters, and its beginning
// as boxes.
func drawn(screen terminal.Screen, t *trace.Timeline) string {
	_, end := t.Extent()
	frame := picture.Frame{Screen: screen, ToS: end}
	boxes := picture.Boxes(t, frame)
	if boxes.Whole() {
		return boxes.Text(mostRows) + "\n" + boxes.Legend()
	}
	letters := picture.Letters(t, frame)
	what := fmt.Sprintf("All of it; a letter is what takes most of %.3g.", letters.EachS)
	if letters.Exact {
		what = fmt.Sprintf("All of it; a letter is %.4g.", letters.EachS)
	}
	return screen.Wrap("", "", screen.Paint(terminal.Faint, what)) +
		letters.Text(mostRows) + "\n" +
		screen.Wrap("", "", screen.Paint(terminal.Faint, fmt.Sprintf("The first %.4g of %.4g.", boxes.ToS, end))) +
		boxes.Text(mostRows) + "\n" + picture.Legend(letters, boxes) +
		screen.Wrap("", "", fmt.Sprintf("All boxes: a terminal of %s, or --html FILE.",
			terminal.Count(boxes.Columns, "column")))
}

// titleOf returns the name and size of a Program. The name is that of its family or of its file.
func (s *shape) titleOf(p *schedule.Program) string {
	name := p.Name
	if s.file != "" {
		name = names.Shown(filepath.Base(s.file))
	}
	stages := terminal.Count(p.Stages, "stage")
	var each []int
	for _, on := range p.Placement[0] {
		each = append(each, len(on))
	}
	if slices.Max(each) > slices.Min(each) {
		stages += " (" + strings.ReplaceAll(commas(each), ",", "-") + ")"
	}
	return fmt.Sprintf("%s: %s on %s, %s", name, stages, terminal.Count(p.Workers, "worker"),
		terminal.Count(trained(p), "micro-batch"))
}

func checkedWords(p *schedule.Program, rep check.Report) string {
	text := fmt.Sprintf("%s, %s", terminal.Count(rep.Instructions, "instruction"), terminal.Count(rep.Messages, "message"))
	if all := p.Minibatches(); rep.Minibatches < all {
		text += fmt.Sprintf(" of the first %s of %s, which repeat", terminal.Count(rep.Minibatches, "minibatch"),
			terminal.Whole(all))
	}
	return text + "; nothing can block"
}

// inFlight says how many micro-batches are in flight on the workers that have the most.
func inFlight(p *schedule.Program, peaks []int) string {
	most := slices.Max(peaks)
	var full []int
	for w, n := range peaks {
		if n == most {
			full = append(full, w)
		}
	}
	where := ""
	switch {
	case len(full) == len(peaks) && len(peaks) > 1:
		where = ", on each worker"
	case len(full) == 1 && len(peaks) > 1:
		where = fmt.Sprintf(", on worker %d", full[0])
	case len(full) < len(peaks):
		where = ", on " + terminal.Count(len(full), "worker")
	}
	if hasChunks(p) {
		where += oneForEach
	}
	return fmt.Sprintf("at most %s between forward and backward%s", terminal.Count(most, "micro-batch"), where)
}

// stagesShown returns the first rows of a stageTable for a terminal.
func stagesShown(all *report.Table) *terminal.Table {
	t := &terminal.Table{Columns: []terminal.Column{{Heading: "stage", Number: true}, {Heading: "worker", Number: true},
		{Heading: "in flight", Number: true}, {Heading: "versions", Number: true},
		{Heading: "activations", Group: "sent in a step", Number: true},
		{Heading: "gradients", Group: "sent in a step", Number: true}, {Heading: "all-reduces", Number: true}}}
	for _, row := range all.Rows[:min(mostRows, len(all.Rows))] {
		t.Add(row...)
	}
	return t
}
