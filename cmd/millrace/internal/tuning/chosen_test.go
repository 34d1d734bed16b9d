package tuning

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/tune"
	"github.com/millrace-ml/millrace/tune/avgpipe"
)

// tuneIn runs tune and returns what it prints, with single spaces.
func tuneIn(t *testing.T, args ...string) string {
	t.Helper()
	c := TuneCommand()
	var out bytes.Buffer
	c.SetOut(&out)
	c.SetArgs(args)
	if err := c.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	return strings.Join(strings.Fields(out.String()), " ")
}

// TestOnePlanIsChosen: with --all, the plan that is printed first, marked, in JSON the best, and written is one and the
// same. In the first and third case it is an AvgPipe plan over other stages than AvgPipe's own. In the second, it is no
// AvgPipe plan. In the fourth, one of AvgPipe's own settings is the fastest of all.
func TestOnePlanIsChosen(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, c := range []struct{ args, named, beaten string }{
		{"--model bert --cluster avgpipe --batch 8 --most-pipelines 2", "AvgPipe, 2 pipelines: elastic, 4 stages",
			"the best setting over AvgPipe's own 6 stages, M=8 N=2, takes "},
		{"--model gpt --cluster avgpipe:1x2 --batch 8 --most-pipelines 2", "bfs, 8 stages on 2 workers",
			"the best setting over AvgPipe's own 2 stages, M=8 N=2, takes "},
		{"--model gpt --cluster dgx-a100:2x4 --batch 64 --most-pipelines 2", // stages on several workers, as plan finds them
			"AvgPipe, 2 pipelines: elastic, 2 stages of 4 workers",
			"the best setting over AvgPipe's own 8 stages, "},
		{"--model bert-large --cluster avgpipe:1x2 --batch 8 --most-pipelines 2", "", ""},
	} {
		words := append(strings.Fields(c.args), "--all", "-o", "plan.json", "--html", "page.html")
		text := tuneIn(t, words...)
		var got struct {
			Best avgpipe.Pipelined `json:"best"`
			All  []tune.Rival      `json:"all"`
		}
		if err := json.Unmarshal([]byte(tuneIn(t, append(words, "--json")...)), &got); err != nil {
			t.Fatal(err)
		}
		first := got.All[0]
		if !got.Best.Plan.Same(first.Plan) || got.Best.StepS != first.Predicted.StepS ||
			!slices.Equal(got.Best.MemoryBytes, first.Predicted.MemoryBytes) ||
			got.Best.At != degreesOf(anySchedule{Rival: first}) {
			t.Errorf("%s: the best is %s in %v s; the first schedule %s in %v s", c.args, got.Best.Plan.Layout(),
				got.Best.StepS, first.Plan.Layout(), first.Predicted.StepS)
		}
		written, err := plan.Read("plan.json")
		if err != nil {
			t.Fatal(err)
		}
		if written.Layout() != first.Plan.Layout() || written.Objective.Value != got.Best.StepS {
			t.Errorf("%s: wrote %s, %v s; want %s, %v s", c.args, written.Layout(), written.Objective.Value,
				first.Plan.Layout(), got.Best.StepS)
		}
		page, err := os.ReadFile("page.html")
		if err != nil {
			t.Fatal(err)
		}
		if c.named == "" { // a setting of the grid: marked there, and in the list of schedules
			if n := strings.Count(text, " > "); n != 2 || strings.Contains(text, "own 2 stages") {
				t.Errorf("%s: %d marked rows; want 2: %s", c.args, n, text)
			}
			continue
		}
		_, schedules, _ := strings.Cut(text, " schedules, each with")
		begins := fmt.Sprintf(" chosen %s, %s predicted %s a batch,", c.named, first.Plan.Micros(),
			terminal.Duration(got.Best.StepS))
		row := c.named[:min(40, len(c.named))] // the table breaks longer names
		memory := " memory " + terminal.Bytes(got.Best.Peak()) + " on the fullest worker"
		if strings.Count(text, " > ") != 1 || !strings.Contains(schedules, " > "+row) ||
			!strings.Contains(text, begins) || !strings.Contains(text, memory) || !strings.Contains(text, c.beaten) {
			t.Errorf("%s: want %q, %q and %q in %s", c.args, begins, memory, c.beaten, text)
		}
		if !strings.Contains(string(page), "chosen: "+c.named+", ") ||
			!strings.Contains(string(page), "What was chosen is none of these") {
			t.Errorf("%s: the page has another choice than %s", c.args, c.named)
		}
	}
}

// TestAnotherSettingThanAvgPipes: if no setting of AvgPipe's fits, the fastest of the other schedules is printed as the
// choice, since it is what -o writes.
func TestAnotherSettingThanAvgPipes(t *testing.T) {
	pl := &plan.Plan{Schedule: "1f1b", MicroBatches: 4, MicroBatch: 2,
		Stages: []plan.Stage{{Devices: []int{0}}, {Devices: []int{1}}}}
	formula := tune.Rival{Kind: "by a formula", Fits: true, Predicted: plan.Predicted{StepS: 0.5}}
	all := schedules([]tune.Rival{formula, {Kind: "1f1b", Plan: pl, Fits: true,
		Predicted: plan.Predicted{StepS: 2, BusyS: []float64{1.5, 2}, MemoryBytes: []int64{1 << 20, 1 << 21}}}})
	all[1].MeasuredS = 3
	result := &tuned{Batch: 8, LimitBytes: 1 << 22, All: all}
	var out bytes.Buffer
	if err := result.print(&out); err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(out.String()), " ")
	for _, want := range []string{"chosen 1f1b, 2 stages, 4 micro-batches of 2 predicted 2.00 s a batch, ",
		"measured 3.00 s a batch, run in turn with the other schedules below why of 2 schedules that fit this is ",
		"the fastest; no setting of AvgPipe's fits 4.00 MiB for each worker memory 2.00 MiB on the fullest worker",
		" > 1f1b, 2 stages "} {
		if !strings.Contains(text, want) {
			t.Errorf("want %q in %s", want, text)
		}
	}
	if best := result.chosen(); !slices.Equal(best.IdleS, []float64{0.5, 0}) {
		t.Errorf("workers idle for %v s", best.IdleS)
	}
	if off, tried := behind(all); !tried || off != 0 {
		t.Errorf("the choice is %v behind, tried %v; want 0, as it is the only one that was tried", off, tried)
	}
	if none := (&tuned{All: all[:1]}); none.chosen() != nil {
		t.Error("a time by a formula is chosen, although it has no plan")
	}
}

// TestAvgPipesPlanIsListedOnce: one pipeline of AvgPipe's may be a plan that the search found too.
func TestAvgPipesPlanIsListedOnce(t *testing.T) {
	of := func(stages int) *plan.Plan { return &plan.Plan{Schedule: "1f1b", Stages: make([]plan.Stage, stages)} }
	all := []tune.Rival{{Kind: "straight pipeline", Plan: of(3), Predicted: plan.Predicted{StepS: 1}},
		{Kind: "1f1b", Plan: of(2), Predicted: plan.Predicted{StepS: 2}}}
	best := &avgpipe.Pipelined{Plan: of(2), Scored: avgpipe.Scored{At: avgpipe.Degrees{MicroBatches: 4, Pipelines: 1},
		StepS: 2}}
	got := withOwn(all, best, 8)
	if len(got) != 2 || got[1].Plan != best.Plan || got[1].Why != "the same plan as 1f1b" {
		t.Errorf("listed %+v", got)
	}
}
