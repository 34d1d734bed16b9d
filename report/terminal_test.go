package report

import (
	"bytes"
	"flag"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/trace"
	"github.com/millrace-ml/millrace/trace/tracetest"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files anew")

// TestTerminal compares summaries with testdata/*.golden. Only commit changes of -rewrite that you understand.
func TestTerminal(t *testing.T) {
	two := sample(tracetest.TwoStages())
	for name, in := range map[string]Inputs{
		"two_stages":  two,
		"four_stages": sample(tracetest.FourStages()),
		"plan_alone":  {Plan: two.Plan},
		"simulated":   {Plan: two.Plan, Simulated: two.Simulated},
		"measured":    {Measured: two.Measured},
	} {
		var b bytes.Buffer
		if err := Terminal(&b, in); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join("testdata", name+".golden")
		if *rewrite {
			if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := b.String(); got != string(want) {
			t.Errorf("%s differs from %s; got:\n%s", name, path, got)
		}
		for line := range strings.SplitSeq(b.String(), "\n") {
			if n := utf8.RuneCountInString(line); n > terminal.Default {
				t.Errorf("%s: %d columns in %q", name, n, line)
			}
			if strings.HasSuffix(line, " ") {
				t.Errorf("%s: blanks at the end of %q", name, line)
			}
		}
	}
}

func TestTerminalOfManyWorkers(t *testing.T) {
	p := tracetest.Pipeline{Source: "sim", MicroBatches: 4, Steps: 1}
	pl := &plan.Plan{Model: "deep\x1b[31m", MicroBatch: 1, MicroBatches: 4, Schedule: "1f1b", Weights: "sync"}
	for s := range 60 {
		p.ForwardS, p.BackwardS = append(p.ForwardS, 1), append(p.BackwardS, 2)
		pl.Stages = append(pl.Stages, plan.Stage{FirstLayer: s, LastLayer: s, Devices: []int{s}, Recompute: plan.KeepInput})
	}
	var b bytes.Buffer
	if err := Terminal(&b, Inputs{Plan: pl, Simulated: p.Timeline()}); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(b.String(), "\x1b") {
		t.Error("a name steers the terminal")
	}
	for _, want := range []string{"… and 44 more stages", "… and 44 more workers"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not there", want)
		}
	}
	if n := strings.Count(b.String(), "\n"); n > 140 {
		t.Errorf("%d lines for 60 workers", n)
	}
}

// TestTheSummaryFits: no line is wider than the screen at any width, and colours do not change the text.
func TestTheSummaryFits(t *testing.T) {
	for name, in := range map[string]Inputs{"two": sample(tracetest.TwoStages()), "four": sample(tracetest.FourStages())} {
		in, err := in.filled()
		if err != nil {
			t.Fatal(err)
		}
		for _, columns := range []int{terminal.Narrow, 80, 100, 200} {
			plain := summary(terminal.Screen{Columns: columns}, in)
			for line := range strings.Lines(plain) {
				if n := terminal.Width(strings.TrimSuffix(line, "\n")); n > columns {
					t.Errorf("%s: %d columns of %d in %q", name, n, columns, line)
				}
			}
			coloured := summary(terminal.Screen{Columns: columns, Colour: true}, in)
			if !strings.Contains(coloured, "\x1b[34mF") {
				t.Error("forwards have no colour")
			}
			if got := regexp.MustCompile("\x1b\\[[0-9]+m").ReplaceAllString(coloured, ""); got != plain {
				t.Errorf("%s: in colour at %d columns:\n%s\nwithout:\n%s", name, columns, got, plain)
			}
		}
	}
}

// TestWorkersOfWhichTheSameIsToBeSaid: workers with the same text share a row. If nothing was measured, the column of
// measurements is left out.
func TestWorkersOfWhichTheSameIsToBeSaid(t *testing.T) {
	pl := &plan.Plan{Model: "m", MicroBatch: 1, MicroBatches: 4, Schedule: "dp", Weights: "sync",
		Stages: []plan.Stage{{Devices: []int{0, 1, 2, 3}}},
		Predicted: &plan.Predicted{StepS: 1, BusyS: []float64{1, 1, .5, .5}, MemoryBytes: []int64{8, 8, 8, 8},
			PeakActivations: []int{1, 1, 1, 1}}}
	var b bytes.Buffer
	if err := Terminal(&b, Inputs{Plan: pl}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"\nPredicted\n", ` busy +0–1 +1\.00 s\n +2–3 +500 ms\n`, ` peak memory +0–3 +8 B\n`,
		` micro-batches in flight +0–3 +1\n`} {
		if !regexp.MustCompile(want).MatchString(b.String()) {
			t.Errorf("want %q in\n%s", want, b.String())
		}
	}
	if strings.Contains(b.String(), "measured") {
		t.Errorf("nothing was measured:\n%s", b.String())
	}
}

// TestGroupsSayWhatADeviceHolds: the fullest of two groups of 4 devices holds 12 B, so each of its devices holds 3 B.
func TestGroupsSayWhatADeviceHolds(t *testing.T) {
	pl := &plan.Plan{Model: "m", MicroBatch: 1, MicroBatches: 4, Schedule: "dp", Weights: "sync",
		Tensor: &plan.Tensor{Devices: 4}, Stages: []plan.Stage{{Devices: []int{0, 1}}},
		Predicted: &plan.Predicted{StepS: 1, BusyS: []float64{1, 1}, MemoryBytes: []int64{8, 12}}}
	for _, groups := range []bool{true, false} {
		var b bytes.Buffer
		if err := Terminal(&b, Inputs{Plan: pl}); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(b.String(), "group of 4 devices, and its memory is that of all: at most 3 B on each") != groups {
			t.Errorf("in groups: %v:\n%s", groups, b.String())
		}
		pl.Tensor = nil
	}
}

// TestIdleWorkersShareARow: workers that are idle all the time have one row in the drawing of a step, and those that
// idle for the same reasons have one line below.
func TestIdleWorkersShareARow(t *testing.T) {
	step := tracetest.TwoStages().Timeline()
	step.Workers = 10
	step.PeakBytes, step.PeakActivations = append(step.PeakBytes, make([]int64, 8)...), nil
	var b bytes.Buffer
	if err := Terminal(&b, Inputs{Simulated: step}); err != nil {
		t.Fatal(err)
	}
	drawn := b.String()
	for _, want := range []string{`\n     1  ·*F.*\n   2–9  ·+\n[A-Z]`, `\n     1  .*%.*\n   2–9  [a-z].* 100\.0 %\n`} {
		if !regexp.MustCompile(want).MatchString(drawn) {
			t.Errorf("want %q in\n%s", want, drawn)
		}
	}
}

// TestDifferences checks the text and the rating of differences between prediction and measurement.
func TestDifferences(t *testing.T) {
	for _, c := range []struct {
		unit                Unit
		predicted, measured float64
		text                string
		off                 int
	}{
		{UnitSeconds, 1, 1.014, "+1.4 %", 0}, {UnitSeconds, 1, .9, "−10.0 %", 1}, {UnitSeconds, 1, 2, "+100.0 %", 2},
		{UnitPart, .10, .106, "+0.6 points", 0}, {UnitPart, .1, .0999999, "±0.0 points", 0},
		{UnitPart, .1, .3, "+20.0 points", 2},
		{UnitMicroBatch, 4, 4, "exact", 0}, {UnitMicroBatch, 4, 5, "+25.0 %", 2}, {UnitSeconds, 0, 1, "–", 0},
	} {
		k := Comparison{Unit: c.unit, Predicted: &c.predicted, Measured: &c.measured}
		k.Difference = difference(k)
		if got := k.differenceText(); got != c.text || k.off() != c.off {
			t.Errorf("%v against %v %s: %q and %d, want %q and %d", c.predicted, c.measured, c.unit, got, k.off(), c.text, c.off)
		}
	}
}

// TestNumbersOfOverlappingSteps: without a flush, the time of a step is the time from the end of the previous step to
// its own end.
func TestNumbersOfOverlappingSteps(t *testing.T) {
	tl := &trace.Timeline{Version: 1, Workers: 1, Stream: true}
	for s := range 5 {
		at := 2 * float64(s)
		tl.Events = append(tl.Events, trace.Event{Lane: trace.Compute, Kind: "F", Instruction: "0F0", Step: s, StartS: at,
			EndS: at + 1.5})
		tl.Steps = append(tl.Steps, trace.StepMark{Step: s, StartS: at - 1, EndS: at + 2})
	}
	n := NumbersOf(tl, 1, 10)
	if n.StepS != 2 || n.SamplesPerSecond != 5 || n.Steps != 3 || n.First != 3 || n.Last != 5 {
		t.Errorf("step %v s, %v samples/s over %d steps, %d to %d, want 2, 5 and 3, 3 to 5", n.StepS, n.SamplesPerSecond,
			n.Steps, n.First, n.Last)
	}
	if n.Bubble != .25 || n.BusyS[0] != 1.5 {
		t.Errorf("bubble %v, busy %v; 1.5 s of 2 s are 0.25", n.Bubble, n.BusyS)
	}
}

// TestEvaluationsAreNoPartOfAStep: an evaluation between two steps makes neither step longer.
func TestEvaluationsAreNoPartOfAStep(t *testing.T) {
	tl := &trace.Timeline{Version: 1, Workers: 1}
	at := 0.0
	for s := range 8 {
		tl.Events = append(tl.Events, trace.Event{Lane: trace.Compute, Kind: "F", Instruction: "0F0", Step: s, StartS: at,
			EndS: at + 1})
		tl.Steps = append(tl.Steps, trace.StepMark{Step: s, StartS: at, EndS: at + 2})
		at += 2
		if s != 3 {
			at += 5 // an evaluation after every step except one
		}
	}
	if n := NumbersOf(tl, 0, 10); n.StepS != 2 || n.SamplesPerSecond != 5 || n.Bubble != .5 {
		t.Errorf("step %v s, %v samples/s, bubble %v, want 2, 5 and 0.5", n.StepS, n.SamplesPerSecond, n.Bubble)
	}
}

// TestNumbersOfALongRun: here a long run has the marks of all steps, but the events of only a few. Its workers reach
// the flush at slightly different times. An evaluation follows the last step.
func TestNumbersOfALongRun(t *testing.T) {
	p := tracetest.TwoStages()
	p.Steps = 12
	tl := p.Timeline()
	want := NumbersOf(tl, 2, 32)
	var computed []trace.Computed
	for k, busy := range tl.StepBusy() {
		computed = append(computed, trace.Computed{Step: tl.Steps[k].Step, BusyS: busy})
	}
	tl.Events = slices.DeleteFunc(tl.Events, func(e trace.Event) bool { return e.Step < 9 })
	last := tl.Steps[11].EndS
	tl.Events = append(tl.Events, trace.Event{Worker: 1, Lane: trace.Compute, Kind: "EV", Instruction: "1EV96", Step: 11,
		ReadyS: last, StartS: last, EndS: last + 60})
	for k := range tl.Steps {
		tl.Steps[k].StartS -= .001
	}
	got := NumbersOf(tl, 2, 32)
	for _, steps := range []int{3, 10} { // covered: the 3 with events; then, once all busy times are known, the last 10
		if steps == 10 {
			tl.Computed = computed
			got = NumbersOf(tl, 2, 32)
		}
		if math.Abs(got.StepS-want.StepS) > .0021 || math.Abs(got.Bubble-want.Bubble) > .002 ||
			math.Abs(got.BusyS[0]-want.BusyS[0]) > 1e-3 || got.Steps != steps || got.First != 13-steps {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
	in := Inputs{Measured: tl, Skip: 2}
	shown, name := in.measuredStep()
	if _, end := shown.Extent(); end > got.StepS+.002 || len(shown.Events) == 0 {
		t.Errorf("%s is shown until %v s with %d events, want %v s", name, end, len(shown.Events), got.StepS)
	}
	for _, p := range in.measuredPanels() {
		if len(p.Events.Text) == 0 {
			t.Errorf("%s is shown without a box", p.Name)
		}
	}
}

func TestTable(t *testing.T) {
	tb := &Table{Head: []string{"case", " samples/s"}}
	tb.Add("a|b", 12.5)
	tb.Add("longer name", " 3")
	var text, md bytes.Buffer
	if err := tb.Text(&text); err != nil {
		t.Fatal(err)
	}
	if err := tb.Markdown(&md); err != nil {
		t.Fatal(err)
	}
	if want := "  case         samples/s\n  a|b               12.5\n  longer name          3\n"; text.String() != want {
		t.Errorf("text:\n%s\nwant:\n%s", text.String(), want)
	}
	if want := "| case | samples/s |\n|---|---:|\n| a\\|b | 12.5 |\n| longer name | 3 |\n"; md.String() != want {
		t.Errorf("markdown:\n%s\nwant:\n%s", md.String(), want)
	}
}
