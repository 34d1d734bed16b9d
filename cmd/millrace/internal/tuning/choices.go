package tuning

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/report"
	"github.com/millrace-ml/millrace/tune/avgpipe"
)

// outcome is a method's choice and what it gives. The terminal, the page and --json show these numbers.
type outcome struct {
	avgpipe.Choice
	BatchS    float64 `json:"batch_s,omitempty"`    // time of a batch at the chosen setting, measured if it was run
	TrainingS float64 `json:"training_s,omitempty"` // time of a training whose batches each take BatchS
}

type outcomes []outcome

// outcomesOf returns what each choice gives in a training of so many batches.
func outcomesOf(r *avgpipe.Result, batches int) outcomes {
	if r == nil {
		return nil
	}
	var all outcomes
	for _, c := range r.Choices {
		o := outcome{Choice: c}
		if c.Refused == "" {
			o.BatchS = c.StepS()
			o.TrainingS = float64(batches) * o.BatchS
		}
		all = append(all, o)
	}
	return all
}

// ran says whether a choice was run. If none was, the choices are compared by simulation.
func (all outcomes) ran() bool {
	return slices.ContainsFunc(all, func(o outcome) bool { return o.Measured != nil })
}

// training is the heading of what the choices give in a training.
func (all outcomes) training(batches int) string {
	text := "training of " + terminal.Count(batches, "batch")
	if !all.ran() {
		text += ", by simulation"
	}
	return text
}

// printChoices prints the cost and the result of each method, as in AvgPipe's Figs. 18 and 19.
func (t *tuned) printChoices(w io.Writer) error {
	all := outcomesOf(t.Result, t.TrainBatches)
	training := all.training(t.TrainBatches)
	if !all.ran() {
		return section(w, "ways of choosing"+t.over()+", and what each gives in a "+training, t.choicesTable(false), nil)
	}
	how := ""
	if t.inTurn {
		how = "; a batch: measured again, the choices in turn"
	}
	err := section(w, "ways of choosing"+t.over()+", what each costs and gives in a "+training+how,
		t.choicesTable(true), nil)
	if cost := t.cost(); cost != "" {
		fmt.Fprint(w, terminal.Of(w).Wrap("  ", "  ", cost))
	}
	return err
}

// choicesTable makes a table with a row for each method, with its cost if `costs` is set. If no choice was run, the
// table has each method's own prediction beside the simulation.
func (t *tuned) choicesTable(costs bool) *report.Table {
	all, shortest := outcomesOf(t.Result, t.TrainBatches), 0.0
	for _, o := range all {
		if o.Measured != nil && t.fits(o.Measured) && (shortest == 0 || o.BatchS < shortest) {
			shortest = o.BatchS
		}
	}
	table := &report.Table{Head: []string{"method", " M", " N"}}
	if costs {
		table.Head = append(table.Head, " tried", " tuning")
	}
	if all.ran() {
		table.Head = append(table.Head, " a batch", " training", " to the best")
	} else {
		table.Head = append(table.Head, " its own prediction", " simulated", " training")
	}
	for _, o := range all {
		row := []any{string(o.Method), o.At.MicroBatches, o.At.Pipelines}
		if o.Refused != "" {
			row = []any{string(o.Method), "", ""}
		}
		if costs {
			row = append(row, o.Tried, terminal.Duration(t.tuning(&o.Choice)))
		}
		batch, training := terminal.Duration(o.BatchS), terminal.Duration(o.TrainingS)
		switch {
		case o.Refused != "":
			row = append(row, "nothing fits")
		case !all.ran():
			row = append(row, terminal.Duration(o.Predicted.StepS), batch, training)
		case o.Measured == nil:
			row = append(row, batch+" (simulated)", training, "")
		case !t.fits(o.Measured):
			row = append(row, batch, training, "does not fit")
		default:
			row = append(row, batch, training, fmt.Sprintf("%.2fx", o.BatchS/shortest))
		}
		table.Add(row...)
	}
	return table
}

// cost says how many settings a traversal could have tried in the time that the profiles took. Without a traversal it
// returns "".
func (t *tuned) cost() string {
	traversed := t.choice(avgpipe.ByTraversal)
	if traversed == nil || traversed.Tried == 0 {
		return ""
	}
	each := traversed.TuningS / float64(traversed.Tried) * avgpipe.ProfileBatches / avgpipe.TraversalBatches
	if len(t.Anchors) == 0 {
		return fmt.Sprintf("the profile, %s of %d batches, costs what traversal takes for %s of as many",
			t.Profiled.At, avgpipe.ProfileBatches, settings(t.tuning(t.choice(avgpipe.ByPrinted))/each))
	}
	return fmt.Sprintf("the profile, of all layers and of %s, costs what traversal takes for %s of %d "+
		"batches", join(t.Anchors),
		settings(t.tuning(t.choice(avgpipe.BySimulator))/each), avgpipe.ProfileBatches)
}

// settings formats an approximate number of settings.
func settings(n float64) string {
	if text := fmt.Sprintf("%.2g", n); text != "1" {
		return text + " settings"
	}
	return "1 setting"
}

// tuning returns the time spent on a choice, in seconds. It includes the time of predictions, unless the simulator is
// the machine: simulated and real time cannot be added.
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

// readDegrees reads "M,N"; an empty text gives zero degrees.
func readDegrees(text string) (avgpipe.Degrees, error) {
	if text == "" {
		return avgpipe.Degrees{}, nil
	}
	m, n, _ := strings.Cut(text, ",")
	micro, err := strconv.Atoi(strings.TrimSpace(m))
	pipelines, err2 := strconv.Atoi(strings.TrimSpace(n))
	if err = errors.Join(err, err2); err != nil || micro < 1 || pipelines < 1 {
		return avgpipe.Degrees{}, cli.BadInput(fmt.Errorf("--profile-at %q; give micro-batches and pipelines, both 1 at "+
			"least, like 8,1", text))
	}
	return avgpipe.Degrees{MicroBatches: micro, Pipelines: pipelines}, nil
}
