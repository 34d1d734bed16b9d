package report

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/trace"
	"github.com/millrace-ml/millrace/trace/tracetest"
)

func drawPage(t *testing.T, in Inputs) string {
	t.Helper()
	var b bytes.Buffer
	if err := HTML(&b, in); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func dataOf(t *testing.T, page string) pageData {
	t.Helper()
	_, rest, found := strings.Cut(page, `<script type="application/json" id="data">`)
	text, _, ended := strings.Cut(rest, "</script>")
	if !found || !ended {
		t.Fatal("the page has no data")
	}
	var d pageData
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		t.Fatalf("the page's data: %v", err)
	}
	return d
}

func TestPageHoldsBothSteps(t *testing.T) {
	in := sample(tracetest.TwoStages())
	page := drawPage(t, in)
	artifact(t, "two.html", []byte(page))
	artifact(t, "four.html", []byte(drawPage(t, sample(tracetest.FourStages()))))
	d := dataOf(t, page)
	if len(d.Predicted) != 1 || len(d.Measured) != 4 {
		t.Fatalf("%d predicted and %d measured steps, want 1 and 4: median, fastest, slowest, first", len(d.Predicted),
			len(d.Measured))
	}
	boxes := 0
	for _, e := range in.Simulated.Events {
		if e.EndS > e.StartS {
			boxes++
		}
	}
	p := d.Predicted[0]
	if len(p.Events.Text) != boxes {
		t.Errorf("%d boxes, want %d", len(p.Events.Text), boxes)
	}
	if want := nanoseconds(in.Simulated.Steps[0].EndS); p.EndNS != want {
		t.Errorf("the step ends at %d ns, want %d", p.EndNS, want)
	}
	// The first gap of worker 1 waits for the first forward of stage 0.
	k := slices.Index(p.Gaps.Worker, 1)
	if b := p.Gaps.Blocker[k]; b < 0 || p.Events.Text[b] != "0F0" || p.Events.Text[p.Gaps.Before[k]] != "1F0" {
		t.Errorf("the first gap of worker 1 is %q", p.Gaps.Why[k])
	}
	if len(d.Losses.X) != 120 || len(d.Accuracies.X) != 12 {
		t.Errorf("%d losses and %d accuracies, want 120 and 12", len(d.Losses.X), len(d.Accuracies.X))
	}
	for _, want := range []string{"<h1>runs/gpt</h1>", "Predicted against measured", "peak memory",
		"micro-batches in flight",
		"embedding … block.7", "torch 1.13.1"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
}

// TestPageFetchesNothing: the page contains no URL and no import. Its content policy would forbid them, too.
func TestPageFetchesNothing(t *testing.T) {
	page := drawPage(t, sample(tracetest.TwoStages()))
	for _, banned := range []string{"http://", "https://", "//cdn", " src=", "@import", "import {", "import(", "fetch(",
		"XMLHttpRequest", "url("} {
		if strings.Contains(page, banned) {
			t.Errorf("the page contains %q", banned)
		}
	}
	if n := strings.Count(page, "href="); n != 2 {
		t.Errorf("the page has %d links, want 2: an empty icon and one inside the page", n)
	}
	if !strings.Contains(page, "default-src 'none'") {
		t.Error("the page has no content policy")
	}
}

func TestPageEscapesNames(t *testing.T) {
	const evil = `</script><script>alert(1)</script><!--<img src=x onerror=alert(2)>`
	in := sample(tracetest.TwoStages())
	in.Title = evil
	in.Facts = []Fact{{evil, evil}}
	in.Plan.Schedule, in.Plan.Why = evil, []string{evil}
	in.LayerNames[0] = evil
	in.Simulated.Events[0].Instruction = evil
	in.Simulated.Events[3].BlockedBy = evil
	page := drawPage(t, in)
	for _, banned := range []string{"<script>alert", "<img", "<!--"} {
		if strings.Contains(page, banned) {
			t.Errorf("a name put %q into the page", banned)
		}
	}
	if n := strings.Count(page, "</script>"); n != 2 {
		t.Errorf("%d script elements end, want 2", n)
	}
	if d := dataOf(t, page); !slices.Contains(d.Predicted[0].Events.Text, evil) {
		t.Error("the name did not come through as data")
	}
}

// TestModulesShareNoName: the modules are put into one script, so no two may use the same name at top level.
func TestModulesShareNoName(t *testing.T) {
	declared := regexp.MustCompile(`(?m)^(?:export )?(?:function|const|let|class) (?:\[?)([A-Za-z_$][\w$]*)`)
	imported := regexp.MustCompile(`(?m)^import \{ (.*) \} from "\./(.*)";`)
	owner := map[string]string{}
	exports := map[string]bool{}
	for _, name := range modules {
		src, err := web.ReadFile("web/" + name)
		if err != nil {
			t.Fatal(err)
		}
		text := string(src)
		if strings.Contains(text, "</script") || strings.Contains(text, "<!--") {
			t.Errorf("%s would end the script element", name)
		}
		for _, m := range imported.FindAllStringSubmatch(text, -1) {
			for used := range strings.SplitSeq(m[1], ", ") {
				if !exports[m[2]+" "+used] {
					t.Errorf("%s imports %s from %s, which does not export it or comes later", name, used, m[2])
				}
			}
		}
		for _, m := range declared.FindAllStringSubmatch(text, -1) {
			if was, taken := owner[m[1]]; taken {
				t.Errorf("%s and %s both declare %s", was, name, m[1])
			}
			owner[m[1]] = name
			if strings.HasPrefix(m[0], "export ") {
				exports[name+" "+m[1]] = true
			}
		}
	}
	script, err := bundle()
	if err != nil {
		t.Fatal(err)
	}
	if regexp.MustCompile(`(?m)^(import|export) `).MatchString(script) {
		t.Error("the bundle still has imports or exports")
	}
}

// TestEveryColourIsDefined: the custom properties for the colours of kinds and causes exist.
func TestEveryColourIsDefined(t *testing.T) {
	style, err := web.ReadFile("web/style.css")
	if err != nil {
		t.Fatal(err)
	}
	light, dark, _ := strings.Cut(string(style), `:root[data-theme="dark"]`)
	d := pageDataOf(Inputs{})
	for _, k := range d.Kinds {
		if k.Name == "RF" || k.Name == "RB" {
			continue // receives are drawn as part of the sends
		}
		if !strings.Contains(light, "--"+k.Name+":") || !strings.Contains(dark, "--"+k.Name+":") {
			t.Errorf("kind %s has no colour in one of the themes", k.Name)
		}
		if k.Label == k.Name || !strings.Contains(dark, ".k-"+k.Name) {
			t.Errorf("kind %s, %q, has no name in words or no place in the legend", k.Name, k.Label)
		}
	}
	for _, c := range d.Causes {
		if !strings.Contains(light, "--"+string(c.Name)+":") || !strings.Contains(dark, "--"+string(c.Name)+":") ||
			!strings.Contains(dark, ".c-"+string(c.Name)) {
			t.Errorf("cause %s has no colour in one of the themes", c.Name)
		}
	}
}

func TestPageOfParts(t *testing.T) {
	whole := sample(tracetest.TwoStages())
	for name, in := range map[string]Inputs{
		"plan":      {Plan: whole.Plan},
		"simulated": {Simulated: whole.Simulated},
		"measured":  {Measured: whole.Measured},
		"losses": {Losses: whole.Losses, Evaluations: []trace.Evaluation{{Step: 3, Loss: 1}}, Measured: nil,
			Plan: whole.Plan},
		"no events": {Measured: &trace.Timeline{Version: 1, Workers: 3}},
		"no steps":  {Measured: &trace.Timeline{Version: 1, Workers: 2, Events: whole.Simulated.Events}},
	} {
		page := drawPage(t, in)
		dataOf(t, page)
		if strings.Contains(page, "NaN") {
			t.Errorf("%s: the page says NaN", name)
		}
	}
	if err := HTML(&bytes.Buffer{}, Inputs{}); err == nil || !strings.Contains(err.Error(), "nothing to draw") {
		t.Errorf("nothing to draw: error %v", err)
	}
	if err := HTML(&bytes.Buffer{}, Inputs{Measured: &trace.Timeline{Version: 1, Workers: 1,
		Events: []trace.Event{{Worker: 4}}}}); err == nil || !strings.Contains(err.Error(), "worker is 4") {
		t.Errorf("a bad Timeline: error %v", err)
	}
}

func TestPageOfAHundredThousandBoxes(t *testing.T) {
	tl := many(100_000)
	var b bytes.Buffer
	if err := HTML(&b, Inputs{Simulated: tl, Measured: tl}); err != nil {
		t.Fatal(err)
	}
	artifact(t, "many.html", b.Bytes())
	if b.Len() > 60<<20 {
		t.Errorf("the page takes %d MB", b.Len()>>20)
	}
	t.Logf("%d boxes, %d MB", len(tl.Events), b.Len()>>20)
}
