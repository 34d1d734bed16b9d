package report

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/internal/browser"
	"github.com/millrace-ml/millrace/internal/browsertest"
	"github.com/millrace-ml/millrace/trace"
	"github.com/millrace-ml/millrace/trace/tracetest"
)

// write puts a page into a file, for a browser.
func write(t *testing.T, page string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "page.html")
	if err := os.WriteFile(path, []byte(page), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// overlapping is a run whose steps begin while the ones before them end, of which the last three are kept.
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

// pages are reports of every sort whose numbers a page must agree with.
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

// valueOf reads a number with its unit, as pages write them, in seconds, bytes, or as it stands.
func valueOf(t *testing.T, text string) float64 {
	t.Helper()
	digits, unit, _ := strings.Cut(text, " ")
	x, err := strconv.ParseFloat(strings.ReplaceAll(digits, ",", ""), 64)
	times, known := map[string]float64{"s": 1, "ms": 1e-3, "µs": 1e-6, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20,
		"%": .01, "": 1, "points": .01}[unit]
	if err != nil || !known {
		t.Fatalf("%q is no number", text)
	}
	return x * times
}

var median = regexp.MustCompile(`^Measured: step (\d+)(?: \(([^)]*)\))?, ([\d.]+ \S+)`)

// A page's tiles, tables and drawings say the same of a run, and what its footer says holds of what it shows.
func TestPagesAgreeWithThemselves(t *testing.T) {
	for name, in := range pages() {
		t.Run(name, func(t *testing.T) {
			p := browsertest.Open(t, write(t, drawPage(t, in)), browser.View{Width: 1280})
			var rows map[string][2]string // what is predicted and measured
			p.Eval(`Object.fromEntries([...document.querySelectorAll(".numbers tbody tr")].map(r =>
				[r.children[0].textContent, [r.children[1].textContent, r.children[2].textContent]]))`, &rows)
			tiles := 0
			for _, c := range p.Texts(".card") {
				for row, said := range rows {
					if rest, is := strings.CutPrefix(strings.ToLower(c), row+" "); is {
						tiles++
						want := said[1] + " predicted " + said[0]
						if said[0] == "–" {
							want = said[1] + " measured"
						}
						if !strings.HasPrefix(rest, want) {
							t.Errorf("the tile says %q and the table %q", c, said)
						}
					}
				}
			}
			if tiles < 2 {
				t.Errorf("%d tiles have a row", tiles)
			}
			if footer := p.Text("document.querySelector('footer').textContent"); !strings.Contains(footer,
				"Bubble is 1 − sum of computing ÷ (workers × step)") {
				t.Errorf("the footer says %q", footer)
			}
			for side := range 2 {
				step := rows["step time"][side]
				if step == "–" {
					continue
				}
				busy, workers := 0.0, 0
				for ; rows[fmt.Sprintf("worker %d busy", workers)][side] != ""; workers++ {
					busy += valueOf(t, rows[fmt.Sprintf("worker %d busy", workers)][side])
				}
				bubble := valueOf(t, rows["bubble"][side])
				if by := 1 - busy/(float64(workers)*valueOf(t, step)); math.Abs(by-bubble) > .01 || workers < 2 {
					t.Errorf("side %d: a bubble of %v; by the footer %v of %d workers", side, bubble, by, workers)
				}
				if got := rows["samples per second"]; got[side] != "" {
					batch := valueOf(t, got[side]) * valueOf(t, step)
					if whole := math.Round(batch); math.Abs(batch-whole) > .01*whole || in.Plan != nil &&
						int(whole) != in.Plan.StepSamples() {
						t.Errorf("side %d: %s samples a second of steps of %s are batches of %v", side, got[side], step, batch)
					}
				}
			}
			theDrawnStep(t, p, in, rows["step time"][1])
			memoryReachesItsPeak(t, p, rows)
		})
	}
}

// theDrawnStep holds what is said of the step that is drawn against the step itself, and the numbers of its boxes
// against those of the predicted one.
func theDrawnStep(t *testing.T, p *browsertest.Page, in Inputs, tile string) {
	t.Helper()
	said := p.Texts("#shown li")
	m := median.FindStringSubmatch(said[len(said)-1])
	if m == nil {
		t.Fatalf("of the step is said %q", said)
	}
	step, _ := strconv.Atoi(m[1])
	took := map[int]float64{}
	tl := in.Measured
	for k, s := range tl.Steps {
		if took[s.Step] = s.EndS - s.StartS; k > 0 && s.Step == tl.Steps[k-1].Step+1 {
			took[s.Step] = s.EndS - tl.Steps[k-1].EndS
		}
	}
	if math.Abs(took[step]-valueOf(t, m[3])) > .006*took[step] {
		t.Errorf("%q; the step took %v s", m[0], took[step])
	}
	if off := math.Abs(took[step] - valueOf(t, tile)); m[2] == "median" && m[3] != tile {
		t.Errorf("the median step took %s, and the tile says %s", m[3], tile)
	} else if off > 0 {
		for _, e := range tl.Events {
			if e.Step >= 10 && math.Abs(took[e.Step]-valueOf(t, tile)) < off-.006*valueOf(t, tile) {
				t.Fatalf("step %d took %v s, step %d %v s; the tile says %s", step, took[step], e.Step, took[e.Step], tile)
			}
		}
	}
	var d pageData
	p.Eval("JSON.parse(document.getElementById('data').textContent)", &d)
	micros := func(panels []panel) string {
		numbers := map[string]bool{}
		for i, text := range panels[0].Events.Text {
			f, _ := trace.ParseFields(text)
			if e := panels[0].Events; e.Near[i] == 0 && f.Kind == "F" {
				numbers[fmt.Sprint(f.Stage, "F", e.Number[i])] = true
			}
		}
		if !numbers["0 F 0"] && !numbers["0F0"] {
			t.Errorf("no first micro-batch among %v", numbers)
		}
		return fmt.Sprint(numbers)
	}
	if measured := micros(d.Measured); len(d.Predicted) > 0 && micros(d.Predicted) != measured {
		t.Errorf("micro-batches predicted %v, measured %v", micros(d.Predicted), measured)
	}
}

// memoryReachesItsPeak holds the captions of memory against the table, and what is drawn against both.
func memoryReachesItsPeak(t *testing.T, p *browsertest.Page, rows map[string][2]string) {
	t.Helper()
	captions := p.Texts("#memory figcaption")
	if len(captions) < 2 {
		t.Fatalf("captions %q", captions)
	}
	var d pageData
	p.Eval("JSON.parse(document.getElementById('data').textContent)", &d)
	for w, caption := range captions {
		row := rows[fmt.Sprintf("worker %d peak memory", w)]
		for side, name := range []string{"predicted", "measured"} {
			if row[side] == "–" {
				continue
			}
			if !strings.Contains(caption, name+" "+row[side]) {
				t.Errorf("the caption says %q and the table %q", caption, row)
			}
			if got := UnitBytes.Format(float64(d.PeakBytes[side][w])); got != row[side] {
				t.Errorf("drawn is a peak of %s, and the table says %s", got, row[side])
			}
		}
	}
}

// The page's scripts write numbers as Go does, ties and all.
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
	var got [][3]string
	p.Eval(fmt.Sprintf(`(() => { %s; return %s.map((x) => [duration(x), byteText(x), percent(x / 1e4)]) })()`,
		exportWord.ReplaceAllString(string(script), ""), list), &got)
	wrong := 0
	for i, x := range values {
		want := [3]string{trace.Seconds(x / 1e9), Bytes(x), signed(100*(x/1e4)) + " %"}
		if got[i] != want && wrong < 10 {
			wrong++
			t.Errorf("%v: the page writes %q, Go %q", x, got[i], want)
		}
	}
}

// A printed page is light, and everything on it is drawn for the width of A4.
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

// The page is used by keyboard, at every size and in both themes, without a fault, and axe-core has nothing against it.
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
