package training

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/run"
	"github.com/millrace-ml/millrace/run/control"
)

// After the last step the live line shows the current work, not what is already done.
func TestTheLiveLineGoesOnFromSavingToEvaluating(t *testing.T) {
	at := filepath.Join(t.TempDir(), "screen")
	screen, err := os.Create(at)
	if err != nil {
		t.Fatal(err)
	}
	defer screen.Close()
	p := &progress{to: screen, steps: 2, every: map[string]int{saving: 0, evaluating: 0},
		cost: map[string]float64{stepping: 1, saving: 1, evaluating: 1}}
	last := func() string {
		text, err := os.ReadFile(at)
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSuffix(string(text[strings.LastIndexByte(string(text), '\r')+1:]), "\x1b[K")
	}
	p.step(run.StepReport{Step: 1, Loss: 2.5}, nil)
	if got := last(); !strings.HasPrefix(got, "step 2/2  loss 2.5000") || !strings.HasSuffix(got, "  saving") {
		t.Errorf("behind the last step it reads %q", got)
	}
	p.behind()
	if got := last(); !strings.HasPrefix(got, "step 2/2  loss 2.5000") || !strings.HasSuffix(got, "  evaluating") {
		t.Errorf("behind the save it reads %q", got)
	}
	p.tested(1, 4)
	if got := last(); !strings.HasSuffix(got, "  evaluating 25 %") {
		t.Errorf("in the evaluation it reads %q", got)
	}
	p.behind()
	if got := last(); got != "step 2/2  loss 2.5000" {
		t.Errorf("behind the evaluation it reads %q", got)
	}
}

// A log says that the evaluation after the last step begins, because it may take long and no step follows.
func TestALogSaysThatTheLastEvaluationBegins(t *testing.T) {
	var said bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&said, nil)))
	defer slog.SetDefault(before)
	p := &progress{steps: 2, every: map[string]int{saving: 0, evaluating: 1}, interval: time.Hour,
		cost: map[string]float64{stepping: 1, saving: 1, evaluating: 1}}
	p.step(run.StepReport{Step: 0}, nil)
	p.behind() // the evaluation after the first step: the log does not say that it begins
	p.step(run.StepReport{Step: 1}, nil)
	p.behind()
	p.behind()
	if n := strings.Count(said.String(), "msg=evaluating\n"); n != 1 {
		t.Errorf("it says %d times that it evaluates:\n%s", n, said.String())
	}
}

// The progress line shows an evaluation or a checkpoint as soon as it begins, even if the line was just drawn. Either
// may take very long. A log does not mention that an evaluation between steps begins; it only shows the result.
func TestTheLiveLineSaysWhatIsDoneBetweenSteps(t *testing.T) {
	at := filepath.Join(t.TempDir(), "screen")
	screen, err := os.Create(at)
	if err != nil {
		t.Fatal(err)
	}
	defer screen.Close()
	p := &progress{to: screen, steps: 9, every: map[string]int{saving: 2, evaluating: 2}, interval: time.Hour,
		cost: map[string]float64{stepping: 1, saving: 1, evaluating: 1}}
	drawn := func() (lines []string) {
		text, err := os.ReadFile(at)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range strings.Split(string(text), "\r")[1:] {
			line, _, _ = strings.Cut(strings.TrimSuffix(line, "\x1b[K"), " over ")
			lines = append(lines, line)
		}
		return lines
	}
	for step := range 4 {
		if p.step(run.StepReport{Step: step, Loss: 2.5}, nil); step%2 == 1 {
			p.behind()
			p.behind()
		}
	}
	for i, want := range []string{"step 1/9  loss 2.5000", "step 2/9  loss 2.5000  saving",
		"step 2/9  loss 2.5000  evaluating", "step 4/9  loss 2.5000  saving", "step 4/9  loss 2.5000  evaluating"} {
		if got := drawn(); len(got) != 5 || !strings.HasPrefix(got[i], want) {
			t.Errorf("line %d is to be %q: %q", i, want, got)
		}
	}
	p.to = nil
	if p.apart(evaluating) {
		t.Error("a log says that an evaluation begins")
	}
}

// The record of a step has the bounds of the remaining time that the line shows, and none if the line shows none.
func TestTheTimeLeftOfTheRecordIsThatOfTheLine(t *testing.T) {
	p := &progress{steps: 100, every: map[string]int{evaluating: 10}, cost: map[string]float64{stepping: 1, evaluating: 9}}
	now, said := time.Unix(0, 0), 0
	for step := 1; step <= p.steps; step++ {
		if p.done, p.due = step, nil; p.isDue(evaluating, step) {
			p.due = []string{evaluating}
		}
		now = now.Add(time.Second)
		next := p.did(now, step)
		line, left := p.rest(now, next), p.left(now)
		if (left != nil) != strings.Contains(line, "left") || step < 20 && left != nil {
			t.Fatalf("behind step %d the line says %q and the record %v", step, line, left)
		}
		if left != nil {
			said++
			// rest is the true remaining time without the report: a second for each step and thirty for each
			// evaluation.
			rest := float64(p.steps - step + 30*(p.times(evaluating, step)+len(p.due)))
			if next == evaluating {
				rest += 30
			}
			if left[0] > 1.5*rest || left[1] < rest/1.5 || left[1] > 2.26*left[0] {
				t.Errorf("behind step %d from %.0f to %.0f s are left; it is %.0f", step, left[0], left[1], rest)
			}
		}
		if next == evaluating {
			now = now.Add(30 * time.Second)
			p.did(now, step)
		}
	}
	if said < 50 {
		t.Errorf("a time left is said %d times", said)
	}
}

// The line shows rate and bubble as medians over the last 64 steps, and says over how many steps. So an interrupted
// step has little weight.
func TestTheStepLineIsOfTheLastSteps(t *testing.T) {
	p := &progress{batch: 100}
	for step := range 200 {
		took := run.StepReport{Step: step, Seconds: 1, Workers: []control.Did{{BusyS: .5}, {BusyS: 1}}}
		if step < 130 || step == 199 {
			took.Seconds = 10
		}
		p.keep(took)
		if want := "  10.00 samples/s  bubble 92.5 %"; step == 0 && p.pace() != want {
			t.Errorf("of the first step it says %q; want %q", p.pace(), want)
		}
	}
	if got, want := p.pace(), "  100.0 samples/s  bubble 25.0 % over 64 steps"; got != want {
		t.Errorf("it says %q; want %q", got, want)
	}
}

// Steps of a stream overlap and end in bursts. As in the report, the line then shows means over groups of steps.
func TestTheStepLineOfAStream(t *testing.T) {
	p := &progress{batch: 100}
	for step := range 64 {
		took := run.StepReport{Step: step, Seconds: .1, Workers: []control.Did{{BusyS: .5}, {BusyS: 1}}}
		if step%4 == 3 {
			took.Seconds = 3.7
		}
		p.keep(took)
	}
	if got, want := p.pace(), "  1,000 samples/s  bubble 0.0 % over 64 steps"; got != want {
		t.Errorf("of steps apart it says %q; want %q", got, want)
	}
	for _, p.plan = range []*plan.Plan{
		{Schedule: "1f1b-rr", Weights: "stash", Replication: "round_robin", MicroBatch: 100, MicroBatches: 1,
			Stages: []plan.Stage{{Devices: []int{0}}, {FirstLayer: 1, LastLayer: 1, Devices: []int{1}}}},
		{Schedule: "elastic", Weights: "elastic", Replication: "round_robin", MicroBatch: 50, MicroBatches: 1,
			Elastic: &plan.Elastic{Pipelines: 2}, Stages: []plan.Stage{{Devices: []int{0}},
				{FirstLayer: 1, LastLayer: 1, Devices: []int{1}}}},
	} {
		if got, want := p.pace(), "  100.0 samples/s  bubble 25.0 % over 64 steps"; got != want {
			t.Errorf("%s: it says %q; want %q", p.plan.Schedule, got, want)
		}
	}
}

// In simulated runs, the remaining time that is shown is right within a factor of 1.5. It is not shown in the first
// sixth of a run, and not at all in a run of three seconds. The steps of a run take equally long, or for a while twice
// as long. A run ends with a save, an evaluation and a report, whose durations are not known in advance.
func TestATrainingsTimeLeftIsHonest(t *testing.T) {
	for name, c := range map[string]struct {
		steps                             int
		stepS, slowS, saveS, evalS, drawS float64
		says                              bool
	}{
		"of three seconds":             {6000, 0.0004, 0.0004, 0.15, 0.02, 0.4, false},
		"with a long tail":             {6000, 0.001, 0.001, 0.5, 0.1, 1, true},
		"with a short tail":            {6000, 0.001, 0.001, 0.01, 0.01, 0.3, true},
		"that others slow for a while": {2000, 0.01, 0.02, 0.1, 0.1, 0.3, true},
	} {
		p := &progress{steps: c.steps, bytes: 4e5, every: map[string]int{saving: 0, evaluating: 0},
			cost: map[string]float64{stepping: 1, saving: .5, evaluating: 4}}
		zero := time.Unix(0, 0)
		total := float64(c.steps)*c.stepS + c.saveS + c.evalS + c.drawS
		slow := func(step int) bool { return step > c.steps/2 && step < c.steps*6/10 }
		for step := range c.steps {
			if slow(step) {
				total += c.slowS - c.stepS
			}
		}
		gone, said := 0.0, false
		for step := range c.steps {
			if gone += c.stepS; slow(step) {
				gone += c.slowS - c.stepS
			}
			now := zero.Add(time.Duration(gone * 1e9))
			if p.due = nil; step == c.steps-1 {
				p.due = []string{saving, evaluating}
			}
			p.did(now, step+1)
			if step%20 != 0 {
				continue
			}
			s := p.work.At(now)
			if !s.Honest {
				continue
			}
			said = true
			if off := s.Left.Seconds() / (total - gone); off > 1.5 || off < 1/1.5 || gone < total/6 {
				t.Fatalf("a run %s: behind %.1f of %.1f s %v are left", name, gone, total, s.Left)
			}
		}
		if said != c.says {
			t.Errorf("a run %s: a time left is said: %v", name, said)
		}
	}
}

// TestAnEvaluationShowsHowFarItIs: a log has a line for each interval in which the evaluation made progress.
func TestAnEvaluationShowsHowFarItIs(t *testing.T) {
	var said bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&said, nil)))
	defer slog.SetDefault(before)
	p := &progress{steps: 2, every: map[string]int{evaluating: 1}, cost: map[string]float64{stepping: 1, evaluating: 1}}
	p.tested(1, 4) // a report that comes before any evaluation has begun
	p.step(run.StepReport{Step: 0}, nil)
	said.Reset()
	p.tested(1, 4)
	p.tested(4, 4)
	if got := said.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, `"evaluating 25 %"`) {
		t.Errorf("said %q", got)
	}
	if p.tests.far() != 1 {
		t.Errorf("%v is done", p.tests.far())
	}
}

// TestLongEvaluationsHaveAdvice: in each case four timed steps take 1 s in all, so an evaluation of 3 s takes as long
// as twelve steps. An interval of five steps may have four timed ones, because a process's first step is not timed. In
// a longer interval the four steps are only the part after a resume, and there is no advice.
func TestLongEvaluationsHaveAdvice(t *testing.T) {
	for _, c := range []struct {
		evaluationS float64
		every       int
		want        string
	}{
		{3, 5, "an evaluation takes 3.00 s, longer than the 4 steps before it (1.00 s): --eval-every 15, or fewer " +
			"--eval-rows, leaves more time to train"}, // the first of the five steps is not timed
		{3, 6, ""}, {3, 100, ""}, // the four timed steps follow a resume
		{3, 4, "an evaluation takes 3.00 s, longer than the 4 steps before it (1.00 s): --eval-every 12, or fewer " +
			"--eval-rows, leaves more time to train"},
		{0.9, 4, ""}, {1.5, 4, ""}, {3, 0, ""},
	} {
		var s tests
		at := time.Unix(1000, 0)
		for range 4 {
			s.begins(at, stepping, "")
			at = at.Add(time.Second / 4)
			s.ended(at, c.every)
		}
		s.begins(at, evaluating, "")
		s.ended(at.Add(time.Duration(c.evaluationS*1e9)), c.every)
		if s.advice != c.want || s.stepsS != 0 {
			t.Errorf("%v s, every %d: %q", c.evaluationS, c.every, s.advice)
		}
	}
}
