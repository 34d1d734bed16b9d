// Package scatter draws points on two axes as an SVG.
//
// In: a Drawing: series of points, a bound of x, and names of axes. Points beyond the bound, which the caller marks as
// Out, are crosses. Out: the SVG, the same bytes for the same Drawing. Refused: a drawing without points, values that
// are not finite, a negative x, and a y that is not above 0, because its axis is logarithmic.
package scatter

import (
	"bytes"
	"errors"
	"fmt"
	"image/color"
	"math"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Point is a point of a series.
type Point struct {
	X, Y float64
	Out  bool // the point is beyond the bound, and drawn as a cross
}

// Series is a set of points in one colour.
type Series struct {
	Name   string
	Points []Point
}

// Drawing is the content of a plot.
type Drawing struct {
	Title, X, Y string
	Series      []Series
	Bound       float64 // x of a line; if it is far to the right of all points, only its name is shown; 0: none
	BoundName   string
	Best        *Point // the point that is marked with a ring
	BestName    string
}

// turns are colours that colour-blind people can distinguish (Okabe and Ito). Series take them in turn.
var turns = []color.RGBA{{G: 114, B: 178, A: 255}, {R: 213, G: 94, A: 255}, {G: 158, B: 115, A: 255},
	{R: 204, G: 121, B: 167, A: 255}, {R: 230, G: 159, A: 255}, {R: 86, G: 180, B: 233, A: 255}}

const (
	wide, high vg.Length = 720, 440 // points
	margin     vg.Length = 8
	dot        vg.Length = 3
	beside     vg.Length = 150 // width of the legend
	// reach limits which bounds are drawn. If the x of a bound is more than `reach` times the largest x of the points,
	// the bound is named but not drawn.
	reach = 3
	// alike lists fonts as wide as the font with which the drawing is laid out, and last any sans-serif font.
	alike = "font-family:Liberation Sans,Arial,Helvetica,sans-serif"
)

func sans(size vg.Length) font.Font {
	return font.Font{Typeface: "Liberation", Variant: "Sans", Size: size}
}

// SVG returns the drawing.
func (d *Drawing) SVG() ([]byte, error) {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = d.Title, d.X, d.Y+" (logarithmic)"
	p.Title.TextStyle.Font = sans(12)
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.Label.TextStyle.Font, axis.Tick.Label.Font = sans(10), sans(9)
	}
	p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, plot.TickerFunc(ticks)
	legend := plot.NewLegend() // the legend is beside the plot, where it covers no point
	legend.Top, legend.Left, legend.Padding, legend.TextStyle.Font = true, true, 2, sans(9)
	p.Add(plotter.NewGrid())
	least, most, far, any, out := math.Inf(1), 0.0, 0.0, false, false
	for i, s := range d.Series {
		var in, beyond plotter.XYs
		for _, at := range s.Points {
			if !(at.X >= 0) || !(at.Y > 0) || math.IsInf(at.X, 1) || math.IsInf(at.Y, 1) {
				return nil, fmt.Errorf("scatter: %s has a point at %v, %v; y is over 0", s.Name, at.X, at.Y)
			}
			least, most, far = min(least, at.Y), max(most, at.Y), max(far, at.X)
			any, out = true, out || at.Out
			if at.Out {
				beyond = append(beyond, plotter.XY{X: at.X, Y: at.Y})
			} else {
				in = append(in, plotter.XY{X: at.X, Y: at.Y})
			}
		}
		paint := turns[i%len(turns)]
		if err := add(p, in, draw.CircleGlyph{}, paint, dot); err != nil {
			return nil, err
		}
		if err := add(p, beyond, draw.CrossGlyph{}, paint, dot); err != nil {
			return nil, err
		}
		legend.Add(s.Name, glyph{draw.GlyphStyle{Shape: draw.CircleGlyph{}, Color: paint, Radius: dot}})
	}
	if !any {
		return nil, errors.New("scatter: there is no point to draw")
	}
	if least == most { // a logarithmic axis needs two different ends
		least, most = least/2, 2*most
	}
	p.Y.Min, p.Y.Max = least/1.1, most*1.1
	switch {
	case d.Bound > reach*far:
		legend.Add(d.BoundName + ":")
		legend.Add(fmt.Sprintf("%.4g, off to the right", d.Bound))
	case d.Bound > 0:
		p.X.Max = max(p.X.Max, d.Bound)
		line, err := plotter.NewLine(plotter.XYs{{X: d.Bound, Y: p.Y.Min}, {X: d.Bound, Y: p.Y.Max}})
		if err != nil {
			return nil, fmt.Errorf("scatter: %w", err)
		}
		line.Dashes = []vg.Length{4, 3}
		p.Add(line)
		legend.Add(d.BoundName, dashed{line.LineStyle})
	}
	if out {
		legend.Add("does not fit", glyph{draw.GlyphStyle{Shape: draw.CrossGlyph{}, Color: color.Black, Radius: dot}})
	}
	if d.Best != nil {
		if err := add(p, plotter.XYs{{X: d.Best.X, Y: d.Best.Y}}, draw.RingGlyph{}, color.RGBA{A: 255}, 2*dot); err != nil {
			return nil, err
		}
		legend.Add(d.BestName, glyph{draw.GlyphStyle{Shape: draw.RingGlyph{}, Color: color.Black, Radius: dot + 1}})
	}
	p.X.Min = 0
	c := vgsvg.New(wide, high)
	all := draw.Crop(draw.New(c), margin, -margin, margin, -margin)
	p.Draw(draw.Crop(all, 0, -beside, 0, 0))
	legend.Draw(draw.Crop(all, all.Max.X-all.Min.X-beside+2*margin, 0, 0, -4*margin))
	var b bytes.Buffer
	if _, err := c.WriteTo(&b); err != nil {
		return nil, fmt.Errorf("scatter: %w", err)
	}
	return bytes.ReplaceAll(b.Bytes(), []byte("font-family:Liberation Sans"), []byte(alike)), nil
}

// add adds points, if there are any.
func add(p *plot.Plot, at plotter.XYs, shape draw.GlyphDrawer, paint color.RGBA, size vg.Length) error {
	if len(at) == 0 {
		return nil
	}
	points, err := plotter.NewScatter(at)
	if err != nil {
		return fmt.Errorf("scatter: %w", err)
	}
	points.GlyphStyle = draw.GlyphStyle{Shape: shape, Color: paint, Radius: size}
	p.Add(points)
	return nil
}

// ticks returns 1, 2 and 5 times the powers of ten in a range. If these are too few to read the axis, it returns finer
// multiples. For a very narrow range it returns the two ends.
func ticks(least, most float64) (all []plot.Tick) {
	var tenths []float64
	for n := 10; n < 100; n++ {
		tenths = append(tenths, float64(n)/10)
	}
	tick := func(v float64) plot.Tick { return plot.Tick{Value: v, Label: strconv.FormatFloat(v, 'g', 3, 64)} }
	for _, multiples := range [][]float64{{1, 2, 5}, {1, 2, 3, 4, 5, 6, 7, 8, 9}, tenths} {
		all = nil
		for power := math.Floor(math.Log10(least)); power <= math.Ceil(math.Log10(most)); power++ {
			for _, n := range multiples {
				if v := n * math.Pow(10, power); v >= least && v <= most {
					all = append(all, tick(v))
				}
			}
		}
		if len(all) > 3 {
			return all
		}
	}
	return []plot.Tick{tick(least), tick(most)}
}

// dashed is the entry of a line in the legend, with space before the name.
type dashed struct{ style draw.LineStyle }

func (d dashed) Thumbnail(c *draw.Canvas) {
	at := c.Center()
	c.StrokeLine2(d.style, at.X-2*dot, at.Y, at.X+2*dot, at.Y)
}

// glyph is the entry of a point in the legend.
type glyph struct{ style draw.GlyphStyle }

func (g glyph) Thumbnail(c *draw.Canvas) { c.DrawGlyph(g.style, c.Center()) }
