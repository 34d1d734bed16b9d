package live

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/internal/browser"
	"github.com/millrace-ml/millrace/internal/browsertest"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/report"
	"github.com/millrace-ml/millrace/report/folder"
	"github.com/millrace-ml/millrace/report/metrics"
	"github.com/millrace-ml/millrace/trace/tracetest"
)

// trained writes the files of a training of 120 steps on two workers, in a folder below `root`. Unless `ended` is set,
// the folder has no Timeline. The last step ends now.
func trained(t *testing.T, root, name string, ended bool) string {
	t.Helper()
	dir := filepath.Join(root, name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	p := tracetest.TwoStages()
	simulated := p.Timeline()
	p.Source, p.Steps, p.Noise, p.Seed = "run", 120, .1, uint64(len(name))
	measured := p.Timeline()
	n := report.NumbersOf(simulated, 0, 32)
	pl := &plan.Plan{Version: plan.Version, Model: "gpt", Replication: "split", MicroBatch: 4, MicroBatches: 8,
		Schedule: "1f1b", Weights: "sync", Planner: "balance", Why: []string{"it takes the least"},
		Stages: []plan.Stage{{LastLayer: 7, Devices: []int{0}, Warmup: 2}, {FirstLayer: 8, LastLayer: 15, Devices: []int{1},
			Warmup: 1}},
		Predicted: &plan.Predicted{StepS: n.StepS, SamplesPerSecond: 32 / n.StepS, Bubble: n.Bubble, BusyS: n.BusyS,
			MemoryBytes: n.PeakBytes, PeakActivations: n.PeakActivations}}
	err := errors.Join((&folder.Start{}).Write(dir), pl.Write(filepath.Join(dir, folder.PlanName)),
		simulated.WriteFile(filepath.Join(dir, folder.PredictedName)))
	if err != nil {
		t.Fatal(err)
	}
	var lines strings.Builder
	out := json.NewEncoder(&lines)
	began := time.Now().Add(-time.Duration(measured.Steps[119].EndS * float64(time.Second)))
	busy, took := measured.StepBusy(), measured.Took(0)
	for k, s := range measured.Steps {
		v := metrics.StepValues{Time: began.Add(time.Duration(s.EndS * float64(time.Second))), Step: k + 1, StepS: took[k],
			Loss: 3 / float64(k+1), LearningRate: 1e-3, SamplesPerSecond: 32 / took[k], BusyS: busy[k], Bubble: .2,
			Samples: int64(32 * (k + 1)), PeakBytes: measured.PeakBytes, LiveBytes: measured.PeakBytes, GradientNorm: 1}
		if err := out.Encode(v); err != nil {
			t.Fatal(err)
		}
		if k%40 == 39 {
			if err := out.Encode(metrics.EvaluationValues{Time: v.Time, Step: k + 1, Loss: 4 / float64(k),
				Accuracy: new(.5), Correct: 5, Samples: 10}); err != nil {
				t.Fatal(err)
			}
		}
	}
	write(t, filepath.Join(dir, folder.MetricsName), lines.String())
	// Only a run whose name has one letter gives these settings, with their default values. The other runs leave them
	// out.
	given := map[bool]string{true: "clip: 0\neval_every: 0\neval_rows: 0\n"}[len(name) == 1]
	write(t, filepath.Join(dir, folder.JobName), "model: gpt\nsteps: 120\nseed: "+fmt.Sprint(len(name))+"\n"+given)
	events := metrics.Event{Time: began, Kind: metrics.Begun, Text: "begins with step 1 of 120"}
	text, _ := json.Marshal(events)
	if ended {
		if err := measured.WriteFile(filepath.Join(dir, folder.TimelineName)); err != nil {
			t.Fatal(err)
		}
		events = metrics.Event{Time: time.Now(), Step: 120, Kind: metrics.Finished, Text: "all 120 steps are done"}
		last, _ := json.Marshal(events)
		text = append(append(text, '\n'), last...)
	}
	write(t, filepath.Join(dir, folder.EventsName), string(text)+"\n")
	return dir
}

// A run that has ended shows the numbers of its report, also in the table of runs. A running run shows the numbers of
// its last steps, by the same formulas.
func TestNumbersAreThoseOfTheReport(t *testing.T) {
	root := t.TempDir()
	for _, ended := range []bool{true, false} {
		dir := trained(t, root, fmt.Sprint("ended-", ended), ended)
		f := NewFollower(dir)
		f.Poll(false)
		whole, err := folder.Read(dir)
		if err != nil {
			t.Fatal(err)
		}
		in := whole.Inputs()
		if !ended {
			if in.Unmeasured == "" || len(in.Took) != 120 {
				t.Errorf("of a run without a Timeline the report says %q and has %d steps", in.Unmeasured, len(in.Took))
			}
			in.Took, in.Skip = in.Took[120-report.Recent:], -1
		}
		want, over, err := report.CompareOver(in)
		if err != nil {
			t.Fatal(err)
		}
		n := f.measured().shown()
		if got, want := fmt.Sprint(n.Cards), fmt.Sprint(report.Cards(want)); got != want {
			t.Errorf("ended %v: the page shows %s and the report %s", ended, got, want)
		}
		if !strings.Contains(n.Over, over) || strings.Contains(n.Over, "so far") == ended {
			t.Errorf("ended %v: %q, and the report says %q", ended, n.Over, over)
		}
		s := f.summary("", "", time.Now())
		for i, got := range []*float64{s.StepS, s.Rate, s.Bubble} {
			if got == nil || *got != *want[i].Measured {
				t.Errorf("ended %v: %s is %v in the table, %v in the report", ended, want[i].Name, got, *want[i].Measured)
			}
		}
		if peak := float64(max(whole.Steps[119].PeakBytes[0], whole.Steps[119].PeakBytes[1])); *s.Peak != peak {
			t.Errorf("ended %v: %v bytes, not %v", ended, *s.Peak, peak)
		}
		if *s.Loss != whole.Steps[119].Loss || *s.Held != whole.Evaluated[2].Loss || *s.Accuracy != .5 {
			t.Errorf("ended %v: loss %v, held-out %v, accuracy %v", ended, *s.Loss, *s.Held, *s.Accuracy)
		}
	}
}

// Every page is accessible on a desktop and a phone, light and dark. The pages show all runs, an ended run, and a
// running one. On a light phone and a dark desktop, a page is audited only if it has kinds of elements that earlier
// pages did not have.
func TestPagesAreReadByAll(t *testing.T) {
	root := t.TempDir()
	ended, goes := trained(t, root, "ended", true), trained(t, root, "goes-on", false)
	_, server := shelfOf(t, root)
	seen := make([]browsertest.Seen, len(browsertest.Views))
	for name, page := range map[string]struct{ at, wait string }{
		"all":     {"/", `document.querySelectorAll(".runs tbody tr").length === 2 && document.querySelector(".layers")`},
		"ended":   {"/#run=" + IDOf(ended), `document.querySelectorAll(".card").length === 6`},
		"goes on": {"/#run=" + IDOf(goes), `document.querySelectorAll(".card").length === 6`},
	} {
		t.Run(name, func(t *testing.T) {
			p := browsertest.Open(t, server.URL+page.at, browsertest.Views[0])
			for i, v := range browsertest.Views {
				if i > 0 {
					p.Again(v)
				}
				p.Wait(page.wait)
				p.Wait(`millraceRedraws.count > 0`)
				if got := strings.Join(p.Texts("#single .means li"), "; "); name != "all" &&
					got != "green within 5 % of the prediction (a bubble: 2 points); amber within 15 % of the prediction "+
						"(a bubble: 5 points); red further off, or a count that differs" {
					t.Errorf("%v: of the colours of differences it says %q", v, got)
				}
				if says := p.Texts("#single .bars-of-memory .says"); name != "all" && (len(says) == 0 ||
					strings.Contains(strings.Join(says, "; "), "now ") != (name == "goes on")) {
					t.Errorf("%v: of memory it says %q", v, says)
				}
				p.Fits()
				if v.Dark == (v.Width < 600) {
					p.Accessible()
				} else {
					seen[i].Accessible(p)
				}
			}
		})
	}
}

// A hundred runs are shown as a table. Some are drawn at first, and any other can be drawn.
func TestAHundredRuns(t *testing.T) {
	root := t.TempDir()
	first := os.DirFS(trained(t, root, "run-000", true))
	for i := 1; i < 100; i++ {
		if err := os.CopyFS(filepath.Join(root, fmt.Sprintf("run-%03d", i)), first); err != nil {
			t.Fatal(err)
		}
	}
	_, server := shelfOf(t, root)
	p := browsertest.Open(t, server.URL, browser.View{Width: 400})
	p.Wait(`document.querySelectorAll(".runs tbody tr .state.finished").length === 100 && millraceRedraws.count > 0`)
	p.Fits()
	p.Eval(`document.querySelector("input[type=search]").focus()`, nil)
	p.Wait(`document.activeElement.type === "search"`)
	p.Press("n", "-", "0", "9") // paths are searched, and the temporary folder's path has digits
	p.Wait(`document.querySelectorAll(".runs tbody tr").length === 10`)
	p.Press("9")
	p.Wait(`document.querySelectorAll(".runs tbody tr").length === 1`)
	p.Press("Escape", "j", "Space")
	p.Wait(`[...document.querySelectorAll(".legend.of-runs li")].some(e => e.textContent.endsWith("run-099"))`)
}

// The table can be sorted by its column heads, and runs can be chosen by keyboard. The address restores the view.
func TestRunsSideBySide(t *testing.T) {
	root := t.TempDir()
	for _, name := range []string{"a", "bcd", "ef"} {
		trained(t, root, name, name != "ef")
	}
	_, server := shelfOf(t, root)
	p := browsertest.Open(t, server.URL, browser.View{Width: 1280})
	rows := func(p *browsertest.Page) string { return strings.Join(p.Texts(".runs tbody th a"), " ") }
	p.Wait(`document.querySelectorAll(".runs tbody tr").length === 3 && document.querySelector(".differences")`)
	if got := rows(p); got != "a bcd ef" {
		t.Errorf("by name: %s", got)
	}
	if got := p.Texts(".differences tbody tr"); fmt.Sprint(got) != "[seed132]" {
		t.Errorf("the settings differ in %q", got)
	}
	// All three runs have the same values in seven of nine charts; rates and step times differ.
	p.Wait(`document.querySelector("#overview .chart .same").textContent === "a and bcd lie under ef"`)
	said := p.Texts("#overview .chart .same:not([hidden])")
	if slices.ContainsFunc(said, func(s string) bool { return !strings.HasSuffix(s, "lie under ef") }) || len(said) != 7 {
		t.Errorf("of curves that hide others it says %q", said)
	}
	p.Click(".runs thead th:first-child button")
	if got := rows(p); got != "ef bcd a" {
		t.Errorf("by name, down: %s", got)
	}
	p.Eval("document.activeElement.blur()", nil) // a focused button would take the key
	p.Press("j", "j", "Space", "x", "l")
	p.Wait(`document.querySelectorAll(".plans .of").length === 2`)
	address := p.Text("location.href")
	if !strings.Contains(address, "x=time") || !strings.Contains(address, "sort=-name") ||
		!strings.Contains(address, "log=1") || strings.Contains(address, "bcd") {
		t.Errorf("the address is %s", address)
	}
	again := browsertest.Open(t, address, browser.View{Width: 1280})
	again.Wait(`document.querySelectorAll(".plans .of").length === 2`)
	if got := rows(again); got != "ef bcd a" || again.Text(`document.querySelector(".choice [aria-pressed=true]").
		textContent`) != "time" {
		t.Errorf("again: %s", got)
	}
	again.Press("k", "Enter")
	again.Wait(`document.querySelector("h1").textContent.endsWith("/ef") && document.querySelector(".card")`)
	again.Press("Escape")
	again.Wait(`!document.getElementById("overview").hidden`)
}

// A run that has ended is drawn completely each time the page draws it again. This holds if it was switched off in a
// chart of several runs, and if another run was shown alone in the meantime. When the server ends, the page says so.
func TestARunIsDrawnAgain(t *testing.T) {
	root := t.TempDir()
	const atFirst = 6
	for k := range atFirst + 3 {
		trained(t, root, fmt.Sprint("run-", k), true)
	}
	s, server := shelfOf(t, root)
	p := browsertest.Open(t, server.URL, browser.View{Width: 1280})
	const drawn = `[...document.querySelectorAll(".runs tbody input")].filter(b => b.checked).length`
	p.Wait(fmt.Sprintf(`%s === %d && document.querySelectorAll(".plans .of").length === %[2]d`, drawn, atFirst))
	box := `document.querySelector(".runs tbody input:checked")`
	for range 2 {
		p.Eval(box+`.dataset.me = 1, document.querySelector("[data-me]").click(), 0`, nil)
		p.Wait(fmt.Sprintf(`document.querySelectorAll(".plans .of").length === %d`, atFirst-1))
		p.Eval(`document.querySelector("[data-me]").click(), 0`, nil)
		p.Wait(fmt.Sprintf(`document.querySelectorAll(".plans .of").length === %d`, atFirst))
	}
	for _, name := range []string{"run-0", "run-1", "run-0"} {
		p.Eval(fmt.Sprintf(`location.hash = "#run=%s", 0`, IDOf(filepath.Join(root, name))), nil)
		p.Wait(fmt.Sprintf(`document.querySelector("h1").textContent.endsWith("/%s") &&
			document.querySelectorAll(".card").length === 6 && document.querySelector("#single .layers")`, name))
	}
	s.Close()
	p.Wait(`document.getElementById("link").textContent === "the server has ended"`)
}

// The page describes the instruction under the pointer. It keeps its step when a newer one comes, until the reader asks
// for the newer one.
func TestAStepIsLookedAt(t *testing.T) {
	root := t.TempDir()
	dir := trained(t, root, "run", false)
	_, server := shelfOf(t, root)
	step := tracetest.TwoStages()
	step.Source, step.Steps, step.Noise = "run", 1, .1
	wrote := func(seed uint64) {
		t.Helper()
		step.Seed = seed
		if err := step.Timeline().WriteFile(filepath.Join(dir, folder.StepName)); err != nil {
			t.Fatal(err)
		}
	}
	wrote(1)
	p := browsertest.Open(t, server.URL+"/#run="+IDOf(dir), browser.View{Width: 1280})
	p.Wait(`document.getElementById("timeline")?.clientHeight > 150`)
	began := time.Now() // charts above the timeline may still move it away from the pointer
	const tip = `!document.querySelector(".tip").hidden && /worker 0/.test(document.querySelector(".tip").textContent)`
	for shown := false; !shown; {
		p.Hover("#timeline", .4, .3)
		if p.Eval(tip, &shown); time.Since(began) > time.Minute {
			t.Fatal("no box is described at the pointer")
		}
	}
	p.Eval(`document.getElementById("timeline").focus()`, nil)
	p.Press("ArrowRight", "ArrowDown")
	p.Wait(`/worker 1/.test(document.querySelector(".details").textContent)`)
	told := p.Text(`document.querySelector(".details").textContent`)
	wrote(2)
	p.Wait(`[...document.querySelectorAll("#single .tools button")].some(b => !b.hidden && /^Go on/.test(b.textContent))`)
	if now := p.Text(`document.querySelector(".details").textContent`); now != told {
		t.Errorf("what is told of a box that is looked at becomes %q", now)
	}
	p.Press("Escape")
	p.Wait(`/^Point at a box/.test(document.querySelector(".details").textContent)`)
}

// All columns of the table of runs fit a desktop screen, however long the runs' names are. On a phone the table can
// be scrolled to the last one.
func TestNoColumnOfTheRunsIsCut(t *testing.T) {
	root := t.TempDir()
	trained(t, root, "a-run-with-a-name-that-says-all-of-its-settings-at-great-length", true)
	long := trained(t, root, "b", false)
	write(t, filepath.Join(long, folder.JobName), "steps: 14000\n")
	line, err := json.Marshal(metrics.EvaluationValues{Time: time.Now(), Step: 120, Loss: 12.3456, Accuracy: new(.98765),
		Reported: map[string]*float64{"accuracy": new(.98765)}})
	if err != nil {
		t.Fatal(err)
	}
	step, err := json.Marshal(metrics.StepValues{Time: time.Now(), Step: 14000, Loss: 12.3456, StepS: 1, Samples: 4e6})
	if err != nil {
		t.Fatal(err)
	}
	add(t, filepath.Join(long, folder.MetricsName), string(line)+"\n"+string(step)+"\n")
	_, server := shelfOf(t, root)
	for _, width := range []int{1280, 400} {
		p := browsertest.Open(t, server.URL, browser.View{Width: width})
		p.Wait(`/14,000 . 14,000/.test(document.querySelector(".runs tbody").textContent) &&
			[...document.querySelectorAll(".runs thead th")].some(h => h.textContent === "accuracy (model's)")`)
		p.Fits()
		var box struct{ Room, Table, Last, Right float64 }
		p.Eval(`(() => { const box = document.querySelector(".runs").parentElement
			const room = box.clientWidth, table = box.scrollWidth
			box.scrollLeft = table
			const heads = [...document.querySelectorAll(".runs thead th")].filter(h => !h.hidden)
			return { Room: room, Table: table, Last: heads.at(-1).getBoundingClientRect().right,
				Right: box.getBoundingClientRect().right } })()`, &box)
		if width == 1280 && box.Table > box.Room {
			t.Errorf("the table needs %v pixels, and has %v", box.Table, box.Room)
		}
		if box.Last > box.Right+.5 {
			t.Errorf("at %d the last column ends at %v, behind %v where its box does", width, box.Last, box.Right)
		}
	}
}

// A value that a model reports at an evaluation is a sortable column of the table, and a tile of its run.
func TestWhatAModelSaysOfItself(t *testing.T) {
	root := t.TempDir()
	for i, name := range []string{"a", "b", "c"} {
		dir := trained(t, root, name, true)
		if name == "c" {
			continue
		}
		line, err := json.Marshal(metrics.EvaluationValues{Time: time.Now(), Step: 119, Loss: 1,
			Reported: map[string]*float64{"recall": new(.25 * float64(2-i)), "none": nil, "accuracy": new(347. / 359)}})
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, folder.MetricsName)
		was, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		write(t, path, string(was)+string(line)+"\n")
	}
	_, server := shelfOf(t, root)
	p := browsertest.Open(t, server.URL, browser.View{Width: 1280})
	p.Wait(`document.querySelectorAll(".runs tbody tr").length === 3`)
	const column = `[...document.querySelectorAll(".runs thead th")].filter(h => h.textContent === "recall" && !h.hidden)`
	p.Wait(column + `.length === 1`)
	cells := func() string {
		return p.Text(`[...document.querySelectorAll(".runs tbody tr")].map(r => r.querySelector("a").textContent + " " +
			r.cells[` + column + `[0].cellIndex].textContent).join(", ")`)
	}
	if got := cells(); got != "a 0.5000, b 0.2500, c –" {
		t.Errorf("the column says %s", got)
	}
	if got := p.Text(`String([...document.querySelectorAll(".runs thead th")].filter(h => !h.hidden &&
		h.textContent === "none").length)`); got != "0" {
		t.Error("a column has no number at all")
	}
	p.Eval(column+`[0].querySelector("button").click()`, nil)
	p.Eval(column+`[0].querySelector("button").click()`, nil)
	p.Wait(`document.querySelector(".runs tbody a").textContent === "b"`)
	if got := cells(); got != "b 0.2500, a 0.5000, c –" {
		t.Errorf("sorted, the column says %s", got)
	}
	one := browsertest.Open(t, server.URL+"/#run="+IDOf(filepath.Join(root, "a")), browser.View{Width: 1280})
	one.Wait(`[...document.querySelectorAll(".card")].some(c =>
		/^accuracy/.test(c.textContent) && /96\.66 %/.test(c.textContent))`)
	one.Wait(`[...document.querySelectorAll(".card")].some(c => /recall/.test(c.textContent) && /0\.5/.test(c.textContent))`)
}
