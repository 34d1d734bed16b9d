package tuning

import (
	"fmt"
	"slices"
	"strings"

	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/report"
	"github.com/millrace-ml/millrace/tune/avgpipe"
)

// study returns the page of a tuning. It compares predictions with measurements if there are any, and shows AvgPipe's
// Figures 18 and 19: the time for tuning and for training.
func (t *tuned) study() *report.Study {
	where := t.source()
	s := &report.Study{
		Title: fmt.Sprintf("Tuning %s", t.Model),
		Subtitle: fmt.Sprintf("%s, %s: %s a batch, %s; chosen: %s", t.Cluster, where,
			terminal.Count(t.Batch, "sample"), terminal.Count(len(t.Best.Plan.Stages), "stage"), t.Best.At),
	}
	marks := "What was chosen stands out."
	if !t.own() {
		s.Subtitle = fmt.Sprintf("%s, %s: %s a batch; chosen: %s, %s a batch", t.Cluster, where,
			terminal.Count(t.Batch, "sample"), t.named(), terminal.Duration(t.chosen().StepS))
		marks = "What was chosen is none of these; " + t.beaten() + "."
	}
	steps, measured := stepsOf(t.Grid, t.Simulated)
	grid := t.gridTable(t.Grid)
	if t.own() {
		grid.Chosen = 1 + slices.IndexFunc(t.Grid, func(c avgpipe.Cell) bool { return c.At == t.Best.At })
	}
	how := ""
	if measured && !t.Simulated {
		how = fmt.Sprintf(" Traversed: measured, %d batches of each.", avgpipe.TraversalBatches)
	}
	title := "Predicted"
	if measured {
		title += " and " + where
	}
	s.Sections = append(s.Sections, report.StudySection{
		Title: title + t.over(), Note: "A batch in ms, and the fullest worker, for each number of " +
			"micro-batches (M) and pipelines (N). " + marks + how,
		Table: grid, Plots: []report.Plot{steps},
	})
	if len(t.Errors) > 0 {
		s.Sections = append(s.Sections, report.StudySection{Title: "How far the predictions were off",
			Note: "Against what the traversal measured.", Table: t.errorsTable()})
	}
	s.Sections = append(s.Sections, t.choicesSection())
	return s
}

// stepsOf draws a batch of each setting, as predicted and, if a setting was tried, as measured. It also says whether
// any was. If simulated is set, the simulator took the place of the machine.
func stepsOf(grid []avgpipe.Cell, simulated bool) (steps *report.Bars, measured bool) {
	steps = &report.Bars{Title: "A batch", Unit: report.UnitSeconds, Names: []string{"simulator",
		"equations, as printed", "equations, adjusted"}}
	for _, c := range grid {
		g := report.BarGroup{Name: c.At.String(), Bars: []report.Bar{{Value: c.Simulated.StepS}, {Value: c.Printed.StepS},
			{Value: c.Adjusted.StepS}}}
		if c.Measured != nil {
			measured = true
			g.Bars = append(g.Bars, report.Bar{Value: c.Measured.StepS})
		}
		steps.Groups = append(steps.Groups, g)
	}
	switch {
	case measured && simulated:
		steps.Names = append(steps.Names, "simulated")
	case measured:
		steps.Names = append(steps.Names, traversed)
	}
	return steps, measured
}

// choicesSection shows what each method costs and gives.
func (t *tuned) choicesSection() report.StudySection {
	all := outcomesOf(t.Result, t.TrainBatches)
	spent := &report.Bars{Title: "Time tuning", Unit: report.UnitSeconds}
	training := &report.Bars{Title: "T" + strings.TrimPrefix(all.training(t.TrainBatches), "t"),
		Unit: report.UnitSeconds}
	for _, o := range all {
		if o.Refused != "" {
			continue
		}
		spent.Groups = append(spent.Groups, report.BarGroup{Name: string(o.Method),
			Bars: []report.Bar{{Value: t.tuning(&o.Choice)}}})
		training.Groups = append(training.Groups, report.BarGroup{Name: string(o.Method),
			Bars: []report.Bar{{Value: o.TrainingS}}})
	}
	s := report.StudySection{Title: "What each way of choosing costs and gives", Table: t.choicesTable(true),
		Plots: []report.Plot{spent, training}}
	switch {
	case !all.ran():
		s.Note = "The training takes the simulated batch of the setting that each way chose, since no choice was run."
	case t.inTurn:
		s.Note = "A batch: measured again, the choices in turn."
	}
	if cost := t.cost(); cost != "" {
		s.Notes = append(s.Notes, cost)
	}
	return s
}
