package report

import (
	"bytes"
	"encoding/xml"
	"io"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/trace"
	"github.com/millrace-ml/millrace/trace/tracetest"
)

// elements counts a drawing's elements by name and class, and refuses malformed XML.
func elements(t *testing.T, svg []byte) map[string]int {
	t.Helper()
	seen := map[string]int{}
	dec := xml.NewDecoder(bytes.NewReader(svg))
	for {
		token, err := dec.Token()
		if err == io.EOF {
			return seen
		}
		if err != nil {
			t.Fatalf("the drawing is no XML: %v", err)
		}
		if e, ok := token.(xml.StartElement); ok {
			seen[e.Name.Local]++
			for _, a := range e.Attr {
				if a.Name.Local == "class" {
					seen[e.Name.Local+"."+strings.Fields(a.Value)[0]]++
				}
			}
		}
	}
}

// A grid has a box for each computation, a row for each worker and the end of each step.
func TestGridDrawsEverything(t *testing.T) {
	p := tracetest.FourStages()
	p.Steps = 3
	tl := p.Timeline()
	g := &Grid{Title: "a < b & \"c\"", Timeline: tl}
	var svg, page bytes.Buffer
	if err := g.SVG(&svg); err != nil {
		t.Fatal(err)
	}
	artifact(t, "grid.svg", svg.Bytes())
	g.Facts, g.Stages = []Fact{{"step", "<1"}}, &Table{Head: []string{"stage", " peak"}, Rows: [][]string{{"0", "4"}}}
	if err := g.HTML(&page); err != nil {
		t.Fatal(err)
	}
	artifact(t, "grid.html", page.Bytes())
	v, err := g.view()
	if err != nil {
		t.Fatal(err)
	}
	seen := elements(t, svg.Bytes())
	boxes := len(computations(tl)) + len(v.Legend) + len(v.Micros)
	if seen["g.box"] != boxes || seen["rect.row"] != tl.Workers || seen["line.step"] != 3 ||
		len(computations(tl)) < 3*4*2 {
		t.Errorf("%v, want %d boxes and %d rows", seen, boxes, tl.Workers)
	}
	for _, bad := range []string{"<script", "http://", "https://", "a < b"} {
		if strings.Contains(strings.ReplaceAll(page.String(), "http://www.w3.org/2000/svg", ""), bad) {
			t.Errorf("the page has %q", bad)
		}
	}
	if !strings.Contains(page.String(), "&lt;1") || !strings.Contains(page.String(), `<td class="n">4</td>`) {
		t.Error("the page lacks its facts or its stages")
	}
}

// Boxes are drawn at the positions of their times, within a hundredth of a unit.
func TestGridIsToScale(t *testing.T) {
	tl := &trace.Timeline{Version: trace.Version, Source: "sim", Workers: 2, Stages: 2, Events: []trace.Event{
		{Worker: 0, Lane: trace.Compute, Instruction: "0F0", Kind: "F", EndS: 2},
		{Worker: 1, Lane: trace.Compute, Instruction: "1F0", Kind: "F", ReadyS: 2, StartS: 2, EndS: 6},
	}}
	v, err := (&Grid{Timeline: tl}).view()
	if err != nil {
		t.Fatal(err)
	}
	same := func(a, b float64) bool { return math.Abs(a-b) < 0.01 }
	if a, b := v.Boxes[0], v.Boxes[1]; !same(a.X, v.PlotX) || !same(b.X, a.X+a.W) || !same(b.W, 2*a.W) ||
		!same(b.X+b.W, v.PlotX+v.PlotW) {
		t.Errorf("boxes at %v + %v and %v + %v of %v + %v", a.X, a.W, b.X, b.W, v.PlotX, v.PlotW)
	}
}

func TestGridRefusals(t *testing.T) {
	for what, g := range map[string]*Grid{
		"no Timeline":    {},
		"no computation": {Timeline: &trace.Timeline{Version: trace.Version, Source: "sim", Workers: 1, Stages: 1}},
		"30000":          {Timeline: many(3 * maxBoxes)},
	} {
		if err := g.SVG(io.Discard); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("got %v, want it to say %q", err, what)
		}
	}
}

// TestShadesTellAWorkersStagesApart: a shade means one pipeline, one direction or one chunk, and means the same on
// every worker.
func TestShadesTellAWorkersStagesApart(t *testing.T) {
	computed := func(worker int, text string) trace.Event {
		f, _ := trace.ParseFields(text)
		return trace.Event{Worker: worker, Lane: trace.Compute, Instruction: text, Kind: f.Kind, EndS: 1}
	}
	for name, c := range map[string]struct {
		events []trace.Event
		same   [2]trace.Event // two events with the same shade
		legend []string
	}{
		"one stage each": {[]trace.Event{computed(0, "0F0"), computed(1, "1F0")},
			[2]trace.Event{computed(0, "0F0"), computed(1, "1F0")}, nil},
		"two directions": {[]trace.Event{computed(0, "1F1@r1"), computed(0, "0F0"), computed(1, "1F0"),
			computed(1, "0F1@r1")},
			[2]trace.Event{computed(0, "1F1@r1"), computed(1, "0F1@r1")}, []string{"first direction", "second direction"}},
		"pipelines": {[]trace.Event{computed(0, "p1/0F0"), computed(0, "0F0"), computed(1, "1F0"), computed(1, "p1/1F0")},
			[2]trace.Event{computed(0, "p1/0F0"), computed(1, "p1/1F0")}, []string{"pipeline 0", "pipeline 1"}},
		"pipelines and their reference": {[]trace.Event{computed(0, "p1/0U0"), computed(0, "0F0"), computed(0, "0U0"),
			computed(1, "1F0"), computed(1, "p1/1U0")},
			[2]trace.Event{computed(0, "p1/0U0"), computed(1, "p1/1U0")}, []string{"pipeline 0", "reference (pipeline 1)"}},
		"chunks": {[]trace.Event{computed(0, "2F0"), computed(0, "0F0"), computed(1, "1F0"), computed(1, "3F0")},
			[2]trace.Event{computed(0, "2F0"), computed(1, "3F0")},
			[]string{"first chunk of a worker", "second chunk of a worker"}},
	} {
		held := stagesOf(c.events, 2)
		var legend []string
		for _, k := range held.legend() {
			legend = append(legend, k.Label)
		}
		if !slices.Equal(legend, c.legend) {
			t.Errorf("%s: the legend says %q, want %q", name, legend, c.legend)
		}
		shade := func(e trace.Event) int {
			f, _ := trace.ParseFields(e.Instruction)
			return held.shade(e.Worker, f)
		}
		if a, b := shade(c.same[0]), shade(c.same[1]); a != b || (len(c.legend) > 0) != (a == 1) {
			t.Errorf("%s: %s and %s have shades %d and %d", name, c.same[0].Instruction, c.same[1].Instruction, a, b)
		}
	}
}
