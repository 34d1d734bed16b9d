package live

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/report"
	"github.com/millrace-ml/millrace/report/metrics"
	"github.com/millrace-ml/millrace/trace/tracetest"
)

// noon is the start of the runs in these tests.
var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// stepLine returns the line of metrics for a step, counted from 0, that ends afterS seconds after noon.
func stepLine(step int, afterS float64) string {
	v := metrics.StepValues{Time: noon.Add(time.Duration(afterS * float64(time.Second))), Step: step + 1,
		Loss: 1 / float64(step+1), StepS: 1,
		SamplesPerSecond: 4, Bubble: .25, Samples: int64(4 * (step + 1)), PeakBytes: []int64{100, 200},
		LiveBytes: []int64{50, 60}, BusyS: []float64{.7, .8}}
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(text) + "\n"
}

func eventLine(kind string, step int, afterS float64, lines ...string) string {
	text, err := json.Marshal(metrics.Event{Time: noon.Add(time.Duration(afterS * float64(time.Second))), Step: step,
		Kind: kind, Text: kind + " it", Lines: lines})
	if err != nil {
		panic(err)
	}
	return string(text) + "\n"
}

// folderOf makes a run's folder with these files, and a Follower that has read them.
func folderOf(t *testing.T, files map[string]string) (string, *Follower) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		write(t, filepath.Join(dir, name), text)
	}
	f := NewFollower(dir)
	f.Poll(true)
	return dir, f
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func add(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
	f.Close()
}

// A line is read once it is complete, however many writes it takes. An invalid line is reported, and the other lines
// are read.
func TestAFileThatGrowsIsReadOn(t *testing.T) {
	dir, f := folderOf(t, map[string]string{"metrics.jsonl": stepLine(0, 1)})
	path, next := filepath.Join(dir, "metrics.jsonl"), stepLine(1, 2)
	for i := range len(next) {
		if f.now.Step != 1 {
			t.Fatalf("%q is taken for a line", next[:i])
		}
		add(t, path, next[i:i+1])
		if !f.Poll(true) {
			t.Fatalf("byte %d is not read", i)
		}
	}
	if f.Poll(true) || f.now.Step != 2 || f.now.Samples != 8 || f.now.AtS != 2 || len(f.wrong) != 0 {
		t.Errorf("%+v, %v", f.now, f.wrong)
	}
	add(t, path, "{\"step\": \n\n[]\n"+stepLine(2, 3)+`{"step": 0, "loss": 2}`+"\n")
	f.Poll(true)
	if f.now.Step != 3 || len(f.steps.parts) != 3 ||
		!strings.Contains(f.wrong["metrics.jsonl"], "4 lines of metrics.jsonl are not of") {
		t.Errorf("%+v, %v", f.now, f.wrong)
	}
	add(t, path, strings.Repeat("x", longestLine+2))
	f.Poll(true)
	add(t, path, "yy\n"+stepLine(3, 4))
	for range 2 { // the error is still reported, and the rest of the line is not another line
		f.Poll(true)
		if said := f.wrong["metrics.jsonl"]; !strings.Contains(said, "line 8 is longer than") || f.bad[0] != 4 ||
			f.now.Step != 4 {
			t.Errorf("step %d, %d bad lines: %q", f.now.Step, f.bad[0], said)
		}
	}
}

// A run's files are read from the beginning if the run is overwritten, if its last steps are repeated, or if its folder
// disappeared.
func TestAFileThatIsReplacedIsReadAnew(t *testing.T) {
	dir, f := folderOf(t, map[string]string{"metrics.jsonl": stepLine(0, 1) + stepLine(1, 2) + stepLine(2, 3)})
	path := filepath.Join(dir, "metrics.jsonl")
	replaced := f.replaced
	write(t, path+".new", stepLine(0, 1)+stepLine(1, 2)) // train --resume replaces the file in this way
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	if f.Poll(true); f.now.Step != 2 || len(f.steps.parts) != 2 || f.replaced == replaced {
		t.Errorf("trimmed: %+v", f.now)
	}
	replaced = f.replaced
	write(t, path, stepLine(0, 10)) // a shorter text, in the same file
	if f.Poll(true); f.now.Step != 1 || f.replaced == replaced {
		t.Errorf("shorter: %+v", f.now)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if f.Poll(true); f.now.Step != 0 || f.state(noon) != waits {
		t.Errorf("gone: %+v, %s", f.now, f.state(noon))
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, path, stepLine(0, 1))
	if f.Poll(true); f.now.Step != 1 {
		t.Errorf("again: %+v", f.now)
	}
}

// The training time does not include the pause between the end of a run and its resumption.
func TestTimeLeavesPausesOut(t *testing.T) {
	_, f := folderOf(t, map[string]string{
		"events.jsonl": eventLine(metrics.Begun, 0, 0) + eventLine(metrics.Stopped, 2, 2) +
			eventLine(metrics.Begun, 2, 3600),
		"metrics.jsonl": stepLine(0, 1) + stepLine(1, 2) + stepLine(2, 3603) + stepLine(3, 3604),
	})
	var at []float64
	for _, p := range f.steps.parts {
		at = append(at, p.atS)
	}
	if fmt.Sprint(at) != "[1 2 5 6]" {
		t.Errorf("times %v", at)
	}
}

// The measured numbers of a resumed run come only from the steps after it was resumed, because its plan may be another
// one.
func TestNumbersOfAResumedRunAreOfItsLastPart(t *testing.T) {
	dir, f := folderOf(t, map[string]string{
		"events.jsonl": eventLine(metrics.Begun, 0, 0) + eventLine(metrics.Stopped, 3, 3) +
			eventLine(metrics.Begun, 3, 3600),
		"metrics.jsonl": stepLine(0, 1) + stepLine(1, 2) + stepLine(2, 3) + stepLine(3, 3603),
	})
	add(t, filepath.Join(dir, "metrics.jsonl"), stepLine(4, 3604))
	f.Poll(true)
	// The run is resumed once more, and its first new line belongs to an evaluation.
	add(t, filepath.Join(dir, "events.jsonl"), eventLine(metrics.Begun, 5, 7200))
	f.Poll(true)
	add(t, filepath.Join(dir, "metrics.jsonl"), `{"time":"2026-03-01T14:00:01Z","step":5,"evaluation_loss":1}`+"\n")
	add(t, filepath.Join(dir, "metrics.jsonl"), stepLine(5, 7203)+stepLine(6, 7204))
	f.Poll(true)
	var steps []int
	for _, took := range f.recent {
		steps = append(steps, took.Step)
	}
	if fmt.Sprint(steps) != "[5 6]" {
		t.Errorf("numbers over the steps %v", steps)
	}
}

// The state of a run follows from its files and the time.
func TestStates(t *testing.T) {
	begun0, step := eventLine(metrics.Begun, 0, 0), stepLine(0, 1)
	for name, c := range map[string]struct {
		events, metrics string
		more            map[string]string
		afterS          float64
		want            string
	}{
		"nothing":  {want: waits},
		"begun":    {events: begun0, afterS: 5, want: begun},
		"trains":   {events: begun0, metrics: step, afterS: 20, want: goesOn},
		"silent":   {events: begun0, metrics: step, afterS: 100, want: silent},
		"finished": {events: begun0 + eventLine(metrics.Finished, 1, 2), metrics: step, afterS: 1e6, want: finished},
		"stopped":  {events: begun0 + eventLine(metrics.Stopped, 1, 2), metrics: step, want: stopped},
		"failed":   {events: begun0 + eventLine(metrics.Failed, 1, 2), metrics: step, want: failed},
		"goes on after that": {events: begun0 + eventLine(metrics.Failed, 1, 2) + eventLine(metrics.Begun, 1, 3),
			metrics: step, want: goesOn},
		"failed, as another process says": {events: begun0, metrics: step,
			more: map[string]string{"error.json": `{"cause":"lost"}`}, want: failed},
		"of before there were events": {metrics: step, more: map[string]string{"timeline.json.gz": "no timeline"},
			afterS: 1e6, want: finished},
	} {
		files := map[string]string{}
		for name, text := range map[string]string{"events.jsonl": c.events, "metrics.jsonl": c.metrics} {
			if text != "" {
				files[name] = text
			}
		}
		for name, text := range c.more {
			files[name] = text
		}
		_, f := folderOf(t, files)
		if got := f.state(noon.Add(time.Duration(c.afterS * float64(time.Second)))); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// After a run's newest step, the page shows that the run evaluates or ends, until the evaluation or the next step has
// been read.
func TestARunSaysWhatItDoesInsteadOfSteps(t *testing.T) {
	const evaluated = `{"time":"2026-01-02T12:00:04Z","step":2,"evaluation_loss":1.5}` + "\n"
	for name, c := range map[string]struct{ metrics, want string }{
		"a step":              {stepLine(0, 1), ""},
		"the second":          {stepLine(0, 1) + stepLine(1, 2), evaluates},
		"that is evaluated":   {stepLine(0, 1) + stepLine(1, 2) + evaluated, ""},
		"the third":           {stepLine(0, 1) + stepLine(1, 2) + evaluated + stepLine(2, 5), ""},
		"the fifth, the last": {stepLine(0, 1) + stepLine(1, 2) + evaluated + stepLine(4, 6), ends},
	} {
		_, f := folderOf(t, map[string]string{"events.jsonl": eventLine(metrics.Begun, 0, 0), "metrics.jsonl": c.metrics,
			"job.yaml": "eval_every: 2\nsteps: 5\nrate_scale: \"\"\n"})
		if got := f.summary("", "", noon.Add(7*time.Second)); got.State != goesOn || got.Due != c.want {
			t.Errorf("%s: %s, %q; want %q", name, got.State, got.Due, c.want)
		}
		if _, is := f.about.settings["rate_scale"]; is {
			t.Error("a setting that is empty is shown")
		}
	}
}

// The page has a sentence about each invalid file, and shows the other files.
func TestBadFilesAreSaid(t *testing.T) {
	bad := map[string]string{"job.yaml": "{a: [", "plan.json": "{", "profile.json": "[1]", "predicted.json.gz": "x",
		"timeline.json.gz": "\x1f\x8bx", "error.json": "no", "events.jsonl": "no\n"}
	bad["metrics.jsonl"] = stepLine(0, 1)
	dir, f := folderOf(t, bad)
	for name := range bad {
		if name != "metrics.jsonl" && !strings.Contains(f.wrong[name], name) {
			t.Errorf("%s: %q", name, f.wrong[name])
		}
	}
	if f.now.Step != 1 {
		t.Errorf("%+v", f.now)
	}
	one := tracetest.TwoStages().Timeline()
	if err := one.WriteFile(filepath.Join(dir, "predicted.json.gz")); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "job.yaml"), "steps: 40\nrate: {base: 0.5, kind: cosine}\nsplit: [a, b]\n"+
		"seed: 18446744073709551615")
	if f.Poll(true); f.wrong["predicted.json.gz"] != "" || f.wrong["job.yaml"] != "" || f.drawn[0].json == nil {
		t.Errorf("mended: %v", f.wrong)
	}
	want := map[string]string{"steps": "40", "rate.base": "0.5", "rate.kind": "cosine", "split": `["a","b"]`,
		"seed": "18446744073709551615"}
	if fmt.Sprint(f.about.settings) != fmt.Sprint(want) || f.about.total != 40 {
		t.Errorf("settings %v", f.about.settings)
	}
	write(t, filepath.Join(dir, "job.yaml"), "train: {steps: 40, rate: {base: 0.5, kind: cosine}}\n"+
		"plan: {split: [a, b]}\ndata: {seed: 18446744073709551615, tokenizer: \"\"}\n")
	if f.Poll(true); fmt.Sprint(f.about.settings) != fmt.Sprint(want) || f.about.total != 40 {
		t.Errorf("settings of a nested file %v", f.about.settings)
	}
	for name := range bad { // as when a run begins again in the folder
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if f.Poll(true); len(f.wrong) != 0 || f.drawn[0].json != nil || f.about.settings != nil {
		t.Errorf("empty: %v", f.wrong)
	}
}

// The newest step is shown. While a run goes on, the newest step is the traced one, even if an earlier part has left a
// Timeline.
func TestTheNewestStepIsShown(t *testing.T) {
	dir, f := folderOf(t, map[string]string{"metrics.jsonl": stepLine(0, 1)})
	one, whole := tracetest.TwoStages().Timeline(), tracetest.FourStages().Timeline()
	for i, c := range []struct {
		file    string
		workers int
	}{{"step.json.gz", one.Workers}, {"timeline.json.gz", whole.Workers}, {"step.json.gz", one.Workers}} {
		tl := one
		if c.file == "timeline.json.gz" {
			tl = whole
		}
		path := filepath.Join(dir, c.file)
		if err := tl.WriteFile(path); err != nil {
			t.Fatal(err)
		}
		if at := noon.Add(time.Duration(i) * time.Hour); os.Chtimes(path, at, at) != nil {
			t.Fatal(path)
		}
		f.Poll(true)
		var drawn struct{ Measured []struct{ Workers int } }
		if err := json.Unmarshal(f.drawn[1].json, &drawn); err != nil || len(drawn.Measured) == 0 ||
			drawn.Measured[0].Workers != c.workers {
			t.Errorf("behind %d files: %v, %+v", i+1, err, drawn)
		}
	}
}

// A Follower's memory does not grow with the number of steps.
func TestAFollowerIsBounded(t *testing.T) {
	var b strings.Builder
	for i := range 30_000 {
		b.WriteString(stepLine(i, float64(i)))
		if i%2 == 0 {
			fmt.Fprintf(&b, `{"time":"2026-03-01T12:00:00Z","step":%d,"evaluation_loss":1,"evaluation_accuracy":0.5}`+"\n",
				i+1)
		}
	}
	_, f := folderOf(t, map[string]string{"metrics.jsonl": b.String(),
		"events.jsonl": strings.Repeat(eventLine(metrics.Slower, 1, 1), 5000)})
	if f.now.Step != 30_000 || len(f.steps.parts) > mostSteps || len(f.evaluations.parts) > mostEvaluations ||
		len(f.recent) > 2*report.Recent || len(f.happened) > mostEvents || cap(f.happened) > 4*mostEvents {
		t.Errorf("%d parts of steps, %d of evaluations, %d recent, %d events", len(f.steps.parts), len(f.evaluations.parts),
			len(f.recent), len(f.happened))
	}
	if d, _, _ := f.since(has{}, false, false); len(d.Steps)+len(d.Held) > 600_000 {
		t.Errorf("a page is sent %d bytes", len(d.Steps)+len(d.Held))
	}
}

// FuzzFollow: a follower reads any contents of a folder's files, and its output is valid JSON.
func FuzzFollow(f *testing.F) {
	f.Add([]byte(stepLine(0, 1)+stepLine(1, 2)), []byte(eventLine(metrics.Begun, 0, 0)), []byte("steps: 3"))
	f.Add([]byte(`{"time":"x","step":1e400,"loss":null}`+"\n"), []byte(`{"kind":"failed"}`+"\n"), []byte("{a: {b: {}}}"))
	f.Add([]byte(`{"time":"0001-01-01T00:00:00Z","step":9223372036854775807,"loss":1e308,"step_s":-1e308}`+"\n"),
		[]byte(`{"kind":"begun","time":"9999-12-31T23:59:59Z"}`+"\n"), []byte("steps: x"))
	f.Fuzz(func(t *testing.T, lines, events, job []byte) {
		dir := t.TempDir()
		for name, text := range map[string][]byte{"metrics.jsonl": lines, "events.jsonl": events, "job.yaml": job} {
			write(t, filepath.Join(dir, name), string(text))
		}
		x := NewFollower(dir)
		for range 2 {
			x.Poll(true)
			d, _, _ := x.since(has{}, false, true)
			if _, err := json.Marshal([]any{d, x.detail("a"), x.summary("a", "b", noon)}); err != nil {
				t.Fatal(err)
			}
		}
	})
}
