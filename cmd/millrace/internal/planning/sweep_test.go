package planning

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/tune/shape"
)

// A sweep refuses flags that would have no effect on it, and names the flag. The verb plan has all these flags.
func TestSweepsRefuseFlagsOfTheSearch(t *testing.T) {
	for _, name := range ofSearch {
		c := PlanCommand()
		f := c.Flags().Lookup(name)
		if f == nil {
			t.Errorf("there is no --%s", name)
			continue
		}
		f.Changed = true
		own := sweepFlags{on: true}
		if err := own.run(c, nil, false, false, ""); err == nil || !strings.Contains(err.Error(), "--"+name+" is of") {
			t.Errorf("--%s: %v", name, err)
		}
	}
}

// On 80 columns a ranking leaves out its bars, but not whether a shape fits.
func TestNarrowRankingsSayWhatFits(t *testing.T) {
	s := shape.Shape{Replicas: 128, Stages: 8, Tensor: 1, MicroBatch: 4, Chunks: 1, Batch: 1536, Recompute: "selective",
		Shard: "zero1"}
	found := []*shape.Prediction{{Shape: s, StepS: 0.00241, MemoryBytes: []int64{17 << 20}, Fits: true},
		{Shape: s, StepS: 0.00244, MemoryBytes: []int64{18 << 20}}}
	for columns, bars := range map[int]bool{80: false, 120: true} {
		var b strings.Builder
		if err := ranking(&b, terminal.Screen{Columns: columns}, found, true); err != nil {
			t.Fatal(err)
		}
		got := b.String()
		if !strings.Contains(got, " MiB  no") || !strings.Contains(got, "speed") || strings.Contains(got, "(,") ||
			strings.Contains(got, "■") != bars {
			t.Errorf("on %d columns:\n%s", columns, got)
		}
	}
}

// A change that rounds to 0.0 % is printed with a plus.
func TestChangesOfNothing(t *testing.T) {
	for want, s := range map[string]float64{"+0.0 %": 0.99999, "-0.1 %": 0.999, "+10.0 %": 1.1} {
		if got := change(s, 1); got != want {
			t.Errorf("%v: %s, want %s", s, got, want)
		}
	}
}

// If no shape of a sweep fits, the sweep has no best shape. It fails, and names the shape that needs least memory.
func TestASweepOfWhichNothingFits(t *testing.T) {
	c := PlanCommand()
	c.SetArgs(strings.Fields("--sweep --model gpt --cluster dgx-a100 --batch 32 --stages 2 --tensor 1 --micro-batch 2 " +
		"--memory-limit 10MiB"))
	var out strings.Builder
	c.SetOut(&out)
	c.SetErr(&out)
	err := c.Execute()
	if !errors.Is(err, shape.ErrNothing) || !strings.Contains(err.Error(), "10.0 MiB each") ||
		!strings.Contains(err.Error(), "recompute full") || strings.Contains(out.String(), "best") {
		t.Errorf("%v\n%s", err, out.String())
	}
}

// TestASweepSaysBesideItsFileThatItIsNotTheBestShape: if a plan cannot express the best shape, another shape is
// written. A line below the ranking then names the file and the written shape, and says how much slower the shape is.
// With --json, this line is on stderr. The last line has the written plan's prediction.
func TestASweepSaysBesideItsFileThatItIsNotTheBestShape(t *testing.T) {
	file := filepath.Join(t.TempDir(), "best.json")
	run := func(more ...string) (string, string) {
		c := PlanCommand()
		c.SetArgs(append(strings.Fields("--sweep --model gpt --cluster dgx-a100 --batch 64 --stages 4 --micro-batch 2 "+
			"--recompute full --shard none -o "+file), more...))
		var out, warned strings.Builder
		c.SetOut(&out)
		c.SetErr(&warned)
		if err := c.Execute(); err != nil {
			t.Fatal(err)
		}
		return out.String(), warned.String()
	}
	text, warned := run()
	ranked, below, _ := strings.Cut(text, "wrote "+file+": ")
	said, simulated, _ := strings.Cut(strings.Join(strings.Fields(below), " "), " the prediction is simulated: ")
	pl, err := plan.Read(file)
	if err != nil || !strings.HasPrefix(simulated, terminal.Duration(pl.Predicted.StepS)+" and ") {
		t.Errorf("%v, and behind the line it says %q", err, simulated)
	}
	got := regexp.MustCompile(`^not the best shape, but (.+), ([\d.]+) % slower; (.+) cannot be written as a plan`).
		FindStringSubmatch(said)
	if got == nil || warned != "" || !strings.Contains(ranked, "\nbest        ") {
		t.Fatalf("stderr %q, stdout\n%s", warned, text)
	}
	text, warned = run("--json")
	var swept Swept
	if err := json.Unmarshal([]byte(text), &swept); err != nil {
		t.Fatal(err)
	}
	if strings.Join(strings.Fields(warned), " ") != "wrote "+file+": "+said {
		t.Errorf("with --json stderr has %q", warned)
	}
	for _, p := range swept.Shapes[1:] {
		if p.Shape.String() != got[1] {
			continue
		}
		if slower := fmt.Sprintf("%.1f", p.StepS/(swept.Shapes[0].StepS/100)-100); slower != got[2] || slower == "0.0" {
			t.Errorf("it says %s %% slower; want %s", got[2], slower)
		}
		if swept.Shapes[0].Shape.String() != got[3] {
			t.Errorf("it says that %s is the best; want %v", got[3], swept.Shapes[0].Shape)
		}
		return
	}
	t.Errorf("no shape is called %q", got[1])
}
