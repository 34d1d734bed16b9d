package tuning

import (
	"encoding/json"
	"math"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/report"
	"github.com/millrace-ml/millrace/tune/avgpipe"
)

// wordsOf returns what a page says, without its tags and with single spaces.
func wordsOf(t *testing.T, page string) string {
	t.Helper()
	data, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(strings.Fields(regexp.MustCompile("<[^>]*>").ReplaceAllString(string(data), " ")), " ")
}

// TestTerminalPageAndJSONAgree: all three give a way of choosing the same batch and training. The printed equations
// choose M = 16, predict 196 ms for it, and get 283 ms by simulation. If nothing was tried, no heading says so.
func TestTerminalPageAndJSONAgree(t *testing.T) {
	t.Chdir(t.TempDir())
	words := strings.Fields("--model gnmt --cluster avgpipe --batch 128 --most-pipelines 1 --html page.html")
	for _, c := range []struct {
		more                      []string
		title, terms, table, bars string
	}{
		{nil, "Predicted A batch in ms", "equations, as printed 16 1 196 ms 283 ms 47m08s",
			"equations, as printed 16 1 1 10.3 s 196 ms 283 ms 47m08s",
			"Training of 10,000 batches, by simulation simulator: 45m16s 45m16s equations, as printed: 47m08s"},
		{[]string{"--rivals"}, "Predicted and simulated A batch in ms",
			"equations, as printed 16 1 1 10.3 s 283 ms 47m08s 1.04x",
			"equations, as printed 16 1 1 10.3 s 283 ms 47m08s 1.04x",
			"Training of 10,000 batches simulator: 45m16s 45m16s equations, as printed: 47m08s"},
	} {
		args := append(words, c.more...)
		if terms := tuneIn(t, args...); !strings.Contains(terms, c.terms) {
			t.Errorf("%v: want %q in %s", c.more, c.terms, terms)
		}
		page := wordsOf(t, "page.html")
		for _, want := range []string{c.title, c.table, c.bars} {
			if !strings.Contains(page, want) {
				t.Errorf("%v: want %q in the page: %s", c.more, want, page)
			}
		}
		var got struct{ Choices []outcome }
		if err := json.Unmarshal([]byte(tuneIn(t, append(args, "--json")...)), &got); err != nil {
			t.Fatal(err)
		}
		o := got.Choices[1]
		if o.Method != avgpipe.ByPrinted || math.Round(1e3*o.Predicted.StepS) != 196 ||
			math.Round(1e3*o.SimulatedS) != 283 || math.Round(1e3*o.BatchS) != 283 || math.Round(o.TrainingS) != 2828 {
			t.Errorf("%v: JSON has %+v; want 283 ms a batch and 47m08s", c.more, o)
		}
	}
}

// TestMeasuredIsSaidOnlyOfTrials: on a machine, a tuning that tried nothing is called profiled, also on the page. If a
// setting was run, the batch is the measured one.
func TestMeasuredIsSaidOnlyOfTrials(t *testing.T) {
	at := avgpipe.Degrees{MicroBatches: 2, Pipelines: 1}
	cell := avgpipe.Cell{At: at, Simulated: &avgpipe.Pipelined{Scored: avgpipe.Scored{At: at, StepS: 2},
		Plan: &plan.Plan{}}}
	choice := avgpipe.Choice{Method: avgpipe.ByPrinted, At: at, Predicted: avgpipe.Scored{At: at, StepS: 1},
		SimulatedS: 2}
	for _, c := range []struct {
		measured            *avgpipe.Scored
		source              string
		batchS              float64
		title, bars, column string
	}{
		{nil, "profiled", 2, "Predicted", "Training of 3 batches, by simulation", " its own prediction"},
		{&avgpipe.Scored{At: at, StepS: 5}, "measured", 5, "Predicted and measured", "Training of 3 batches", " a batch"},
	} {
		cell.Measured, choice.Measured = c.measured, c.measured
		result := &tuned{TrainBatches: 3, Result: &avgpipe.Result{Best: cell.Simulated, Grid: []avgpipe.Cell{cell},
			Choices: []avgpipe.Choice{choice, {Method: avgpipe.ByAdjusted, Refused: "too much"}}}}
		all := outcomesOf(result.Result, 3)
		if o := all[0]; o.BatchS != c.batchS || o.TrainingS != 3*c.batchS {
			t.Errorf("%s: %+v", c.source, o)
		}
		if o := all[1]; o.BatchS != 0 || o.TrainingS != 0 {
			t.Errorf("%s: a way that chose nothing has a time: %+v", c.source, o)
		}
		page := result.study()
		choices := page.Sections[1]
		training := choices.Plots[1].(*report.Bars)
		if title := page.Sections[0].Title; !strings.Contains(page.Subtitle, c.source+":") || title != c.title ||
			choices.Table.Head[5] != c.column || training.Title != c.bars {
			t.Errorf("%s: the page has the headings %q, %q, %q, %q", c.source, page.Subtitle, title, choices.Table.Head,
				training.Title)
		}
		if got := training.Groups[0].Bars[0].Value; got != 3*c.batchS || len(training.Groups) != 1 {
			t.Errorf("%s: the bars begin with %v s", c.source, got)
		}
		names := page.Sections[0].Plots[0].(*report.Bars).Names
		if len(names) > 3 != (c.measured != nil) {
			t.Errorf("%s: the bars are %q", c.source, names)
		}
	}
}
