package papers

import (
	"bytes"
	"fmt"
	"image/color"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/millrace-ml/millrace/lab/reproduce/table"
)

// Colours that colour-blind people can distinguish (Okabe and Ito): the paper's, ours, and those of further lines.
var (
	theirs = color.RGBA{A: 255}
	ours   = color.RGBA{G: 114, B: 178, A: 255}
	turns  = []color.RGBA{ours, {R: 213, G: 94, A: 255}, {G: 158, B: 115, A: 255}, {R: 204, G: 121, B: 167, A: 255},
		{R: 230, G: 159, A: 255}, {R: 86, G: 180, B: 233, A: 255}, {R: 120, G: 120, B: 120, A: 255}}
	faint = color.Gray{Y: 190}
)

const (
	plotWide vg.Length = 720 // points
	rowHigh  vg.Length = 15
	margin   vg.Length = 8
	// alike lists fonts whose characters are as wide as in the font of the layout, and then any sans-serif font.
	alike = "font-family:Liberation Sans,Arial,Helvetica,sans-serif"
)

// sans returns the drawings' font. `size` is in points.
func sans(size vg.Length) font.Font {
	return font.Font{Typeface: "Liberation", Variant: "Sans", Size: size}
}

// plots draws a table: its charts, and its numbers beside the paper's. For a table without charts and numbers, it draws
// which words agree.
func plots(t *table.Table) (all [][]byte, err error) {
	add := func(p *plot.Plot, high vg.Length, err error) error {
		if err != nil {
			return err
		}
		p.Title.TextStyle.Font, p.Legend.TextStyle.Font = sans(12), sans(9)
		for _, axis := range []*plot.Axis{&p.X, &p.Y} {
			axis.Label.TextStyle.Font, axis.Tick.Label.Font = sans(10), sans(9)
		}
		p.Legend.Padding, p.Legend.XOffs = 2, 8
		if !p.Legend.Left {
			p.Legend.XOffs = -8
		}
		c := vgsvg.New(plotWide, high)
		p.Draw(draw.Crop(draw.New(c), margin, -2*margin, margin, -margin))
		var b bytes.Buffer
		_, err = c.WriteTo(&b)
		all = append(all, bytes.ReplaceAll(b.Bytes(), []byte("font-family:Liberation Sans"), []byte(alike)))
		return err
	}
	numbers := slices.ContainsFunc(t.Rows, func(r table.Row) bool { return r.Values != nil })
	for _, c := range t.Charts {
		draw := lines
		if len(c.Bars) > 0 {
			draw = bars
		}
		if err := add(draw(c)); err != nil {
			return nil, err
		}
	}
	switch {
	case numbers:
		err = add(values(t))
	case len(all) == 0:
		err = add(words(t))
	}
	return all, err
}

func lines(c table.Chart) (*plot.Plot, vg.Length, error) {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = c.Title, c.X, c.Y
	p.Y.Min, p.Legend.Top, p.Legend.Left = 0, true, true
	if c.Log {
		p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, powers(c)
	}
	turn := 0
	for _, l := range c.Lines {
		points := make(plotter.XYs, len(l.X))
		for i := range l.X {
			points[i] = plotter.XY{X: l.X[i], Y: l.Y[i]}
		}
		line, dots, err := plotter.NewLinePoints(points)
		if err != nil {
			return nil, 0, fmt.Errorf("%s, %s: %w", c.Title, l.Name, err)
		}
		line.Color, line.Width = turns[turn%len(turns)], 1.5
		if l.Theirs {
			line.Color, line.Dashes = theirs, []vg.Length{4, 3}
		} else {
			turn++
		}
		dots.Shape, dots.Color = draw.CircleGlyph{}, line.Color
		p.Add(line, dots)
		p.Legend.Add(l.Name, line, dots)
	}
	p.Y.Max *= 1.25 // room for the legend
	return p, 260, nil
}

// bars draws a chart of bars. The bars of a group are one below another.
func bars(c table.Chart) (*plot.Plot, vg.Length, error) {
	p := plot.New()
	p.Title.Text, p.X.Label.Text = c.Title, c.X
	const thick = 9
	groups := slices.Clone(c.Bars)
	slices.Reverse(groups) // so that the first group is at the top
	most := 0.0
	for i, l := range c.Lines {
		at := slices.Clone(l.Y)
		slices.Reverse(at)
		b, err := plotter.NewBarChart(plotter.Values(at), thick)
		if err != nil {
			return nil, 0, fmt.Errorf("%s, %s: %w", c.Title, l.Name, err)
		}
		b.Horizontal, b.LineStyle.Width, b.Color = true, 0, turns[i%len(turns)]
		if l.Theirs {
			b.Color = color.Gray{Y: 90}
		}
		b.Offset = thick * vg.Length(float64(len(c.Lines)-1)/2-float64(i))
		p.Add(b)
		p.Legend.Add(l.Name, b)
		most = max(most, slices.Max(at))
	}
	p.NominalY(groups...)
	p.X.Min, p.X.Max, p.Legend.Top = 0, 1.25*most, true // room for the legend
	return p, vg.Length(len(groups))*(thick*vg.Length(len(c.Lines))+8) + 70, nil
}

// powers puts ticks at the values of x in a chart.
func powers(c table.Chart) plot.ConstantTicks {
	var at []float64
	for _, l := range c.Lines {
		at = append(at, l.X...)
	}
	slices.Sort(at)
	var ticks plot.ConstantTicks
	for _, x := range slices.Compact(at) {
		ticks = append(ticks, plot.Tick{Value: x, Label: fmt.Sprintf("%g", x)})
	}
	return ticks
}

// decades puts ticks at 1, 2 and 5 times the powers of ten in a range.
func decades(least, most float64) (ticks plot.ConstantTicks) {
	for power := math.Pow(10, math.Floor(math.Log10(least))); power <= most; power *= 10 {
		for _, n := range []float64{1, 2, 5} {
			if x := n * power; least <= x && x <= most {
				ticks = append(ticks, plot.Tick{Value: x, Label: fmt.Sprintf("%.3g", x)})
			}
		}
	}
	return ticks
}

// values draws each number of a table on a line: the paper's, ours, and ours under different assumptions.
func values(t *table.Table) (*plot.Plot, vg.Length, error) {
	p := plot.New()
	var names []string
	var paper, own, other plotter.XYs
	var spans []plotter.XYs
	least, most := math.Inf(1), math.Inf(-1)
	for i := len(t.Rows) - 1; i >= 0; i-- {
		r := t.Rows[i]
		if r.Values == nil {
			continue
		}
		y := float64(len(names))
		names = append(names, r.What)
		paper = append(paper, plotter.XY{X: r.Values.Paper, Y: y})
		own = append(own, plotter.XY{X: r.Values.Ours, Y: y})
		spans = append(spans, plotter.XYs{{X: r.Values.Paper, Y: y}, {X: r.Values.Ours, Y: y}})
		for _, a := range r.Ablations {
			other = append(other, plotter.XY{X: a.Value, Y: y})
		}
	}
	for _, p := range slices.Concat(paper, own, other) {
		least, most = min(least, p.X), max(most, p.X)
	}
	if least > 0 && most > 12*least {
		p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, decades(least, most)
	} else {
		least = min(0, least)
	}
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = color.Gray{Y: 225}, color.Gray{Y: 240}
	p.Add(grid)
	for _, s := range spans {
		l, err := plotter.NewLine(s)
		if err != nil {
			return nil, 0, err
		}
		l.Color, l.Width = faint, 2
		p.Add(l)
	}
	dots := func(name string, at plotter.XYs, shape draw.GlyphDrawer, c color.Color) error {
		if len(at) == 0 {
			return nil
		}
		s, err := plotter.NewScatter(at)
		if err != nil {
			return err
		}
		s.Shape, s.Color, s.Radius = shape, c, 3
		p.Add(s)
		p.Legend.Add(name, s)
		return nil
	}
	for _, err := range []error{dots("ours, another assumption", other, draw.PlusGlyph{}, color.Gray{Y: 130}),
		dots("paper", paper, draw.RingGlyph{}, theirs), dots("ours", own, draw.CircleGlyph{}, ours)} {
		if err != nil {
			return nil, 0, err
		}
	}
	if least == most {
		most++
	}
	p.NominalY(names...)
	p.X.Min, p.X.Max = least, most
	p.Y.Min, p.Y.Max = -.7, float64(len(names))+2.4 // room for the legend
	p.Legend.Top = true
	return p, rowHigh*vg.Length(len(names)+3) + 50, nil
}

// words draws which rows are the same as in the paper and which differ.
func words(t *table.Table) (*plot.Plot, vg.Length, error) {
	p := plot.New()
	var names []string
	var same, differs plotter.XYs
	for i := len(t.Rows) - 1; i >= 0; i-- {
		r := t.Rows[i]
		y := float64(len(names))
		switch r.Difference {
		case "same":
			same = append(same, plotter.XY{X: 1, Y: y})
		case "differs":
			differs = append(differs, plotter.XY{Y: y})
		default:
			continue
		}
		names = append(names, r.What)
	}
	if len(names) == 0 {
		return nil, 0, fmt.Errorf("%s has no row that can be compared, and no chart", t.Name)
	}
	for _, of := range []struct {
		at plotter.XYs
		c  color.Color
	}{{same, ours}, {differs, turns[1]}} {
		if len(of.at) == 0 {
			continue
		}
		s, err := plotter.NewScatter(of.at)
		if err != nil {
			return nil, 0, err
		}
		s.Shape, s.Color, s.Radius = draw.CircleGlyph{}, of.c, 3
		p.Add(s)
	}
	p.NominalY(names...)
	p.NominalX("differs from the paper", "as the paper has it")
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = -.6, 1.6, -.7, float64(len(names))-.3
	return p, rowHigh*vg.Length(len(names)) + 40, nil
}
