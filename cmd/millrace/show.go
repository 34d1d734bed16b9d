package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/report"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/sim"
	"github.com/millrace-ml/millrace/trace"
	"github.com/millrace-ml/millrace/tune"
)

// shape is a pipeline without a model: uniform stages, for looking at schedules.
type shape struct {
	family                      string
	stages, micros              int
	warmup                      []int
	forward, backward, transfer float64
	file                        string
}

func (s *shape) add(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&s.family, "schedule", "1f1b", "the family: 1f1b, afab, pb, so, dp")
	f.IntVar(&s.stages, "stages", 4, "pipeline stages, or replicas of dp")
	f.IntVar(&s.micros, "micro-batches", 8, "micro-batches of a step")
	f.IntSliceVar(&s.warmup, "warmup", nil, "forwards before the first backward, by stage")
	f.Float64Var(&s.forward, "forward", 1, "time of a forward")
	f.Float64Var(&s.backward, "backward", 2, "time of a backward")
	f.Float64Var(&s.transfer, "transfer", 0, "time of a transfer")
	f.StringVar(&s.file, "program", "", "a Program's text file instead")
}

// program is the lowered, checked Program of a shape.
func (s *shape) program() (*schedule.Program, schedule.Report, error) {
	p, err := s.compute()
	if err == nil && !p.Lowered {
		p, err = schedule.Lower(p, schedule.LowerOptions{})
	}
	if err != nil {
		return nil, schedule.Report{}, badInput(err)
	}
	rep, err := schedule.Check(p)
	return p, rep, badInput(err)
}

func (s *shape) compute() (*schedule.Program, error) {
	if s.file != "" {
		f, err := os.Open(s.file)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		p, err := schedule.ParseText(f)
		if err != nil {
			return nil, fmt.Errorf("%w (in %s)", err, s.file)
		}
		return p, nil
	}
	if s.stages < 1 || s.stages > 4096 {
		return nil, fmt.Errorf("--stages %d; give 1 to 4096", s.stages)
	}
	var placement [][]int
	for i := range s.stages {
		if s.family == "dp" && i > 0 {
			placement[0] = append(placement[0], i)
			continue
		}
		placement = append(placement, []int{i})
	}
	return schedule.Generate(s.family, schedule.Settings{Placement: placement, MicroBatches: s.micros, Warmup: s.warmup})
}

// draw simulates the Program of a shape on uniform stages.
func (s *shape) draw(p *schedule.Program) (*trace.Timeline, sim.Summary, error) {
	return sim.Run(p, sim.Uniform(p.Stages, s.forward, s.backward, s.transfer), sim.Options{Record: true})
}

// gridColumns bounds a drawing on a terminal.
const gridColumns = 40

// grid draws a Timeline with schedule.Grid, a column for the shortest computation; of many
// columns the first.
func grid(t *trace.Timeline) string {
	end, slot := 0.0, 0.0
	for _, e := range t.Events {
		if d := e.EndS - e.StartS; e.Lane == trace.Compute && d > 0 {
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
	text, err := schedule.Grid(t.Workers, tune.Spans(t, shown), slot)
	if err != nil {
		return err.Error() + "\n"
	}
	if shown < end {
		text += fmt.Sprintf("(the first %.4g of %.4g)\n", shown, end)
	}
	return text
}

func scheduleCommand() *cobra.Command {
	var s shape
	var asJSON, text bool
	c := &cobra.Command{
		Use: "schedule", Short: "Write, check and draw a schedule",
		Example: "  millrace schedule --schedule pb --stages 4 --micro-batches 8 --transfer 0.2\n  millrace schedule --program runs/gpt/program.txt\n  millrace schedule --schedule afab --text > afab.txt",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			p, rep, err := s.program()
			if err != nil {
				return err
			}
			out := c.OutOrStdout()
			if text {
				_, err := fmt.Fprint(out, p.Text())
				return err
			}
			t, sum, err := s.draw(p)
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(out, struct {
					Program *schedule.Program `json:"program"`
					Check   schedule.Report   `json:"check"`
					Summary sim.Summary       `json:"summary"`
				}{p, rep, sum})
			}
			fmt.Fprintf(out, "%s: %d stages, %d micro-batches; checked: %d instructions, %d messages, nothing can block\n", p.Name, p.Stages, p.MicroBatches, rep.Instructions, rep.Messages)
			fmt.Fprint(out, grid(t))
			fmt.Fprintf(out, "step %.4g, bubble %.1f %%, most micro-batches held by worker %v\n", sum.StepS, 100*sum.Bubble, rep.PeakActivations)
			return nil
		},
	}
	s.add(c)
	c.Flags().BoolVar(&asJSON, "json", false, "for machines")
	c.Flags().BoolVar(&text, "text", false, "print the Program's text form, which --program reads")
	return c
}

func simulateCommand() *cobra.Command {
	var flags jobFlags
	var asJSON bool
	var output string
	c := &cobra.Command{
		Use: "simulate", Short: "Predict a plan's step time and memory on this machine's profile",
		Example: "  millrace simulate --model gpt --workers 2 --batch 32 --schedule afab\n  millrace simulate --model gpt --plan plan.json -o predicted.json.gz",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			j, err := flags.job()
			if err != nil {
				return err
			}
			p, err := prepare(c, j)
			if err != nil {
				return err
			}
			t, err := checkAndSimulate(p)
			if err != nil {
				return err
			}
			if output != "" {
				if err := t.WriteFile(output); err != nil {
					return err
				}
			}
			if asJSON {
				return writeJSON(c.OutOrStdout(), p.plan.Predicted)
			}
			return report.Terminal(c.OutOrStdout(), report.Inputs{Plan: p.plan, LayerNames: layerNames(p.model), Simulated: t})
		},
	}
	flags.add(c, job.ModelOptions, job.PlanOptions, job.ClusterOptions, []job.Option{{Name: "plan", Doc: "a plan to simulate instead of searching one",
		Set: func(j *job.Job, v string) error { j.Plan = v; return nil }}})
	c.Flags().BoolVar(&asJSON, "json", false, "for machines")
	c.Flags().StringVarP(&output, "output", "o", "", "write the Timeline to this file")
	return c
}

func reportCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "report RUN", Short: "Draw a finished run again: predicted against measured",
		Example: "  millrace report runs/gpt",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			in, err := readRun(args[0])
			if err != nil {
				return badInput(err)
			}
			if asJSON {
				rows, err := report.Compare(in)
				if err != nil {
					return err
				}
				return writeJSON(c.OutOrStdout(), rows)
			}
			page := filepath.Join(args[0], "report.html")
			if err := writeFile(page, func(f io.Writer) error { return report.HTML(f, in) }); err != nil {
				return err
			}
			if err := report.Terminal(c.OutOrStdout(), in); err != nil {
				return err
			}
			fmt.Fprintf(c.OutOrStdout(), "report      %s\n", page)
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "for machines")
	return c
}

// readRun reads what a run left in its folder.
func readRun(dir string) (report.Inputs, error) {
	in := report.Inputs{Title: dir}
	var err error
	if in.Plan, err = plan.Read(filepath.Join(dir, "plan.json")); err != nil {
		return in, err
	}
	prof, err := profile.Read(filepath.Join(dir, "profile.json"))
	if err != nil {
		return in, err
	}
	for _, l := range prof.Layers {
		in.LayerNames = append(in.LayerNames, l.Name)
	}
	if in.Simulated, err = trace.ReadFile(filepath.Join(dir, "predicted.json.gz")); err != nil {
		return in, err
	}
	in.Measured, err = trace.ReadFile(filepath.Join(dir, "timeline.json.gz"))
	return in, err
}
