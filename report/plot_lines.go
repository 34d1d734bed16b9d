package report

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"strings"
)

// Lines is a plot of curves over an axis. A point may be a mean, with its range.
type Lines struct {
	Title  string
	XLabel string
	Unit   Unit // unit of Y; UnitBytes has ticks at powers of two
	Series []Series
	Target *float64 // a target value; nil: none
	Zero   bool     // Y begins at 0, as bytes always do
	Log    bool     // both axes are logarithmic; all values are above 0
}

// Series is one curve of a plot.
type Series struct {
	Name   string
	Points []SeriesPoint
	Dashed bool
	Dots   bool // points without a line
	Marked bool // points with a line
	// Like is the index of an earlier series that has the same colour. If it is negative, the series has a colour of
	// its own.
	Like int
}

// SeriesPoint is a point of a curve: Y is the mean of values from Lo to Hi. All three are equal for a single value.
type SeriesPoint struct{ X, Y, Lo, Hi float64 }

// SVG implements Plot.
func (p *Lines) SVG(w io.Writer) error { return writePlot(w, p) }

// view lays out the plot. It refuses plots without points, values that are not finite and, on logarithmic axes, values
// that are not above 0.
func (p *Lines) view() (plotView, error) {
	x0, x1, y0, y1, err := p.extent()
	if err != nil {
		return plotView{}, err
	}
	v := plotView{Title: p.Title, Says: p.says(), XLabel: p.XLabel}
	bottom := plotTop + linesHigh
	toX := func(x float64) float64 { return plotLeft + (p.scaled(x)-x0)/(x1-x0)*(plotWidth-plotLeft-plotRight) }
	toY := func(y float64) float64 { return bottom - (p.scaled(y)-y0)/(y1-y0)*linesHigh }
	marks, step := p.marks(y0, y1, 4)
	if p.Unit == UnitBytes {
		marks = byteTicks(y1)
	}
	for _, y := range marks {
		v.Across = append(v.Across, plotTick{
			X1: plotLeft, X2: plotWidth - plotRight, Y1: toY(y), Y2: toY(y),
			Text: plotText{X: plotLeft - 6, Y: toY(y) + 3.5, Text: axisText(p.Unit, y, cmp.Or(step, y)), Anchor: "end"},
		})
	}
	marks, step = p.marks(x0, x1, 6)
	for _, x := range marks {
		v.Along = append(v.Along, plotTick{Text: plotText{X: toX(x), Y: bottom + 15, Text: decimals(x, cmp.Or(step, x)),
			Anchor: "middle"}})
	}
	v.XLabelY = bottom + 30
	var names, classes []string
	own := 0
	for i, s := range p.Series {
		class := ""
		if s.Like >= 0 && s.Like < i {
			class = strings.Fields(classes[s.Like])[0]
		} else {
			class = seriesClass(own)
			own++
		}
		if s.Dashed {
			class += " d1"
		}
		names, classes = append(names, s.Name), append(classes, class)
		p.draw(&v, s, class, toX, toY)
	}
	if t := p.Target; t != nil && p.scaled(*t) >= y0 && p.scaled(*t) <= y1 {
		v.Target = &plotTick{X1: plotLeft, X2: plotWidth - plotRight, Y1: toY(*t), Y2: toY(*t),
			Text: plotText{X: plotLeft + 3, Y: toY(*t) - 4, Text: "target " + p.Unit.Format(*t)}}
	}
	v.Legend, v.Height = legend(names, classes, true, bottom+46)
	for i, s := range p.Series {
		v.Legend[i].Dot = s.Dots
	}
	v.Height += 6
	return v, nil
}

func (p *Lines) draw(v *plotView, s Series, class string, toX, toY func(float64) float64) {
	var line, over, under strings.Builder
	banded := false
	for i, at := range s.Points {
		verb := "L"
		if i == 0 {
			verb = "M"
		}
		fmt.Fprintf(&line, "%s%s %s", verb, number(toX(at.X)), number(toY(at.Y)))
		fmt.Fprintf(&over, "%s%s %s", verb, number(toX(at.X)), number(toY(at.Hi)))
		banded = banded || at.Hi > at.Lo
		if s.Dots || s.Marked {
			v.Dots = append(v.Dots, plotDot{Class: class, X: toX(at.X), Y: toY(at.Y),
				Says: fmt.Sprintf("%s, %s %g: %s", s.Name, p.XLabel, at.X, p.Unit.Format(at.Y))})
		}
	}
	for i := len(s.Points) - 1; i >= 0; i-- {
		fmt.Fprintf(&under, "L%s %s", number(toX(s.Points[i].X)), number(toY(s.Points[i].Lo)))
	}
	if banded {
		v.Bands = append(v.Bands, plotPath{class, over.String() + under.String() + "Z"})
	}
	if !s.Dots && len(s.Points) > 0 {
		v.Lines = append(v.Lines, plotPath{class, line.String()})
	}
}

// scaled returns the position of a value on an axis: its logarithm if axes are logarithmic.
func (p *Lines) scaled(x float64) float64 {
	if p.Log {
		return math.Log10(x)
	}
	return x
}

// marks returns the values of about n ticks of an axis. `step` is the distance between them, by which they are
// formatted. If it is 0, each value is formatted by itself. A logarithmic axis has powers of ten and, if these are few,
// also 2 and 5 times the powers of ten.
func (p *Lines) marks(lo, hi float64, n int) (at []float64, step float64) {
	if !p.Log {
		return ticks(lo, hi, n)
	}
	factors := []float64{1, 2, 5}
	if hi-lo > float64(n)/2 {
		factors = factors[:1]
	}
	for power := math.Floor(lo); power <= hi; power++ {
		for _, f := range factors {
			if x := f * math.Pow(10, power); math.Log10(x) >= lo && math.Log10(x) <= hi {
				at = append(at, x)
			}
		}
	}
	return at, 0
}

// extent returns the ranges of the axes.
func (p *Lines) extent() (x0, x1, y0, y1 float64, err error) {
	x0, x1, y0, y1 = math.Inf(1), math.Inf(-1), math.Inf(1), math.Inf(-1)
	for _, s := range p.Series {
		for _, at := range s.Points {
			for _, v := range []float64{at.X, at.Y, at.Lo, at.Hi} {
				if math.IsNaN(v) || math.IsInf(v, 0) {
					return 0, 0, 0, 0, fmt.Errorf("report: plot %q: %s has %v; values must be numbers", p.Title, s.Name, v)
				}
				if p.Log && v <= 0 {
					return 0, 0, 0, 0, fmt.Errorf("report: plot %q: %s has %v; values must be above 0 where equal factors "+
						"are equally far apart", p.Title, s.Name, v)
				}
			}
			x, y, lo, hi := p.scaled(at.X), p.scaled(at.Y), p.scaled(at.Lo), p.scaled(at.Hi)
			x0, x1, y0, y1 = min(x0, x), max(x1, x), min(y0, lo, y), max(y1, hi, y)
		}
	}
	if x0 > x1 {
		return 0, 0, 0, 0, fmt.Errorf("report: plot %q has no points", p.Title)
	}
	if p.Zero || p.Unit == UnitBytes { // ticks of bytes begin at 0
		y0 = min(y0, 0)
	}
	if x0 == x1 {
		x0, x1 = x0-.5, x1+.5
	}
	if y0 == y1 {
		y0, y1 = y0-.5, y1+.5
	}
	pad := (y1 - y0) * .04
	if p.Log {
		x0, x1 = x0-(x1-x0)*.04, x1+(x1-x0)*.04
	}
	if !p.Zero && p.Unit != UnitBytes {
		y0 -= pad
	}
	return x0, x1, y0, y1 + pad, nil
}

// says describes the plot in a sentence.
func (p *Lines) says() string {
	var parts []string
	for _, s := range p.Series {
		if n := len(s.Points); n > 0 {
			parts = append(parts, fmt.Sprintf("%s ends at %s", s.Name, p.Unit.Format(s.Points[n-1].Y)))
		}
	}
	return p.Title + ": " + strings.Join(parts, ", ")
}

// Bars is a plot of groups of horizontal bars. There is room for long names beside the bars.
type Bars struct {
	Title  string
	Unit   Unit
	Names  []string // names of the bars in a group, for the legend
	Groups []BarGroup
}

// BarGroup is a name and its bars.
type BarGroup struct {
	Name string
	Bars []Bar
}

// Bar is one value with its interval from Lo to Hi. Lo and Hi are 0 if the interval is unknown. A bar without a value
// has None instead.
type Bar struct {
	Value, Lo, Hi float64
	None          string // why there is no value; empty: there is one
	Note          string // shown after the value
}

// Sizes of bars, in units of the drawing.
const (
	barHigh, barApart, groupApart = 15.0, 2.0, 9.0
	barNames, barValues           = 128.0, 92.0
	// nameLetters is the number of letters that have room in barNames. For a longer name, the room grows by letterWide
	// for each further letter, up to mostLetters letters.
	nameLetters, mostLetters = 19, 32
	letterWide               = 6.3
)

// SVG implements Plot.
func (p *Bars) SVG(w io.Writer) error { return writePlot(w, p) }

// view lays out the plot. It refuses a plot without groups, and values that are negative or not finite.
func (p *Bars) view() (plotView, error) {
	most := 0.0
	for _, g := range p.Groups {
		for _, b := range g.Bars {
			for _, v := range []float64{b.Value, b.Lo, b.Hi} {
				if math.IsNaN(v) || math.IsInf(v, 0) || v < 0 {
					return plotView{}, fmt.Errorf("report: plot %q: %s has %v; bars are 0 or longer", p.Title, g.Name, v)
				}
			}
			most = max(most, b.Value, b.Hi)
		}
	}
	if len(p.Groups) == 0 {
		return plotView{}, fmt.Errorf("report: plot %q has no bars", p.Title)
	}
	if most == 0 {
		most = 1
	}
	v := plotView{Title: p.Title}
	longest := nameLetters
	for _, g := range p.Groups {
		longest = min(max(longest, len([]rune(g.Name))), mostLetters)
	}
	left := barNames + letterWide*float64(longest-nameLetters)
	toX := func(x float64) float64 { return left + x/most*(plotWidth-left-barValues) }
	y := plotTop
	var said []string
	for _, g := range p.Groups {
		high := float64(len(g.Bars))*(barHigh+barApart) - barApart
		v.Labels = append(v.Labels, plotText{X: left - 8, Y: y + high/2 + 4, Text: clip(g.Name, longest),
			Anchor: "end", Class: "label"})
		for i, b := range g.Bars {
			text := b.None
			if text == "" {
				text = strings.TrimSpace(p.Unit.Format(b.Value) + " " + b.Note)
			}
			name := g.Name
			if i < len(p.Names) && len(p.Names) > 1 {
				name += ", " + p.Names[i]
			}
			said = append(said, name+" "+text)
			bar := plotBar{Class: seriesClass(i), X: left, Y: y, H: barHigh, Says: name + ": " + text}
			if b.None == "" {
				bar.W = max(toX(b.Value)-left, 1)
			}
			end := left + bar.W
			if b.Hi > b.Lo && b.None == "" {
				bar.Whisker, bar.WhiskerFrom, bar.WhiskerTo = true, toX(b.Lo), toX(b.Hi)
				end = max(end, toX(b.Hi))
			}
			bar.Value = plotText{X: end + 6, Y: y + 11.5, Text: text, Anchor: "start"}
			v.Bars = append(v.Bars, bar)
			y += barHigh + barApart
		}
		y += groupApart - barApart
	}
	v.Says = p.Title + ": " + strings.Join(said, "; ")
	v.Height = y
	if len(p.Names) > 1 {
		var classes []string
		for i := range p.Names {
			classes = append(classes, seriesClass(i))
		}
		v.Legend, v.Height = legend(p.Names, classes, false, y+8)
	}
	return v, nil
}
