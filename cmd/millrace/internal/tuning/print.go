package tuning

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/report"
	"github.com/millrace-ml/millrace/tune/avgpipe"
)

// print prints the result for people.
func (t *tuned) print(w io.Writer) error {
	s := terminal.Of(w)
	head := s.Paint(terminal.Bold, t.Model) + fmt.Sprintf(" on %s, %s: %s a batch", t.Cluster, t.source(),
		terminal.Count(t.Batch, "sample"))
	best := t.chosen()
	if best == nil {
		fmt.Fprint(w, s.Wrap("", "  ", fmt.Sprintf("%s; no setting of AvgPipe's fits %s for each worker", head,
			terminal.Bytes(t.LimitBytes))))
		return t.printAll(w)
	}
	fmt.Fprint(w, s.Wrap("", "  ", head+", "+terminal.Count(len(best.Plan.Stages), "stage")))
	line := func(label, text string) {
		if text == "" {
			return
		}
		fmt.Fprint(w, s.Wrap(s.Paint(terminal.Faint, fmt.Sprintf("%-12s", label)), strings.Repeat(" ", 12), text))
	}
	line("chosen", t.named())
	line("predicted", fmt.Sprintf("%s a batch, %s samples/s", terminal.Duration(best.StepS),
		terminal.Number(float64(t.Batch)/best.StepS, 4)))
	line("measured", t.measured())
	if !t.own() {
		line("why", fmt.Sprintf("of %s that fit this is predicted to be the fastest; %s",
			terminal.Count(len(t.All), "schedule"), t.beaten()))
	} else if over := t.passedOver(); over == "" {
		line("why", t.why())
	} else {
		line("passed over", over)
	}
	memory := terminal.Bytes(best.Peak()) + " on the fullest worker"
	if t.LimitBytes > 0 {
		memory += ", of " + terminal.Bytes(t.LimitBytes)
	}
	line("memory", memory)
	line("train it", t.train)
	if t.Result == nil {
		return t.printAll(w)
	}
	for _, print := range []func(io.Writer) error{t.printProfile, t.printGrid, t.printChoices, t.printErrors,
		t.printBaselines} {
		if err := print(w); err != nil {
			return err
		}
	}
	if t.All == nil {
		return nil
	}
	return t.printAll(w)
}

// source says in a word where the numbers come from. On a machine they are "measured" only if settings or schedules
// were tried; otherwise they are predictions from a profile.
func (t *tuned) source() string {
	tried := slices.ContainsFunc(t.All, func(s anySchedule) bool { return s.MeasuredS > 0 }) || t.Result != nil &&
		slices.ContainsFunc(t.Grid, func(c avgpipe.Cell) bool { return c.Measured != nil })
	switch {
	case t.Simulated:
		return "simulated"
	case tried:
		return "measured"
	}
	return "profiled"
}

// passedOver says which setting is predicted to be faster than the chosen one, and why it was not chosen. If there is
// no such setting, it returns "".
func (t *tuned) passedOver() string {
	if t.Result == nil {
		return ""
	}
	over, chosen, ok := t.PassedOver(t.LimitBytes)
	if !ok {
		return ""
	}
	return fmt.Sprintf("%s is predicted to be %s faster, but %s slower while this machine is busy, when each micro-batch "+
		"can cost %d times as much besides its samples", over.At,
		report.Percent(chosen.Simulated.StepS/over.Simulated.StepS-1), report.Percent(over.StrainedS/chosen.StrainedS-1),
		avgpipe.Strain)
}

// measured says how long a batch took with the chosen plan when it was run in turn with others. These are the schedules
// of --all, or else the choices of a setting. If the plan was not run in turn, it returns "".
func (t *tuned) measured() string {
	if k := fastest(t.All); k >= 0 {
		if s := t.All[k]; s.MeasuredS > 0 {
			return fmt.Sprintf("%s a batch, run in turn with the other schedules below", terminal.Duration(s.MeasuredS))
		}
	}
	if !t.own() {
		return ""
	}
	for i := range t.Choices {
		if c := &t.Choices[i]; t.inTurn && c.At == t.Best.At && c.Refused == "" && c.Measured != nil {
			return fmt.Sprintf("%s a batch, run in turn with the other choices below", terminal.Duration(c.Measured.StepS))
		}
	}
	return ""
}

// why says how the chosen setting compares with the others that were simulated.
func (t *tuned) why() string {
	fits, fastest := 0, (*avgpipe.Scored)(nil)
	var chosen *avgpipe.Scored
	for i := range t.Grid {
		s := &t.Grid[i].Simulated.Scored
		if !t.fits(s) {
			continue
		}
		if fits++; fastest == nil || s.StepS < fastest.StepS {
			fastest = s
		}
		if t.Grid[i].At == t.Best.At {
			chosen = s
		}
	}
	switch {
	case chosen == nil || fastest.StepS < chosen.StepS*0.99: // chosen for another reason than its simulated time
		return ""
	case fastest.StepS < chosen.StepS:
		return fmt.Sprintf("%s is predicted to be %s faster, less than a prediction can tell apart, and holds %s",
			fastest.At, report.Percent(chosen.StepS/fastest.StepS-1), terminal.Bytes(fastest.Peak()))
	}
	return fmt.Sprintf("of %s that fit this is predicted to be the fastest", terminal.Count(fits, "setting"))
}

// section prints a table under a title. A head "group: heading" puts its column into a group. The function `marked`
// reports which row is the choice; nil: none.
func section(w io.Writer, title string, table *report.Table, marked func(row int) bool) error {
	s := terminal.Of(w)
	name, more, _ := strings.Cut(title, ", ")
	if more != "" {
		more = ", " + more
	}
	fmt.Fprint(w, "\n", s.Wrap("", "  ", s.Paint(terminal.Bold, name)+more))
	out := &terminal.Table{}
	for i, head := range table.Head {
		group, heading, of := strings.Cut(strings.TrimPrefix(head, " "), ": ")
		if !of {
			group, heading = "", group
		}
		out.Columns = append(out.Columns, terminal.Column{Heading: heading, Group: group,
			Number: strings.HasPrefix(head, " "),
			Wraps:  !strings.HasPrefix(head, " "), Spare: max(0, i-4)})
	}
	for i, row := range table.Rows {
		if marked != nil && marked(i) {
			out.AddMarked(row...)
		} else {
			out.Add(row...)
		}
	}
	return out.Write(w, s)
}

// printProfile prints the profile from which equations 1 to 8 were computed. A row has the mean times of a batch on one
// worker, and the worker's memory.
func (t *tuned) printProfile(w io.Writer) error {
	table := &report.Table{Head: []string{" worker", " a batch, mean: computes", " a batch, mean: blocked",
		" a batch, mean: bubble", " sends", " using", " memory: models", " memory: data"}}
	meanS := 0.0 // the same for every worker, because computing, blocking and bubble fill the batch
	for k, d := range t.Profiled.Devices {
		computesS := d.Utilisation.Length()
		meanS = computesS + d.BlockedS + d.BubbleS
		table.Add(k, terminal.Duration(computesS), terminal.Duration(d.BlockedS), terminal.Duration(d.BubbleS),
			terminal.Duration(d.CommunicationS),
			report.Percent(d.Utilisation.Mean()), terminal.Bytes(d.ModelBytes), terminal.Bytes(d.DataBytes))
	}
	return section(w, fmt.Sprintf("profiled at %s%s, %d batches: %s in the mean and %s in the median (sends: meanwhile; "+
		"using: how much of a worker is at work while it computes; models: weights, gradients and optimizer states; data: "+
		"what a batch takes beside them)", t.Profiled.At, t.over(), avgpipe.ProfileBatches,
		terminal.Duration(meanS), terminal.Duration(t.Profiled.StepS)), table, nil)
}

// listed is how many settings of a large grid are listed. They are the best by simulation.
const listed = 12

// printGrid prints for every setting the results of the simulator, the equations and the measurements. Of a large grid
// it prints only the settings that are best by simulation. After a stop it also prints the other settings that were
// measured.
func (t *tuned) printGrid(w io.Writer) error {
	grid, of := t.Grid, ""
	if len(grid) > listed && !t.whole {
		grid = slices.Clone(grid)
		slices.SortStableFunc(grid, func(a, b avgpipe.Cell) int {
			if x, y := t.fits(&a.Simulated.Scored), t.fits(&b.Simulated.Scored); x != y {
				if x {
					return -1
				}
				return 1
			}
			return cmp.Compare(a.Simulated.StepS, b.Simulated.StepS)
		})
		of = fmt.Sprintf(", the best %d of %d settings by simulation (--grid lists all)", listed, len(t.Grid))
		rest := slices.DeleteFunc(grid[listed:], func(c avgpipe.Cell) bool { return c.Measured == nil })
		if grid = grid[:listed]; t.stopped && len(rest) > 0 { // also show these: a later run would not have them
			grid = append(grid, rest...)
			of = fmt.Sprintf(", the best %d of %d settings by simulation, and %d more that were measured", listed,
				len(t.Grid), len(rest))
		}
	}
	table, how := t.gridTable(grid), ""
	if slices.ContainsFunc(table.Head, func(head string) bool { return strings.HasSuffix(head, traversed) }) {
		how = fmt.Sprintf("; %s: measured, %d batches of each", traversed, avgpipe.TraversalBatches)
	}
	return section(w, "settings"+t.over()+", M micro-batches and N pipelines, by the simulator and by the paper's "+
		"equations, as printed and adjusted (over: it does not fit"+how+")"+of, table,
		func(row int) bool { return t.own() && grid[row].At == t.Best.At })
}

// traversed is the heading of the times that the traversal measured. The chosen settings are then measured again, in
// turn.
const traversed = "traversed"

// gridTable makes a table with a row for each setting.
func (t *tuned) gridTable(grid []avgpipe.Cell) *report.Table {
	names := []string{"simulator", "printed", "adjusted"}
	tried := !t.Simulated && slices.ContainsFunc(grid, func(c avgpipe.Cell) bool { return c.Measured != nil })
	if tried {
		names = append(names, traversed)
	}
	table := &report.Table{Head: []string{" M", " N"}}
	for _, group := range []string{"a batch, ms", "fullest worker"} {
		for _, name := range names {
			table.Head = append(table.Head, " "+group+": "+name)
		}
	}
	for _, c := range grid {
		row := []any{c.At.MicroBatches, c.At.Pipelines}
		scores := []*avgpipe.Scored{&c.Simulated.Scored, &c.Printed, &c.Adjusted, c.Measured}[:len(names)]
		for _, s := range scores {
			if s == nil {
				row = append(row, "")
				continue
			}
			row = append(row, terminal.Number(1e3*s.StepS, 4))
		}
		for _, s := range scores {
			switch {
			case s == nil:
				row = append(row, "")
			case t.LimitBytes > 0 && s.Peak() > t.LimitBytes:
				row = append(row, "over")
			default:
				row = append(row, terminal.Bytes(s.Peak()))
			}
		}
		table.Add(row...)
	}
	return table
}

// join lists settings.
func join(all []avgpipe.Degrees) string {
	var words []string
	for _, at := range all {
		words = append(words, at.String())
	}
	return strings.Join(words, ", ")
}

func (t *tuned) fits(s *avgpipe.Scored) bool { return t.LimitBytes == 0 || s.Peak() <= t.LimitBytes }

// printErrors prints the errors of the predictions over the traversed grid.
func (t *tuned) printErrors(w io.Writer) error {
	if len(t.Errors) == 0 {
		return nil
	}
	err := section(w, "errors of predictions, against what traversal measured of "+
		terminal.Count(t.Errors[0].Settings, "setting"), t.errorsTable(), nil)
	if t.Simulated {
		fmt.Fprint(w, terminal.Of(w).Wrap("  ", "  ", "the simulator was the machine, so that its own errors say nothing"))
	}
	return err
}

// errorsTable makes a table with a row for each predictor.
func (t *tuned) errorsTable() *report.Table {
	table := &report.Table{Head: []string{"method", " step: mean", " step: median", " step: worst", " memory: mean",
		" memory: worst"}}
	for _, e := range t.Errors {
		table.Add(string(e.Method), report.Percent(e.MeanStep), report.Percent(e.MedianStep), report.Percent(e.WorstStep),
			report.Percent(e.MeanMemory), report.Percent(e.WorstMemory))
	}
	return table
}

// printBaselines prints the rival systems, and AvgPipe with the same memory as each of them (Figs. 11 to 13). All
// numbers are simulated.
func (t *tuned) printBaselines(w io.Writer) error {
	if t.Baselines == nil {
		return nil
	}
	table := &report.Table{Head: []string{"baseline", " the baseline: a batch", " the baseline: computing",
		" the baseline: memory", " AvgPipe in that memory: M", " AvgPipe in that memory: N",
		" AvgPipe in that memory: a batch", " AvgPipe in that memory: computing", " AvgPipe in that memory: memory",
		" speedup"}}
	for _, b := range t.Baselines {
		row := []any{b.Name, terminal.Duration(b.Predicted.StepS), report.Percent(b.Utilisation()),
			terminal.Bytes(slices.Max(b.Predicted.MemoryBytes))}
		if a := b.AvgPipe; a != nil {
			row = append(row, a.At.MicroBatches, a.At.Pipelines, terminal.Duration(a.StepS), report.Percent(1-a.Bubble),
				terminal.Bytes(a.Peak()), fmt.Sprintf("%.2fx", b.Speedup()))
		} else {
			row = append(row, "", "", "none fits", "", terminal.Bytes(b.SmallestBytes), "")
		}
		table.Add(row...)
	}
	return section(w, "baselines, simulated, and AvgPipe held to the memory of each"+t.over(), table, nil)
}

// printAll prints the best plan with each kind of schedule.
func (t *tuned) printAll(w io.Writer) error {
	off, tried := behind(t.All)
	table := &report.Table{Head: []string{"plan", " a batch", " samples/s", " fullest worker", " micro-batches"}}
	if tried {
		table.Head = slices.Insert(table.Head, 2, " measured")
	}
	table.Head = append(table.Head, "why not")
	for _, r := range t.All {
		memory, micros := "", ""
		if r.Plan != nil {
			micros = fmt.Sprintf("%d of %d", r.Plan.MicroBatches, r.Plan.MicroBatch)
		}
		if len(r.Predicted.MemoryBytes) > 0 {
			memory = terminal.Bytes(slices.Max(r.Predicted.MemoryBytes))
		}
		row := []any{r.title(), terminal.Duration(r.Predicted.StepS),
			terminal.Number(r.Predicted.SamplesPerSecond, 4), memory,
			micros, r.Why}
		if tried {
			measured := ""
			if r.MeasuredS > 0 {
				measured = terminal.Duration(r.MeasuredS)
			}
			row = slices.Insert(row, 2, any(measured))
		}
		table.Add(row...)
	}
	chosen := fastest(t.All)
	err := section(w, "schedules, each with its best settings", table, func(row int) bool { return row == chosen })
	if tried {
		fmt.Fprint(w, terminal.Of(w).Wrap("  ", "  ", fmt.Sprintf("the choice is %s behind the fastest of those that were "+
			"tried, medians of %s", report.Percent(off), terminal.Count(scheduleRounds, "round"))))
	}
	return err
}
