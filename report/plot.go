package report

import (
	_ "embed" // style and templates of a plot
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"strconv"

	"github.com/millrace-ml/millrace/internal/terminal"
)

//go:embed web/plot.html
var plotTemplates string

// Colours of a plot on a light and on a dark page: --c0 to --c7 are those of the series.
const (
	plotLight = `--ground: #ffffff; --grid: #e6eaf0; --axis: #aab3c0; --text: #19202b; --muted: #566172; ` +
		`--c0: #2f6fd0; --c1: #d98a14; --c2: #14867a; --c3: #7f4fcb; ` +
		`--c4: #c2487f; --c5: #4a9ab8; --c6: #8a6d4b; --c7: #6a7687;`
	plotDark = `--ground: #161a22; --grid: #262c38; --axis: #4b5566; --text: #e7eaf0; --muted: #9ba6b6; ` +
		`--c0: #5b93f0; --c1: #e9a53c; --c2: #2fb3a3; --c3: #a984ee; ` +
		`--c4: #e0709f; --c5: #6fbcd8; --c6: #b3936b; --c7: #97a3b5;`
	// plotStyle follows the reader's colour scheme. The switch of a page overrides that scheme by data-theme at the
	// root element.
	plotStyle = `.plot { ` + plotLight + ` }
@media (prefers-color-scheme: dark) { .plot { ` + plotDark + ` } }
:root[data-theme="light"] .plot { ` + plotLight + ` }
:root[data-theme="dark"] .plot { ` + plotDark + ` }
.plot { font: 11px system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif; ` +
		`font-variant-numeric: tabular-nums; background: var(--ground); }
.plot text { fill: var(--muted); }
.plot .name { fill: var(--text); font-size: 13px; font-weight: 600; }
.plot .label { fill: var(--text); }
.plot .grid { stroke: var(--grid); stroke-width: 1; }
.plot .target { stroke: var(--axis); stroke-width: 1.2; stroke-dasharray: 4 3; }
.plot .line { fill: none; stroke-width: 1.8; stroke-linejoin: round; }
.plot .band { fill-opacity: .13; stroke: none; }
.plot .whisker { stroke: var(--text); stroke-width: 1; opacity: .7; }
.plot .c0 { --c: var(--c0); } .plot .c1 { --c: var(--c1); } .plot .c2 { --c: var(--c2); } .plot .c3 { --c: var(--c3); }
.plot .c4 { --c: var(--c4); } .plot .c5 { --c: var(--c5); } .plot .c6 { --c: var(--c6); } .plot .c7 { --c: var(--c7); }
.plot .line { stroke: var(--c); } .plot .band, .plot .bar, .plot .dot { fill: var(--c); }
.plot .d1 { stroke-dasharray: 6 3; } .plot .d2 { stroke-dasharray: 2 2.5; } .plot .d3 { stroke-dasharray: 8 3 2 3; }`
)

// Sizes of a plot, in units of the drawing: narrow enough to be read on a phone.
const (
	plotWidth, plotLeft, plotRight = 440.0, 52.0, 10.0
	plotTop, linesHigh             = 30.0, 190.0
	colours                        = 8
)

// Plot is a drawing in one SVG file.
type Plot interface {
	// SVG writes the drawing as a file that needs no other file. It follows the reader's light or dark colour scheme.
	SVG(w io.Writer) error
	view() (plotView, error)
}

// plotView is the data of a plot's template.
type plotView struct {
	Title      string
	Says       string // text for screen readers
	Height     float64
	Across     []plotTick // horizontal grid lines
	Along      []plotTick
	Bands      []plotPath
	Lines      []plotPath
	Dots       []plotDot
	Bars       []plotBar
	Labels     []plotText
	Target     *plotTick
	Legend     []plotKey
	XLabel     string
	XLabelY    float64
	Style      template.CSS
	Standalone bool
}

type plotTick struct {
	X1, Y1, X2, Y2 float64
	Text           plotText
}

type plotText struct {
	X, Y   float64
	Text   string
	Anchor string
	Class  string
}

type plotPath struct{ Class, D string }
type plotDot struct {
	Class string
	X, Y  float64
	Says  string
}

type plotBar struct {
	Class                  string
	X, Y, W, H             float64
	Says                   string
	Whisker                bool
	WhiskerFrom, WhiskerTo float64
	Value                  plotText
}

type plotKey struct {
	Class     string
	Line, Dot bool // the key is a line or a dot; if neither, a box
	X, Y      float64
	Text      string
}

var plotPage = template.Must(template.New("plot").Funcs(template.FuncMap{
	"n":    func(x float64) string { return number(x) },
	"plus": func(x, y float64) float64 { return x + y },
	"wide": func() float64 { return plotWidth },
}).Parse(plotTemplates))

// number formats a coordinate with two decimals.
func number(x float64) string { return strconv.FormatFloat(math.Round(x*100)/100, 'f', -1, 64) }

// writePlot writes a plot as a separate file.
func writePlot(w io.Writer, p Plot) error {
	v, err := p.view()
	if err != nil {
		return err
	}
	v.Style, v.Standalone = template.CSS(plotStyle), true
	if err := plotPage.ExecuteTemplate(w, "plot", v); err != nil {
		return fmt.Errorf("report: writing a plot: %w", err)
	}
	return nil
}

// ticks returns about n round numbers from lo to hi, and their distance.
func ticks(lo, hi float64, n int) (at []float64, step float64) {
	raw := (hi - lo) / float64(n)
	power := math.Pow(10, math.Floor(math.Log10(raw)))
	step = 10 * power
	for _, f := range []float64{1, 2, 2.5, 5} {
		if raw <= f*power*(1+1e-9) {
			step = f * power
			break
		}
	}
	first := math.Ceil(lo/step - 1e-9)
	for k := range 2 * n { // a counter, because far from 0 adding a step may change nothing
		if x := (first + float64(k)) * step; x <= hi+step*1e-6 {
			at = append(at, x)
		}
	}
	return slices.Compact(at), step
}

// byteTicks returns ticks from 0 to hi, at multiples of a power of two.
func byteTicks(hi float64) []float64 {
	step := 1.0
	for hi/step > 5 {
		step *= 2
	}
	var at []float64
	for x := 0.0; x <= hi; x += step {
		at = append(at, x)
	}
	return at
}

// axisText formats a value on an axis whose ticks are at a distance of `step`.
func axisText(u Unit, x, step float64) string {
	switch u {
	case UnitBytes:
		if x == 0 {
			return "0"
		}
		return terminal.Bytes(x)
	case UnitPart:
		return decimals(100*x, 100*step) + " %"
	case UnitSeconds:
		if x == 0 {
			return "0"
		}
		return u.Format(x)
	}
	return decimals(x, step)
}

// decimals formats x with as many decimals as the step of an axis has.
func decimals(x, step float64) string {
	digits := 0
	for s := step; digits < 6 && math.Abs(s-math.Round(s)) > 1e-6*s; s *= 10 {
		digits++
	}
	return strconv.FormatFloat(x, 'f', digits, 64)
}

// legend lays out keys in columns from y on, and returns where they end.
func legend(names []string, classes []string, line bool, y float64) ([]plotKey, float64) {
	longest := 0
	for _, n := range names {
		longest = max(longest, len([]rune(n)))
	}
	wide := float64(longest)*6.2 + 34
	columns := max(1, int((plotWidth-plotLeft)/wide))
	var keys []plotKey
	for i, n := range names {
		keys = append(keys, plotKey{Class: classes[i], Line: line, X: plotLeft + float64(i%columns)*wide,
			Y: y + float64(i/columns)*16, Text: n})
	}
	rows := (len(names) + columns - 1) / columns
	return keys, y + float64(rows)*16
}

// seriesClass returns the style class of a series: a colour, and dashes once the colours repeat.
func seriesClass(i int) string {
	class := "c" + strconv.Itoa(i%colours)
	if dashes := i / colours % 4; dashes > 0 {
		class += " d" + strconv.Itoa(dashes)
	}
	return class
}
