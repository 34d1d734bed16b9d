package tuning

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/report"
	"github.com/millrace-ml/millrace/trace"
	"github.com/millrace-ml/millrace/tune/avgpipe"
)

// print is for people.
func (t *tuned) print(w io.Writer) error {
	where := "measured"
	if t.Simulated {
		where = "simulated"
	}
	if t.Result == nil {
		fmt.Fprintf(w, "%s on %s, %s: %d samples a batch; no setting of AvgPipe's fits %s for each device\n", t.Model,
			t.Cluster, where, t.Batch, cluster.FormatBytes(t.LimitBytes))
		return t.printAll(w)
	}
	best := t.Best
	fmt.Fprintf(w, "%s on %s, %s: %d samples a batch, %d stages\n", t.Model, t.Cluster, where, t.Batch,
		len(best.Plan.Stages))
	fmt.Fprintf(w, "chosen: %d micro-batches of %d, %d pipelines, %d forwards in advance of 1F1B: %s a batch, %.4g "+
		"samples/s\n",
		best.At.MicroBatches, t.Batch/best.At.MicroBatches, best.At.Pipelines, best.Advance(), trace.Seconds(best.StepS),
		float64(t.Batch)/best.StepS)
	if over, chosen, ok := t.PassedOver(t.LimitBytes); ok {
		fmt.Fprintf(w, "passed over: %s, predicted to be %s faster and, when what micro-batches cost however small they "+
			"are takes %d times as long for a while, %s slower\n",
			over.At, report.Percent(chosen.Simulated.StepS/over.Simulated.StepS-1), avgpipe.Strain,
			report.Percent(over.StrainedS/chosen.StrainedS-1))
	}
	if t.LimitBytes > 0 {
		fmt.Fprintf(w, "memory: %s on the fullest device, of %s\n", cluster.FormatBytes(best.Peak()),
			cluster.FormatBytes(t.LimitBytes))
	} else {
		fmt.Fprintf(w, "memory: %s on the fullest device\n", cluster.FormatBytes(best.Peak()))
	}
	if err := t.printProfile(w); err != nil {
		return err
	}
	if err := t.printGrid(w); err != nil {
		return err
	}
	if err := t.printChoices(w); err != nil {
		return err
	}
	if err := t.printErrors(w); err != nil {
		return err
	}
	if err := t.printBaselines(w); err != nil || t.All == nil {
		return err
	}
	return t.printAll(w)
}

// printProfile is what equations 1 to 8 were asked from, a batch on each device.
func (t *tuned) printProfile(w io.Writer) error {
	fmt.Fprintf(w, "\nprofiled at %s, a batch of %s:\n", t.Profiled.At, trace.Seconds(t.Profiled.StepS))
	table := report.Table{Head: []string{" device", " computes", " at", " sends", " blocked", " bubble",
		" models", " data"}}
	for k, d := range t.Profiled.Devices {
		table.Add(k, trace.Seconds(d.Utilisation.Length()), report.Percent(d.Utilisation.Mean()),
			trace.Seconds(d.CommunicationS), trace.Seconds(d.BlockedS), trace.Seconds(d.BubbleS),
			cluster.FormatBytes(d.ModelBytes), cluster.FormatBytes(d.DataBytes))
	}
	return table.Text(w)
}

// listed is how many settings of a large grid are listed: the best by simulation.
const listed = 12

// printGrid is what the simulator and the equations say of every setting, and what was
// measured; of a large grid, of its best settings.
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
		grid, of = grid[:listed], fmt.Sprintf(", the best %d of %d settings by simulation (--grid lists all)",
			listed, len(t.Grid))
	}
	fmt.Fprintf(w, "\na batch in ms, and the fullest device (over: it does not fit)%s:\n", of)
	return t.gridTable(grid).Text(w)
}

// gridTable is a row for each of some settings.
func (t *tuned) gridTable(grid []avgpipe.Cell) *report.Table {
	table := &report.Table{Head: []string{" M", " N", " simulator", " printed", " adjusted", " measured", " simulator",
		" printed", " adjusted", " measured"}}
	for _, c := range grid {
		row := []any{c.At.MicroBatches, c.At.Pipelines}
		scores := []*avgpipe.Scored{&c.Simulated.Scored, &c.Printed, &c.Adjusted, c.Measured}
		for _, s := range scores {
			if s == nil {
				row = append(row, "")
				continue
			}
			row = append(row, fmt.Sprintf("%.4g", 1e3*s.StepS))
		}
		for _, s := range scores {
			switch {
			case s == nil:
				row = append(row, "")
			case t.LimitBytes > 0 && s.Peak() > t.LimitBytes:
				row = append(row, "over")
			default:
				row = append(row, cluster.FormatBytes(s.Peak()))
			}
		}
		table.Add(row...)
	}
	return table
}

// printChoices is the shape of AvgPipe's Figs. 18 and 19: what each method costs and gives.
func (t *tuned) printChoices(w io.Writer) error {
	fmt.Fprintf(w, "\nwhat each way of choosing costs and gives, a training of %d batches:\n", t.TrainBatches)
	if err := t.choicesTable().Text(w); err != nil {
		return err
	}
	if cost := t.cost(); cost != "" {
		fmt.Fprintln(w, cost)
	}
	return nil
}

// choicesTable is a row for each way of choosing.
func (t *tuned) choicesTable() *report.Table {
	shortest := 0.0
	for _, c := range t.Choices {
		if s := c.StepS(); c.Refused == "" && c.Measured != nil && t.fits(c.Measured) && (shortest == 0 || s < shortest) {
			shortest = s
		}
	}
	table := &report.Table{Head: []string{"method", " M", " N", " tried", " tuning", " a batch", " training",
		" of the shortest"}}
	for _, c := range t.Choices {
		if c.Refused != "" {
			table.Add(string(c.Method), "", "", c.Tried, trace.Seconds(t.tuning(&c)), "nothing fits")
			continue
		}
		how, against := "", ""
		if c.Measured == nil {
			how = " (predicted)"
		} else if !t.fits(c.Measured) {
			against = "does not fit"
		} else {
			against = fmt.Sprintf("%.2fx", c.StepS()/shortest)
		}
		table.Add(string(c.Method), c.At.MicroBatches, c.At.Pipelines, c.Tried, trace.Seconds(t.tuning(&c)),
			trace.Seconds(c.StepS())+how,
			report.Duration(float64(t.TrainBatches)*c.StepS()), against)
	}
	return table
}

// cost is what the profiles cost in settings of a traversal; empty where none was traversed.
func (t *tuned) cost() string {
	traversed := t.choice(avgpipe.ByTraversal)
	if traversed == nil || traversed.Tried == 0 {
		return ""
	}
	each := traversed.TuningS / float64(traversed.Tried) * avgpipe.ProfileBatches / avgpipe.TraversalBatches
	if len(t.Anchors) == 0 {
		return fmt.Sprintf("the profile, %s of %d batches, costs what traversal takes for %.2g settings of as many",
			t.Profiled.At, avgpipe.ProfileBatches, t.tuning(t.choice(avgpipe.ByPrinted))/each)
	}
	return fmt.Sprintf("the profile, of all layers and of %s, costs what traversal takes for %.2g settings of %d "+
		"batches; a batch is of the choices run again in turn", join(t.Anchors),
		t.tuning(t.choice(avgpipe.BySimulator))/each, avgpipe.ProfileBatches)
}

// join lists settings.
func join(all []avgpipe.Degrees) string {
	var words []string
	for _, at := range all {
		words = append(words, at.String())
	}
	return strings.Join(words, ", ")
}

// tuning is the time spent on a choice, seconds. Where the simulator is the machine, time on
// that is on another clock than what predictions take here, which is left out.
func (t *tuned) tuning(c *avgpipe.Choice) float64 {
	if t.Simulated {
		return c.TuningS
	}
	return c.TuningS + c.PredictionS
}

func (t *tuned) choice(m avgpipe.Method) *avgpipe.Choice {
	for i := range t.Choices {
		if t.Choices[i].Method == m {
			return &t.Choices[i]
		}
	}
	return nil
}

func (t *tuned) fits(s *avgpipe.Scored) bool { return t.LimitBytes == 0 || s.Peak() <= t.LimitBytes }

// printErrors is how far the predictions were off over the traversed grid.
func (t *tuned) printErrors(w io.Writer) error {
	if len(t.Errors) == 0 {
		return nil
	}
	fmt.Fprintf(w, "\npredictions against what traversal measured, %d settings:\n", t.Errors[0].Settings)
	if err := t.errorsTable().Text(w); err != nil {
		return err
	}
	if t.Simulated {
		fmt.Fprintln(w, "the simulator was the machine, so that its own errors say nothing")
	}
	return nil
}

// errorsTable is a row for each predictor.
func (t *tuned) errorsTable() *report.Table {
	table := &report.Table{Head: []string{"method", " step, mean", " median", " worst", " memory, mean", " worst"}}
	for _, e := range t.Errors {
		table.Add(string(e.Method), report.Percent(e.MeanStep), report.Percent(e.MedianStep), report.Percent(e.WorstStep),
			report.Percent(e.MeanMemory), report.Percent(e.WorstMemory))
	}
	return table
}

// printBaselines is the rival systems and AvgPipe held to the memory of each (Figs. 11 to 13),
// all simulated.
func (t *tuned) printBaselines(w io.Writer) error {
	if t.Baselines == nil {
		return nil
	}
	fmt.Fprintf(w, "\nsimulated, AvgPipe held to the memory of each baseline:\n")
	table := report.Table{Head: []string{"baseline", " a batch", " computing", " fullest device", " AvgPipe M", " N",
		" a batch", " fullest device", " speedup"}}
	for _, b := range t.Baselines {
		row := []any{b.Name, trace.Seconds(b.Predicted.StepS), report.Percent(b.Utilisation()),
			cluster.FormatBytes(slices.Max(b.Predicted.MemoryBytes))}
		if a := b.AvgPipe; a != nil {
			row = append(row, a.At.MicroBatches, a.At.Pipelines, trace.Seconds(a.StepS), cluster.FormatBytes(a.Peak()),
				fmt.Sprintf("%.2fx", b.Speedup()))
		} else {
			row = append(row, "", "", "none fits", cluster.FormatBytes(b.SmallestBytes), "")
		}
		table.Add(row...)
	}
	return table.Text(w)
}

// printAll is the best of each kind of schedule.
func (t *tuned) printAll(w io.Writer) error {
	fmt.Fprintf(w, "\nevery schedule with its best settings:\n")
	off, tried := behind(t.All)
	table := report.Table{Head: []string{" ", "schedule", " a batch", " samples/s", " fullest device", "plan"}}
	if tried {
		table.Head = slices.Insert(table.Head, 3, " measured")
	}
	for i, r := range t.All {
		short, memory := "", ""
		if r.Plan != nil {
			short = report.ShortPlan(r.Plan)
		}
		if len(r.Predicted.MemoryBytes) > 0 {
			memory = cluster.FormatBytes(slices.Max(r.Predicted.MemoryBytes))
		}
		row := []any{i + 1, r.Kind, trace.Seconds(r.Predicted.StepS), fmt.Sprintf("%.4g", r.Predicted.SamplesPerSecond),
			memory, short}
		if tried {
			measured := ""
			if r.MeasuredS > 0 {
				measured = trace.Seconds(r.MeasuredS)
			}
			row = slices.Insert(row, 3, any(measured))
		}
		table.Add(row...)
	}
	if err := table.Text(w); err != nil || !tried {
		return err
	}
	_, err := fmt.Fprintf(w, "the choice is %s behind the fastest of those that were tried, medians of %d rounds\n",
		report.Percent(off), scheduleRounds)
	return err
}
