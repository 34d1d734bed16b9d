package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/internal/document"
	"github.com/millrace-ml/millrace/report"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/check"
	"github.com/millrace-ml/millrace/schedule/draw"
	"github.com/millrace-ml/millrace/sim"
	"github.com/millrace-ml/millrace/trace"
)

// gridColumns bounds a drawing on a terminal.
const gridColumns = 40

// grid draws a Timeline with draw.Grid, a column for the shortest computation; of many
// columns the first. Boxes name their stage where workers hold several, and of elastic averaging
// their pipeline, by a letter.
func grid(p *schedule.Program, t *trace.Timeline) string {
	end, slot := 0.0, 0.0
	for _, e := range t.Events {
		if d := e.EndS - e.StartS; e.Lane == trace.Compute && trace.IsBusy(e.Kind) && d > 0 {
			end = max(end, e.EndS)
			if slot == 0 || d < slot {
				slot = d
			}
		}
	}
	if slot == 0 {
		return ""
	}
	shown := min(end, gridColumns*slot)
	several, models := false, p.HasReference()
	for w := range p.Workers {
		several = several || !models && len(p.StagesOf(w)) > 1
	}
	var spans []draw.Span
	for _, e := range t.Events {
		if e.Lane != trace.Compute || !trace.IsBusy(e.Kind) || e.EndS <= e.StartS || e.StartS >= shown {
			continue
		}
		text := e.Instruction
		if f, ok := trace.ParseFields(text); ok {
			text = fmt.Sprintf("%s%d", f.Kind, f.Micro)
			if several {
				text = fmt.Sprintf("%d%s", f.Stage, text)
			}
			if models {
				text = fmt.Sprintf("%c%s", 'a'+f.Pipeline%26, text)
			}
		}
		spans = append(spans, draw.Span{Worker: e.Worker, Text: text, Start: e.StartS, End: min(shown, e.EndS)})
	}
	text, err := draw.Grid(t.Workers, spans, slot)
	if err != nil {
		return err.Error() + "\n"
	}
	if shown < end {
		text += fmt.Sprintf("(the first %.4g of %.4g)\n", shown, end)
	}
	return text
}

const (
	// mostDrawn is the most instructions of a Program that a terminal is shown a drawing of.
	mostDrawn = 1 << 20
	// mostInFile is the most that a file shows: a browser opens no larger ones.
	mostInFile = 1 << 22
)

func scheduleCommand() *cobra.Command {
	var s shape
	var asJSON, text bool
	var svg, page string
	c := &cobra.Command{
		Use: "schedule [NAME | FILE]", Short: "Write, check and draw a schedule",
		Long: `schedule writes the Program of a family, or reads one from a file, proves that it cannot block, plays it on
uniform stages and draws it: a row for each worker, time to the right, F forward, B backward (or I
and W, its input and weight gradient), U update, with the number of the micro-batch.

The families are:

` + familyList(),
		Example: "  millrace schedule pb --stages 4 --micro-batches 8 --transfer 0.2\n" +
			"  millrace schedule zb-v --html zb-v.html\n  millrace schedule runs/gpt/program.txt --svg step.svg\n" +
			"  millrace schedule compare --stages 4 --micro-batches 8",
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := s.name(c, args); err != nil {
				return cli.BadInput(err)
			}
			s.streams(c)
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
			drawn := scheduleDrawing(p, rep, t, sum)
			if err := writeDrawings(drawn, svg, page); err != nil {
				return err
			}
			if asJSON {
				return cli.WriteJSON(out, struct {
					Program *schedule.Program  `json:"program"`
					Check   check.Report       `json:"check"`
					Stages  []schedule.Holding `json:"stages"`
					Summary sim.Summary        `json:"summary"`
				}{p, rep, p.Holdings(), sum})
			}
			fmt.Fprintf(out, "%s: %d stages, %d micro-batches; checked: %d instructions, %d messages, nothing can block\n",
				p.Name, p.Stages, trained(p), rep.Instructions, rep.Messages)
			if s.onStreaming(p) {
				fmt.Fprintln(out, "devices transfer while they compute")
			}
			if size <= mostDrawn {
				fmt.Fprint(out, grid(p, t))
			} else {
				fmt.Fprintf(out, "not drawn here: it has %d instructions, repetitions counted, and %d are drawn; --svg and --html "+
					"draw up to %d\n", size, mostDrawn, mostInFile)
			}
			fmt.Fprintf(out, "step %.4g, bubble %.1f %%, most micro-batches held by worker %v\n", sum.StepS, 100*sum.Bubble,
				rep.PeakActivations)
			return drawn.Stages.Text(out)
		},
	}
	s.add(c)
	f := c.Flags()
	f.BoolVar(&asJSON, "json", false, "for machines")
	f.BoolVar(&text, "text", false, "print the Program's text form, which --program reads")
	f.StringVar(&svg, "svg", "", "draw it into this SVG file")
	f.StringVar(&page, "html", "", "draw it into this HTML file, which needs nothing else")
	cli.Writes(c, "svg", "html")
	c.AddCommand(compareCommand())
	return c
}

// trained is how many micro-batches a Program trains on.
func trained(p *schedule.Program) int {
	return p.Minibatches() * max(1, p.MicroBatches/max(1, p.Period))
}

// scheduleDrawing is a simulated Program for a page.
func scheduleDrawing(p *schedule.Program, rep check.Report, t *trace.Timeline, sum sim.Summary) *report.Grid {
	stages := stageTable(p)
	return &report.Grid{
		Title:    fmt.Sprintf("%s: %d stages on %d workers, %d micro-batches", p.Name, p.Stages, p.Workers, trained(p)),
		Timeline: t, Stages: stages,
		Facts: []report.Fact{
			{Name: "step", Value: fmt.Sprintf("%.4g", sum.StepS)},
			{Name: "bubble", Value: fmt.Sprintf("%.1f %%", 100*sum.Bubble)},
			{Name: "weights", Value: string(p.Weights)},
			{Name: "most micro-batches held by worker", Value: strings.Trim(fmt.Sprint(rep.PeakActivations), "[]")},
			{Name: "checked", Value: fmt.Sprintf("%d instructions, %d messages, nothing can block", rep.Instructions,
				rep.Messages)},
		},
	}
}

// stageTable is what each stage keeps and sends. Messages are counted for the micro-batches
// of one step.
func stageTable(p *schedule.Program) *report.Table {
	t := &report.Table{Head: []string{" stage", " worker", " peak", " versions", " activations sent", " gradients sent",
		" all-reduces"}}
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

// writeDrawings writes the files that were asked for.
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
