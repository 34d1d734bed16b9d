package report

import (
	"bytes"
	"slices"
	"testing"

	"github.com/millrace-ml/millrace/internal/browser"
	"github.com/millrace-ml/millrace/internal/browsertest"
	"github.com/millrace-ml/millrace/trace"
	"github.com/millrace-ml/millrace/trace/tracetest"
)

// The page of a schedule fits a desktop and a phone. Every computation is visible, and the legend names every kind.
func TestAScheduleFitsEveryScreen(t *testing.T) {
	p := tracetest.FourStages()
	p.MicroBatches = 24
	tl := p.Timeline()
	stages := &Table{Head: []string{" stage", " activations sent"}}
	stages.Add("0", "8")
	var b bytes.Buffer
	g := &Grid{Title: "four", Timeline: tl, Stages: stages, Facts: []Fact{{"step", "3"}}}
	if err := g.HTML(&b); err != nil {
		t.Fatal(err)
	}
	want := map[string]bool{}
	kinds := map[string]bool{}
	for _, e := range tl.Events {
		if e.Lane == trace.Compute && trace.IsBusy(e.Kind) && e.EndS > e.StartS {
			want[e.Instruction], kinds[trace.Plain(e.Kind)] = true, true
		}
	}
	browsertest.Each(t, write(t, b.String()), func(t *testing.T, p *browsertest.Page, v browser.View) {
		p.Fits()
		p.Accessible()
		var seen []struct {
			Says        string
			Left, Right float64
		}
		p.Eval(`[...document.querySelectorAll(".drawing .box")].map(b => [b, b.querySelector("rect").getBoundingClientRect()])
			.filter(([b, r]) => r.width > 0 && b.querySelector("title")).map(([b, r]) => {
				const plot = b.closest("svg.grid-drawing").getBoundingClientRect()
				return { Says: b.querySelector("title").textContent.split(" ")[0], Left: Math.max(r.left, plot.left),
					Right: Math.min(r.right, plot.right) } })`, &seen)
		got := map[string]bool{}
		for _, s := range seen {
			if got[s.Says] = true; s.Left < 0 || s.Right > float64(v.Width) {
				t.Fatalf("%s is drawn from %v to %v", s.Says, s.Left, s.Right)
			}
		}
		if len(got) != len(want) {
			t.Errorf("%d computations are drawn, want %d", len(got), len(want))
		}
		legend := p.Texts(".keys:not(.micros-key) li")
		for kind := range kinds {
			if !slices.Contains(legend, kind) {
				t.Errorf("the legend has %q, and no %q", legend, kind)
			}
		}
		p.Click("#by-micro")
		if first := p.Texts(".micros-key li"); len(first) < 3 || first[0] != "micro-batch 0" {
			t.Errorf("micro-batches %q", first)
		}
	})
}

// The page of a study, with its plots and tables, is checked in every view. Every number of the table is also drawn in
// the plots.
func TestAStudyInEveryView(t *testing.T) {
	table := &Table{Head: []string{"plan", " step"}}
	table.Add("one", UnitSeconds.Format(.0125))
	table.Add("two", UnitSeconds.Format(.25))
	s := &Study{Title: "A study", Sections: []StudySection{{Title: "Steps", Note: "of two plans", Table: table,
		Plots: []Plot{
			&Bars{Title: "A step", Unit: UnitSeconds, Groups: []BarGroup{{Name: "one", Bars: []Bar{{Value: .0125}}},
				{Name: "two", Bars: []Bar{{Value: .25}}}}},
			&Lines{Title: "Loss", XLabel: "steps", Series: []Series{
				{Name: "one", Points: []SeriesPoint{{X: 1, Y: 2}, {X: 2, Y: 1}}, Like: -1}}}}}}}
	var b bytes.Buffer
	if err := s.HTML(&b); err != nil {
		t.Fatal(err)
	}
	browsertest.Each(t, write(t, b.String()), func(t *testing.T, p *browsertest.Page, v browser.View) {
		p.Fits()
		p.Accessible()
		drawn := p.Texts(".plots svg text")
		for _, cell := range p.Texts(".compared td.n") {
			if !slices.Contains(drawn, cell) {
				t.Errorf("the table says %q, the plots %q", cell, drawn)
			}
		}
	})
}
