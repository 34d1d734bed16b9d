package report

import (
	_ "embed" // style and templates of a drawing
	"fmt"
	"html/template"
	"io"
	"math"
	"strconv"
	"strings"
)

//go:embed web/grid.css
var gridStyle string

//go:embed web/grid.html
var gridTemplates string

// Distances of the legend, in units of the drawing.
const (
	legendHigh              = 46.0
	microsFrom, microsApart = 90.0, 30.0
)

var gridPage = template.Must(template.New("grid").Funcs(template.FuncMap{
	"n":      func(x float64) string { return strconv.FormatFloat(float64(int64(x*100+0.5))/100, 'f', -1, 64) },
	"down":   func(x, by float64) float64 { return x + by },
	"beside": func(i int) float64 { return microsFrom + float64(i)*microsApart },
}).Parse(gridTemplates))

// svgView is a drawing and the settings of its template.
type svgView struct {
	*gridView
	Style      template.CSS
	Standalone bool
}

// The axis is above the rows, and the legend is below them.
func (v svgView) AxisY() float64      { return gridTop - 6 }
func (v svgView) TickY() float64      { return gridTop - 12 }
func (v svgView) LegendY() float64    { return v.Baseline + gridBottom }
func (v svgView) FullHeight() float64 { return v.Height + legendHigh }

// Along returns where an entry of the legend begins, after the words of earlier entries.
func (v svgView) Along(i int) float64 {
	x := 8.0
	for _, k := range v.Legend[:i] {
		x += 44 + 6*float64(len(k.Label))
	}
	return x
}

// gridPart is one part of a drawing, narrow enough for a screen. Parts of a wide drawing are shown below each other.
type gridPart struct {
	svgView
	LabelW, Width float64
	Says          string
}

// Sizes of parts, on a screen and on a phone: the plot, and the labels before it.
const (
	wideSlice, wideLabels   = 1080.0, 106.0
	phoneSlice, phoneLabels = 316.0, 26.0
	mostOnPhone             = 4000 // a page draws up to this many boxes a second time, for phones
)

// slices cuts a drawing into parts of equal width. A drawing that is wider than `most` is cut into parts of this width,
// the last of which may end with empty space. Before each part is space for labels; `brief` shortens these.
func (v svgView) slices(most, labels float64, brief bool) []gridPart {
	n := int(math.Ceil(v.PlotW/most - 1e-9))
	each := v.PlotW / float64(n)
	if n > 1 {
		each = most
	}
	out := make([]gridPart, n)
	for i := range out {
		part := *v.gridView
		part.PlotX, part.PlotW = v.PlotX+float64(i)*each, each
		end := part.PlotX + each
		part.Boxes, part.Waits, part.Ticks, part.Steps, part.Rows = nil, nil, nil, nil, nil
		for _, b := range v.Boxes {
			if b.X < end && b.X+b.W > part.PlotX {
				part.Boxes = append(part.Boxes, b)
			}
		}
		for _, b := range v.Waits {
			if b.X < end && b.X+b.W > part.PlotX {
				part.Waits = append(part.Waits, b)
			}
		}
		for _, t := range v.Ticks {
			if t.X >= part.PlotX-1 && t.X < end+1 {
				t.X = min(max(t.X, part.PlotX+4), end-10)
				part.Ticks = append(part.Ticks, t)
			}
		}
		for _, s := range v.Steps {
			if s.X > part.PlotX && s.X <= end {
				part.Steps = append(part.Steps, s)
			}
		}
		for w, r := range v.Rows {
			if brief {
				r.Text, r.More = fmt.Sprintf("w%d", w), ""
			}
			part.Rows = append(part.Rows, r)
		}
		says := v.Title
		if n > 1 {
			says = fmt.Sprintf("%s, part %d of %d", v.Title, i+1, n)
		}
		out[i] = gridPart{svgView{gridView: &part}, labels, labels + each, says}
	}
	return out
}

// SVG writes the drawing as one file that needs no other. It follows the reader's light or dark colour scheme, and
// has tooltips for boxes and waits.
func (g *Grid) SVG(w io.Writer) error {
	v, err := g.drawing()
	if err != nil {
		return err
	}
	v.Style, v.Standalone = template.CSS(gridStyle), true
	return executeGrid(w, "svg", v)
}

// HTML writes a separate page with the drawing, the facts and the stages. It has no script.
func (g *Grid) HTML(w io.Writer) error {
	v, err := g.drawing()
	if err != nil {
		return err
	}
	v.ByMicro = false // the page's buttons switch to colours by micro-batch
	page := struct {
		Title   string
		Style   template.CSS
		Facts   []Fact
		ByMicro bool
		Wide    []gridPart
		Phone   []gridPart // empty for a drawing with too many boxes, which scrolls instead
		Legend  []colourKey
		Micros  []box
		Stages  *gridTable
	}{g.name(), template.CSS(gridStyle), g.Facts, g.Micro, v.slices(wideSlice, wideLabels, false), nil, v.Legend, v.Micros,
		nil}
	if len(v.Boxes) <= mostOnPhone {
		page.Phone = v.slices(phoneSlice, phoneLabels, true)
	}
	if g.Stages != nil {
		page.Stages = gridTableOf(g.Stages)
	}
	return executeGrid(w, "page", page)
}

// drawing returns the view, wide enough for its legend.
func (g *Grid) drawing() (svgView, error) {
	v, err := g.view()
	if err != nil {
		return svgView{}, err
	}
	v.Title = g.name()
	drawn := svgView{gridView: v}
	v.Width = max(v.Width, drawn.Along(len(v.Legend)))
	return drawn, nil
}

func executeGrid(w io.Writer, name string, v any) error {
	if err := gridPage.ExecuteTemplate(w, name, v); err != nil {
		return fmt.Errorf("report: writing the drawing: %w", err)
	}
	return nil
}

// gridTable is a Table with the alignment of its columns.
type gridTable struct {
	Head []gridCell
	Rows []gridTableRow
}

type gridTableRow struct {
	Cells  []gridCell
	Chosen bool
}

type gridCell struct {
	Text  string
	Right bool
}

func gridTableOf(t *Table) *gridTable {
	out := &gridTable{}
	for i, h := range t.Head {
		out.Head = append(out.Head, gridCell{strings.TrimSpace(h), t.right(i)})
	}
	for n, row := range t.Rows {
		var cells []gridCell
		for i, c := range row {
			cells = append(cells, gridCell{strings.TrimSpace(c), t.right(i)})
		}
		out.Rows = append(out.Rows, gridTableRow{cells, n+1 == t.Chosen})
	}
	return out
}
