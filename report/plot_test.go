package report

import (
	"bytes"
	"encoding/xml"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/trace"
	"pgregory.net/rapid"
)

func curvesSample() *Lines {
	target := 2.25
	line := func(at ...float64) (points []SeriesPoint) {
		for i, y := range at {
			points = append(points, SeriesPoint{X: float64(i+1) / 4, Y: y, Lo: y - .1, Hi: y + .2})
		}
		return points
	}
	return &Lines{Title: "Test loss", XLabel: "epochs", Target: &target, Series: []Series{
		{Name: "sync", Like: -1, Points: line(4, 3, 2.5, 2.2)},
		{Name: "a <b> & c", Like: -1, Points: line(4.2, 3.4, 2.7, 2.3)},
		{Name: "sync, predicted", Like: 0, Dashed: true, Points: line(3.9, 3.1, 2.4, 2.1)},
		{Name: "measured", Like: 0, Dots: true, Points: line(4, 3, 2.4, 2.2)},
	}}
}

func factorsSample() *Lines {
	return &Lines{Title: "Times as fast", XLabel: "all-reduce over compute", Log: true, Series: []Series{
		{Name: "2 hosts", Like: -1, Marked: true,
			Points: []SeriesPoint{{.4, 1, .9, 1.1}, {4, 3, 2.8, 3.3}, {40, 25, 20, 31}}},
		{Name: "published", Like: -1, Dots: true, Points: []SeriesPoint{{2.2, 5.3, 5.3, 5.3}}},
	}}
}

func barsSample() *Bars {
	return &Bars{Title: "Peak memory", Unit: UnitBytes, Names: []string{"rival", "AvgPipe"}, Groups: []BarGroup{
		{"DAPPLE (1F1B)", []Bar{{Value: 3 << 20, Lo: 2 << 20, Hi: 4 << 20}, {Value: 2 << 20, Note: "(2 of 3)"}}},
		{"a name that is too long for its place", []Bar{{Value: 1 << 20}, {None: "none fits"}}},
	}}
}

// TestPlots compares plots with testdata/*.svg. After -rewrite, check the changes in a browser.
func TestPlots(t *testing.T) {
	for name, p := range map[string]Plot{"lines": curvesSample(), "factors": factorsSample(), "bars": barsSample()} {
		var got bytes.Buffer
		if err := p.SVG(&got); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join("testdata", name+".svg")
		if *rewrite {
			if err := os.WriteFile(path, got.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got.Bytes(), want) {
			t.Errorf("%s is drawn otherwise than %s; look at it with -rewrite", name, path)
		}
		wellFormed(t, got.Bytes())
	}
}

// wellFormed checks that a drawing is XML, with coordinates that are numbers inside its frame.
func wellFormed(t testing.TB, svg []byte) {
	t.Helper()
	if bytes.Contains(svg, []byte("NaN")) || bytes.Contains(svg, []byte("Inf")) {
		t.Errorf("a coordinate is no number:\n%s", svg)
	}
	d := xml.NewDecoder(bytes.NewReader(svg))
	for {
		_, err := d.Token()
		if err == io.EOF {
			return
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, svg)
		}
	}
}

// The grid lines and the legend of a plot stay within its frame for any values.
func TestPlotsStayInside(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Float64Range(-1e9, 1e9), 1, 8)
		var s []Series
		for range rapid.IntRange(1, 20).Draw(t, "series") {
			one := Series{Name: "s", Like: -1}
			for i, y := range values.Draw(t, "values") {
				one.Points = append(one.Points, SeriesPoint{X: float64(i), Y: y, Lo: y, Hi: y})
			}
			s = append(s, one)
		}
		unit := rapid.SampledFrom([]Unit{"", UnitBytes, UnitPart}).Draw(t, "unit")
		if unit == UnitBytes {
			for i := range s {
				for k := range s[i].Points {
					p := &s[i].Points[k]
					p.Y = math.Abs(p.Y)
					p.Lo, p.Hi = p.Y, p.Y
				}
			}
		}
		v, err := (&Lines{Title: "t", Series: s, Unit: unit}).view()
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range v.Across {
			if a.Y1 < plotTop-1e-6 || a.Y1 > plotTop+linesHigh+1e-6 {
				t.Fatalf("a grid line at %g", a.Y1)
			}
		}
		for _, k := range v.Legend {
			if k.X > plotWidth || k.Y > v.Height {
				t.Fatalf("a key at %g, %g of %g", k.X, k.Y, v.Height)
			}
		}
	})
}

// TestNamesOfBarsHaveRoom: a name of up to 32 letters is not shortened, and its bars begin behind it.
func TestNamesOfBarsHaveRoom(t *testing.T) {
	v, err := (&Bars{Title: "t", Groups: []BarGroup{{"equations, as printed", []Bar{{Value: 1}}}}}).view()
	if err != nil {
		t.Fatal(err)
	}
	if name := v.Labels[0]; name.Text != "equations, as printed" || name.X < 6*21 || v.Bars[0].X < name.X ||
		v.Bars[0].X+v.Bars[0].W > plotWidth-barValues+1e-6 {
		t.Errorf("%+v, %+v", name, v.Bars[0])
	}
}

func TestTicksAreRound(t *testing.T) {
	for _, c := range []struct {
		lo, hi float64
		n      int
		want   []float64
	}{
		{0, 4, 4, []float64{0, 1, 2, 3, 4}},
		{0.13, 0.93, 4, []float64{0.2, 0.4, 0.6, 0.8}},
		{2.02, 2.68, 4, []float64{2.2, 2.4, 2.6}},
		{0.05, 2, 6, []float64{0.5, 1, 1.5, 2}},
	} {
		got, _ := ticks(c.lo, c.hi, c.n)
		if !slices.EqualFunc(got, c.want, func(a, b float64) bool { return math.Abs(a-b) < 1e-9 }) {
			t.Errorf("%g to %g: %v; want %v", c.lo, c.hi, got, c.want)
		}
	}
}

// TestAxesFarFromZero: ticks returns even if adjacent ticks round to the same number.
func TestAxesFarFromZero(t *testing.T) {
	if at, _ := ticks(1e17, 1e17+16, 4); len(at) > 5 {
		t.Errorf("%v", at)
	}
	late := &trace.Timeline{Version: trace.Version, Workers: 1, Events: []trace.Event{{
		Lane: trace.Compute, Kind: "F", Instruction: "0F0", ReadyS: 1e16, StartS: 1e16, EndS: 1e16 + 64,
	}}}
	v, err := (&Grid{Timeline: late}).view()
	if err != nil || len(v.Ticks) > mostTicks {
		t.Errorf("%d ticks, %v", len(v.Ticks), err)
	}
}

func TestPlotsRefuse(t *testing.T) {
	for name, p := range map[string]Plot{
		"no points": &Lines{Title: "t"},
		"no factor": &Lines{Title: "t", Log: true, Series: []Series{{Name: "s",
			Points: []SeriesPoint{{X: 0, Y: 1, Lo: 1, Hi: 1}}}}},
		"no number":   &Lines{Title: "t", Series: []Series{{Name: "s", Points: []SeriesPoint{{X: 1, Y: math.NaN()}}}}},
		"no bars":     &Bars{Title: "t"},
		"below 0":     &Bars{Title: "t", Groups: []BarGroup{{"g", []Bar{{Value: -1}}}}},
		"no number 2": &Bars{Title: "t", Groups: []BarGroup{{"g", []Bar{{Value: math.Inf(1)}}}}},
	} {
		if err := p.SVG(io.Discard); err == nil || !strings.HasPrefix(err.Error(), "report: plot \"t\"") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A study is one page, which loads nothing. Names in it are escaped, and its plots follow the page's switch between
// light and dark colours.
func TestStudy(t *testing.T) {
	s := &Study{
		Title: "a <script> & more", Facts: []Fact{{"model", "gpt"}}, Links: []StudyLink{{"bars.svg", "plot"}},
		Sections: []StudySection{{
			Title: "Times", Note: "a note", Table: &Table{Head: []string{"method", " step"}, Rows: [][]string{{"a|b", "1 ms"}}},
			Plots: []Plot{curvesSample(), barsSample()}, Notes: []string{"beneath"},
		}},
	}
	var page, text bytes.Buffer
	if err := s.HTML(&page); err != nil {
		t.Fatal(err)
	}
	html := page.String()
	for _, want := range []string{"a &lt;script&gt; &amp; more", `<td class="n">1 ms</td>`, `href="bars.svg"`,
		`:root[data-theme="dark"] .plot`,
		"startTheme();", "default-src 'none'", "Drawn by millrace"} {
		if !strings.Contains(html, want) {
			t.Errorf("the page lacks %s", want)
		}
	}
	for _, bad := range []string{"http://", "https://", "<link rel=\"stylesheet", "export function", "ZgotmplZ"} {
		if strings.Contains(strings.ReplaceAll(html, "http://www.w3.org/2000/svg", ""), bad) {
			t.Errorf("the page has %s", bad)
		}
	}
	if n := strings.Count(html, "<svg "); n != 2 {
		t.Errorf("%d plots; want 2", n)
	}
	if err := s.Markdown(&text); err != nil {
		t.Fatal(err)
	}
	if want := "Times. a note\n\n| method | step |\n|---|---:|\n| a\\|b | 1 ms |\n\n- beneath\n"; text.String() != want {
		t.Errorf("%q; want %q", text.String(), want)
	}
}
