package benchmarks

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/lab/record"
)

// BENCHMARKS.md is what the command makes from the results in the repository.
func TestThePageIsOfTheResults(t *testing.T) {
	want, err := Page("../..")
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../../BENCHMARKS.md")
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Error("BENCHMARKS.md is not of lab/results; make it again with: make benchmarks")
	}
	if lines := strings.Count(want, "\n"); lines > 150 {
		t.Errorf("the page has %d lines; it has 150 at most", lines)
	}
	if strings.Contains(want, none) {
		t.Errorf("something on the page is %q:\n%s", none, want)
	}
}

// Without results the page has its questions, but no answer has a number, and each target is listed as not measured.
func TestNothingIsMadeUp(t *testing.T) {
	page, err := Page(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(page, mark) {
		t.Errorf("something is carried over from nowhere:\n%s", page)
	}
	if n := strings.Count(page, "## "); n != 10 {
		t.Errorf("%d headings, want 8 questions and 2 more", n)
	}
	questions, rest, _ := strings.Cut(page, "## What was not reached")
	for _, line := range strings.Split(questions, "\n") {
		cells := strings.Split(line, "|")
		if len(cells) < 3 || strings.HasPrefix(line, "|---") || !strings.Contains(line, none) {
			continue
		}
		for _, cell := range cells[2:] {
			if regexp.MustCompile(`\d`).MatchString(cell) {
				t.Errorf("a number without a result: %s", line)
			}
		}
	}
	if decimals := regexp.MustCompile(`\d\.\d`).FindAllString(questions, -1); len(decimals) > 0 {
		t.Errorf("numbers without results: %q", decimals)
	}
	if n := strings.Count(questions, none); n < 40 {
		t.Errorf("%d times %q", n, none)
	}
	if n := strings.Count(rest, "| "+none+" |"); n != len(targets) {
		t.Errorf("%d of %d targets were not measured", n, len(targets))
	}
}

// copied copies the repository's results to a new folder, with changes.
func copied(t *testing.T, change map[string]func(map[string]any)) string {
	t.Helper()
	dir := t.TempDir()
	to := filepath.Join(dir, Folder)
	if err := os.CopyFS(to, os.DirFS("../results")); err != nil {
		t.Fatal(err)
	}
	for name, how := range change {
		path := filepath.Join(to, name)
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var v map[string]any
		if err := json.Unmarshal(text, &v); err != nil {
			t.Fatal(err)
		}
		how(v)
		if text, err = json.Marshal(v); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// A number that does not follow from its single measurements is refused, with the file's name.
func TestAWrongNumberIsRefused(t *testing.T) {
	at := func(v any, path ...any) map[string]any {
		for _, p := range path {
			switch p := p.(type) {
			case string:
				v = v.(map[string]any)[p]
			case int:
				v = v.([]any)[p]
			}
		}
		return v.(map[string]any)
	}
	for _, c := range []struct {
		file, want string
		spoil      func(v map[string]any)
	}{
		{"processes.json", "train gpt, 2 workers: speed is 1; the median of its 20",
			func(v map[string]any) { at(v, "rows", 0)["speed"] = 1 }},
		{"imported-gpt.json", "has the interval 1 to", func(v map[string]any) { at(v, "modules", 0, "speeds", 0)["lo"] = 1 }},
		{"p2p.json", "median_ratio is 9", func(v map[string]any) { at(v, "messages", 1)["median_ratio"] = 9 }},
		{"slow.json", "ratio of", func(v map[string]any) { at(v, "cells", 0, "runs", 1)["ratio"] = 9 }},
		{"live.json", "more is 0", func(v map[string]any) { v["more"] = 0 }},
		{"live-page.json", "median_ms is 1", func(v map[string]any) { v["median_ms"] = 1 }},
		{"splits-gpt.json", "off_worst is 0", func(v map[string]any) { at(v, "splits", 0)["off_worst"] = 0 }},
		{"peers-ddp.json", "no single measurements", func(v map[string]any) { delete(v, "carried_over") }},
		{"prediction-gpt.json", "rows has no plan", func(v map[string]any) { delete(v, "carried_over") }},
		{"orders-gpt.json", "memory_off is null", func(v map[string]any) { delete(v, "carried_over") }},
		{"curves-learn.json", "sync: 0 epochs, reached by 5", func(v map[string]any) { delete(v, "carried_over") }},
		{"tuner-gpt.json", "step_median has no single", func(v map[string]any) { delete(v, "carried_over") }},
		{"quick.json", `unknown field "guess"`, func(v map[string]any) { v["guess"] = 1 }},
		{"ranks.json", `bench is "rank"`, func(v map[string]any) { v["bench"] = "rank" }},
	} {
		_, err := Page(copied(t, map[string]func(map[string]any){c.file: c.spoil}))
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), c.file) {
			t.Errorf("%s: %v, want %q", c.file, err, c.want)
		}
	}
}

// A new measurement replaces a number that was carried over, and the page shows the new number without a mark. If two
// files have the same rival, the page uses the file with the later date.
func TestANewResultTakesThePlace(t *testing.T) {
	dir := copied(t, map[string]func(map[string]any){"peers-ddp.json": func(v map[string]any) {
		delete(v, "carried_over")
		v["machine"].(map[string]any)["date"] = "2030-01-02"
		choice := v["rivals"].([]any)[0].(map[string]any)["choice"].(map[string]any)
		choice["ratios"] = []float64{2.25, 2, 2.5, 2.25, 2.125, 2.375}
		choice["median_ratio"], choice["lo"], choice["hi"] = 2.25, 2, 2.5
	}})
	text, err := os.ReadFile(filepath.Join("../results", "peers-ddp.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, Folder, "peers-older.json"), text, 0o644); err != nil {
		t.Fatal(err)
	}
	page, err := Page(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"(`ddp`) | 2.250 (2.000 to 2.500) | - |", "to 2030-01-02"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q:\n%s", want, page)
		}
	}
}

// A target that is reached is not listed as missed.
func TestTargets(t *testing.T) {
	dir := copied(t, map[string]func(map[string]any){
		"speedup-gpt.json":    func(v map[string]any) { v["of_bound"] = .96 },
		"prediction-gpt.json": func(v map[string]any) { v["summary"].(map[string]any)["step_worst"] = .049 },
		"imported-gpt.json":   func(v map[string]any) { v["modules"] = []any{} },
	})
	page, err := Page(dir)
	if err != nil {
		t.Fatal(err)
	}
	_, missed, _ := strings.Cut(page, "## What was not reached")
	for name, want := range map[string]bool{"| gpt over one worker": false, "| convnet over one worker": true,
		"splits of gpt": false, "splits of convnet": true,
		"| imported gpt over 1F1B by hand | at least 1.10 | not measured |": true} {
		if strings.Contains(missed, name) != want {
			t.Errorf("%s: listed is %v, want %v:\n%s", name, !want, want, missed)
		}
	}
}

func TestCommandsAreWrapped(t *testing.T) {
	got := command("bin/millrace-lab bench x -o lab/results/x.json --data " + strings.Repeat("d", 90) + " --only y")
	want := []string{`    $ bin/millrace-lab bench x \`, "        --data " + strings.Repeat("d", 90) + " --only y"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// Files that verbs have written with -o are read, checked and shown.
func TestWhatVerbsWriteIsShown(t *testing.T) {
	page, err := Page("testdata/tiny")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(page, mark) {
		t.Error("what was measured has the mark of what was carried over")
	}
	all, err := read(filepath.Join("testdata/tiny", Folder))
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, f := range all {
		kinds = append(kinds, f.head.Bench)
		if f.head.Carried() || f.head.TookS == 0 || f.head.Machine.Cores == 0 ||
			!strings.Contains(f.head.Command, " bench "+f.head.Bench) {
			t.Errorf("%s: %+v", f.name, f.head)
		}
	}
	slices.Sort(kinds)
	want := []string{"curves", "live", "memory", "orders", "prediction", "speedup", "tuner"}
	if !slices.Equal(kinds, want) {
		t.Errorf("results of %q, want %q", kinds, want)
	}
}

// Any file is either refused, or the page can be made from it.
func FuzzPage(f *testing.F) {
	paths, err := filepath.Glob("testdata/tiny/lab/results/*.json")
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range []string{"peers-pipe", "prediction-gpt", "quick", "live-page", "orders-wire", "curves-time"} {
		paths = append(paths, "../results/"+name+".json")
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(strings.TrimSuffix(filepath.Base(path), ".json"), text)
	}
	f.Fuzz(func(t *testing.T, name string, text []byte) {
		if !regexp.MustCompile(`^[a-z0-9-]+$`).MatchString(name) {
			return
		}
		dir := t.TempDir()
		path := filepath.Join(dir, Folder, name+".json")
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, text, 0o644); err != nil {
			t.Fatal(err)
		}
		page, err := Page(dir)
		if kind, headless := record.BenchOf(path); err == nil && (headless != nil || kind != "" && readers[kind] == nil) {
			t.Errorf("a file of bench %q makes\n%s", kind, page)
		}
	})
}

// TestBoundsSayWhatIsLoose: the page counts the cases that have a small version, by what is loose in it. If no case has
// one, the page says so.
func TestBoundsSayWhatIsLoose(t *testing.T) {
	for _, k := range []struct {
		loose []string
		want  string
	}{
		{[]string{"proof", "plan", "proof", "undecided", "both", "proof"},
			"small cases show 3 loose by proof, 1 by plan, 1 by both, 1 undecided."},
		{nil, "none was shrunken."},
	} {
		dir := copied(t, map[string]func(map[string]any){"bound.json": func(v map[string]any) {
			for i, one := range v["cases"].([]any) {
				c := one.(map[string]any)
				if delete(c, "shrunken"); i < len(k.loose) {
					c["shrunken"] = map[string]any{"step_s": 1.5, "bound_s": 1, "gap": .5, "best_s": 1.5, "floor_s": 1.5,
						"loose": k.loose[i]}
				}
			}
		}})
		page, err := Page(dir)
		if err != nil {
			t.Fatal(err)
		}
		page = strings.Join(strings.Fields(page), " ")
		if !strings.Contains(page, k.want) {
			t.Errorf("small cases are loose by %v, and the page does not say %q", k.loose, k.want)
		}
	}
}
