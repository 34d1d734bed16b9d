package report

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/internal/browser"
	"github.com/millrace-ml/millrace/internal/browsertest"
	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/report/pagetest"
	"github.com/millrace-ml/millrace/trace"
	"github.com/millrace-ml/millrace/trace/tracetest"
)

// write writes a page to a file, which a browser can open.
func write(t *testing.T, page string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "page.html")
	if err := os.WriteFile(path, []byte(page), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// overlapping returns a run whose steps overlap, with the last three recorded.
func overlapping() Inputs {
	in := sample(tracetest.TwoStages())
	tl := in.Measured
	for k, busy := range tl.StepBusy() {
		tl.Computed = append(tl.Computed, trace.Computed{Step: tl.Steps[k].Step, BusyS: busy})
	}
	var kept []trace.Event
	for _, e := range tl.Events {
		if e.Step >= 117 {
			kept = append(kept, e)
		}
	}
	tl.Events = kept
	for k := range tl.Steps { // each step's first forward began 0.1 s earlier
		tl.Steps[k].StartS -= .1
	}
	return in
}

// pages returns the inputs of reports of several kinds, whose pages must be consistent.
func pages() map[string]Inputs {
	stream := sample(tracetest.TwoStages())
	stream.Plan.Weights, stream.Plan.Schedule = "stash", "1f1b-rr"
	for _, tl := range []*trace.Timeline{stream.Simulated, stream.Measured} {
		tl.Stream = true
	}
	return map[string]Inputs{"two stages": sample(tracetest.TwoStages()), "four stages": sample(tracetest.FourStages()),
		"overlapping": overlapping(), "stream": stream,
		"measured alone": {Measured: sample(tracetest.TwoStages()).Measured, Batch: 16}}
}

// A page's tiles, tables and drawings agree, and its numbers satisfy the formula in its footer.
func TestPagesAgreeWithThemselves(t *testing.T) {
	for name, in := range pages() {
		t.Run(name, func(t *testing.T) {
			samples := in.Batch
			if in.Plan != nil {
				samples = in.Plan.StepSamples()
			}
			pagetest.Agree(t, browsertest.Open(t, write(t, drawPage(t, in)), browser.View{Width: 1280}), in.Measured, samples)
		})
	}
}

// The page's scripts format numbers as Go does, including ties.
func TestScriptsWriteNumbersAsGoDoes(t *testing.T) {
	script, err := web.ReadFile("web/format.js")
	if err != nil {
		t.Fatal(err)
	}
	values := []float64{0, 83200, 1 << 20, 1023.5, 2.125e6, 999.5, 999499, 99.95e9, 8.125e9, 250, 1e12, .5, 1.5, 2.5}
	r := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		values = append(values, math.Round(math.Exp(30*r.Float64())), float64(r.IntN(1<<24))/8)
	}
	list, err := json.Marshal(values)
	if err != nil {
		t.Fatal(err)
	}
	p := browsertest.Open(t, write(t, "<!doctype html><title>x</title>"), browser.View{Width: 400})
	var got [][5]string
	p.Eval(fmt.Sprintf(`(() => { %s; return %s.map((x) => [duration(x), byteText(x), percent(x / 1e4), loss(x / 7e9), loss(-x / 7)]) })()`,
		exportWord.ReplaceAllString(string(script), ""), list), &got)
	wrong := 0
	for i, x := range values {
		want := [5]string{terminal.Duration(x / 1e9), terminal.Bytes(x), signed(100*(x/1e4)) + " %", terminal.Loss(x / 7e9),
			terminal.Loss(-x / 7)}
		if got[i] != want && wrong < 10 {
			wrong++
			t.Errorf("%v: the page writes %q, Go %q", x, got[i], want)
		}
	}
}

// In a step next to the drawn one, a box has the number of its micro-batch within that step. If steps have one
// micro-batch, as in a stream, a box has the micro-batch's number in the run.
func TestBoxesOfOtherStepsHaveTheirMicroBatch(t *testing.T) {
	script, err := web.ReadFile("web/model.js")
	if err != nil {
		t.Fatal(err)
	}
	p := browsertest.Open(t, write(t, "<!doctype html><title>x</title>"), browser.View{Width: 400})
	for micros, want := range map[int]string{4: "[3 0 3 0]", 1: "[-1 0 3 4]"} {
		var got []int
		p.Eval(fmt.Sprintf(`(() => { %s; const all = [0, 0, 0, 0]; return stepModel({ workers: 1, micros: %d,
			gaps: { worker: [] }, events: { text: ["0W3", "0F4", "0F7", "0F8"], worker: all, compute: [1, 1, 1, 1],
			start: [0, 1, 2, 3], length: [1, 1, 1, 1], bytes: all, shade: all, number: [-1, 0, 3, 4], near: [-1, 0, 0, 1] } },
			"measured").boxes.map((b) => b.within) })()`, exportWord.ReplaceAllString(string(script), ""), micros), &got)
		if fmt.Sprint(got) != want {
			t.Errorf("steps of %d: %v, want %s", micros, got, want)
		}
	}
}

// A printed page is light, and is laid out for the width of A4.
func TestThePageIsPrinted(t *testing.T) {
	p := browsertest.Open(t, write(t, drawPage(t, sample(tracetest.FourStages()))),
		browser.View{Width: 1280, Dark: true})
	pdf := p.PDF()
	if n := len(regexp.MustCompile(`/Type\s*/Page\b[^s]`).FindAll(pdf, -1)); n < 2 || n > 6 {
		t.Errorf("%d pages", n)
	}
	artifact(t, "printed.pdf", pdf)
	var got struct{ Before, During, After string }
	p.Eval(`(() => {
		const look = () => document.documentElement.dataset.theme + " " + document.getElementById("timeline").width
		const before = look()
		dispatchEvent(new Event("beforeprint"))
		const during = look()
		dispatchEvent(new Event("afterprint"))
		return { Before: before, During: during, After: look() } })()`, &got)
	if !strings.HasPrefix(got.Before, "dark 1") || got.During == got.Before || got.After != got.Before ||
		!regexp.MustCompile(`^light [56]\d\d$`).MatchString(got.During) {
		t.Errorf("%+v", got)
	}
}

// The page can be used by keyboard, at every size and in both themes, and axe-core finds no fault.
func TestThePageInEveryView(t *testing.T) {
	browsertest.Each(t, write(t, drawPage(t, sample(tracetest.FourStages()))), func(t *testing.T, p *browsertest.Page,
		v browser.View) {
		p.Fits()
		p.Accessible()
		p.Eval("document.getElementById('timeline').focus()", nil)
		p.Press("ArrowRight", "ArrowRight")
		first := p.Text("document.getElementById('details').textContent")
		p.Press("ArrowDown")
		below := p.Text("document.getElementById('details').textContent")
		if !strings.Contains(first, "micro-batch 1 of step ") || !strings.Contains(first, "worker 0") ||
			!strings.Contains(below, "worker 1") {
			t.Errorf("keys lead to %q and %q", first, below)
		}
		p.Press("Escape")
		if text := p.Text("document.getElementById('details').textContent"); strings.Contains(text, "worker 1") {
			t.Errorf("Escape leaves %q", text)
		}
		p.Accessible()
	})
}

// docs/report.md names the tiles and the curves that the page has.
func TestDocsNameTheTilesAndCurves(t *testing.T) {
	text, err := os.ReadFile("../docs/report.md")
	if err != nil {
		t.Fatal(err)
	}
	doc := strings.Join(strings.Fields(string(text)), " ")
	_, tiles, _ := strings.Cut(doc, "**Tiles**:")
	tiles, curves, _ := strings.Cut(tiles, "- **One step**")
	_, curves, _ = strings.Cut(curves, "**Curves** of ")
	curves, _, _ = strings.Cut(curves, "##")
	p := browsertest.Open(t, write(t, drawPage(t, sample(tracetest.TwoStages()))), browser.View{Width: 1280})
	var names []string
	for _, name := range p.Texts(".card .name") {
		name, _, _ = strings.Cut(strings.ToLower(name), " (") // removes the worker
		if names = append(names, name); !strings.Contains(tiles, name) {
			t.Errorf("of the tile %q the page's description says nothing: %s", name, tiles)
		}
	}
	if got := strings.Join(names, ", "); got != "step time, samples per second, bubble, highest peak memory, loss, "+
		"evaluation loss, evaluation accuracy" {
		t.Errorf("the tiles are %s", got)
	}
	titles := p.Texts("#learning figcaption > span:first-child")
	for _, title := range titles {
		if !strings.Contains(curves, strings.ToLower(title)) {
			t.Errorf("of the curve %q the page's description says nothing: %s", title, curves)
		}
	}
	if len(titles) != 3 {
		t.Errorf("the curves are %q", titles)
	}
}
