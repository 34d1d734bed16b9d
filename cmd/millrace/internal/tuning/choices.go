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

// printChoices prints the cost and the result of each method, as in AvgPipe's Figs. 18 and 19.
func (t *tuned) printChoices(w io.Writer) error {
	if !slices.ContainsFunc(t.Choices, func(c avgpipe.Choice) bool { return c.Measured != nil }) {
		return section(w, "ways of choosing"+t.over()+", and what each gives in a training of "+
			terminal.Count(t.TrainBatches, "batch")+", by simulation", t.simulatedChoices(), nil)
	}
	how := ""
	if t.inTurn {
		how = "; a batch: measured again, the choices in turn"
	}
	err := section(w, "ways of choosing"+t.over()+", what each costs and gives in a training of "+
		terminal.Count(t.TrainBatches, "batch")+how, t.choicesTable(), nil)
	if cost := t.cost(); cost != "" {
		fmt.Fprint(w, terminal.Of(w).Wrap("  ", "  ", cost))
	}
	return err
}

// simulatedChoices makes a table with a row for each method if no choice was run. It compares the choices by
// simulation.
func (t *tuned) simulatedChoices() *report.Table {
	table := &report.Table{Head: []string{"method", " M", " N", " its own prediction", " simulated", " training"}}
	for _, c := range t.Choices {
		if c.Refused != "" {
			table.Add(string(c.Method), "", "", "nothing fits")
			continue
		}
		simulated, training := "–", "–"
		for _, cell := range t.Grid {
			if cell.At == c.At && cell.Simulated != nil {
				simulated = terminal.Duration(cell.Simulated.StepS)
				training = terminal.Duration(float64(t.TrainBatches) * cell.Simulated.StepS)
			}
		}
		table.Add(string(c.Method), c.At.MicroBatches, c.At.Pipelines, terminal.Duration(c.Predicted.StepS), simulated,
			training)
	}
	return table
}

// choicesTable makes a table with a row for each method.
func (t *tuned) choicesTable() *report.Table {
	shortest := 0.0
	for _, c := range t.Choices {
		if s := c.StepS(); c.Refused == "" && c.Measured != nil && t.fits(c.Measured) && (shortest == 0 || s < shortest) {
			shortest = s
		}
	}
	table := &report.Table{Head: []string{"method", " M", " N", " tried", " tuning", " a batch", " training",
		" to the best"}}
	for _, c := range t.Choices {
		if c.Refused != "" {
			table.Add(string(c.Method), "", "", c.Tried, terminal.Duration(t.tuning(&c)), "nothing fits")
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
		table.Add(string(c.Method), c.At.MicroBatches, c.At.Pipelines, c.Tried, terminal.Duration(t.tuning(&c)),
			terminal.Duration(c.StepS())+how,
			terminal.Duration(float64(t.TrainBatches)*c.StepS()), against)
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
