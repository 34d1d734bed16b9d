package tuning

import (
	"fmt"
	"slices"

	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/report"
	"github.com/millrace-ml/millrace/tune/avgpipe"
)

// study returns the page of a tuning. It compares predictions with measurements, and shows AvgPipe's Figures 18 and
// 19: the time for tuning and for training.
func (t *tuned) study() *report.Study {
	where := "measured"
	if t.Simulated {
		where = "simulated"
	}
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
	steps := &report.Bars{Title: "A batch", Unit: report.UnitSeconds, Names: []string{"simulator",
		"equations, as printed", "equations, adjusted"}}
	measured := false
	for _, c := range t.Grid {
		g := report.BarGroup{Name: c.At.String(), Bars: []report.Bar{{Value: c.Simulated.StepS}, {Value: c.Printed.StepS},
			{Value: c.Adjusted.StepS}}}
		if c.Measured != nil {
			measured = true
			g.Bars = append(g.Bars, report.Bar{Value: c.Measured.StepS})
		}
		steps.Groups = append(steps.Groups, g)
	}
	if measured {
		name := where
		if !t.Simulated {
			name = traversed
		}
		steps.Names = append(steps.Names, name)
	}
	grid := t.gridTable(t.Grid)
	if t.own() {
		grid.Chosen = 1 + slices.IndexFunc(t.Grid, func(c avgpipe.Cell) bool { return c.At == t.Best.At })
	}
	how := ""
	if measured && !t.Simulated {
		how = fmt.Sprintf(" Traversed: measured, %d batches of each.", avgpipe.TraversalBatches)
	}
	s.Sections = append(s.Sections, report.StudySection{
		Title: "Predicted and " + where + t.over(), Note: "A batch in ms, and the fullest worker, for each number of " +
			"micro-batches (M) and pipelines (N). " + marks + how,
		Table: grid, Plots: []report.Plot{steps},
	})
	if len(t.Errors) > 0 {
		s.Sections = append(s.Sections, report.StudySection{Title: "How far the predictions were off",
			Note: "Against what the traversal measured.", Table: t.errorsTable()})
	}
	spent, training := &report.Bars{Title: "Time tuning",
		Unit: report.UnitSeconds}, &report.Bars{Title: "Training of " + terminal.Count(t.TrainBatches, "batch"),
		Unit: report.UnitSeconds}
	for _, c := range t.Choices {
		if c.Refused != "" {
			continue
		}
		spent.Groups = append(spent.Groups, report.BarGroup{Name: string(c.Method),
			Bars: []report.Bar{{Value: t.tuning(&c)}}})
		training.Groups = append(training.Groups, report.BarGroup{Name: string(c.Method),
			Bars: []report.Bar{{Value: float64(t.TrainBatches) * c.StepS()}}})
	}
	choices := report.StudySection{Title: "What each way of choosing costs and gives", Table: t.choicesTable(),
		Plots: []report.Plot{spent, training}}
	if t.inTurn {
		choices.Note = "A batch: measured again, the choices in turn."
	}
	if cost := t.cost(); cost != "" {
		choices.Notes = append(choices.Notes, cost)
	}
	s.Sections = append(s.Sections, choices)
	return s
}
