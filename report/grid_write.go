package report

import (
	_ "embed" // the style and the templates of a drawing
	"fmt"
	"html/template"
	"io"
	"strconv"
	"strings"
)

//go:embed web/grid.css
var gridStyle string

//go:embed web/grid.html
var gridTemplates string

// Distances of the legend, in units of the drawing.
const (
	legendApart, legendHigh = 150.0, 46.0
	microsFrom, microsApart = 90.0, 30.0
)

var gridPage = template.Must(template.New("grid").Funcs(template.FuncMap{
	"n":      func(x float64) string { return strconv.FormatFloat(float64(int64(x*100+0.5))/100, 'f', -1, 64) },
	"down":   func(x, by float64) float64 { return x + by },
	"along":  func(i int) float64 { return 8 + float64(i)*legendApart },
	"beside": func(i int) float64 { return microsFrom + float64(i)*microsApart },
}).Parse(gridTemplates))

// svgView is a drawing with what the template adds around it.
type svgView struct {
	*gridView
	Style      template.CSS
	Standalone bool
}

// The axis is above the rows, the legend under them.
func (v svgView) AxisY() float64      { return gridTop - 6 }
func (v svgView) TickY() float64      { return gridTop - 12 }
func (v svgView) LegendY() float64    { return v.Baseline + gridBottom }
func (v svgView) FullHeight() float64 { return v.Height + legendHigh }

// SVG writes the drawing as one file that needs nothing else. It follows the reader's
// light or dark colour scheme, and says under the mouse what each box and each wait is.
func (g *Grid) SVG(w io.Writer) error {
	v, err := g.drawing()
	if err != nil {
		return err
	}
	v.Style, v.Standalone = template.CSS(gridStyle), true
	return executeGrid(w, "svg", v)
}

// HTML writes a page of its own with the drawing, the facts and the stages. It has no script.
func (g *Grid) HTML(w io.Writer) error {
	v, err := g.drawing()
	if err != nil {
		return err
	}
	v.ByMicro = false // the page's buttons say
	page := struct {
		Title   string
		Style   template.CSS
		Facts   []Fact
		ByMicro bool
		Drawing svgView
		Stages  *gridTable
	}{g.name(), template.CSS(gridStyle), g.Facts, g.Micro, v, nil}
	if g.Stages != nil {
		page.Stages = gridTableOf(g.Stages)
	}
	return executeGrid(w, "page", page)
}

// drawing is the view, wide enough for its legend.
func (g *Grid) drawing() (svgView, error) {
	v, err := g.view()
	if err != nil {
		return svgView{}, err
	}
	v.Title = g.name()
	v.Width = max(v.Width, 8+legendApart*float64(len(v.Legend)))
	return svgView{gridView: v}, nil
}

func executeGrid(w io.Writer, name string, v any) error {
	if err := gridPage.ExecuteTemplate(w, name, v); err != nil {
		return fmt.Errorf("report: writing the drawing: %w", err)
	}
	return nil
}

// gridTable is a Table with what its columns look like.
type gridTable struct {
	Head []gridCell
	Rows [][]gridCell
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
	for _, row := range t.Rows {
		var cells []gridCell
		for i, c := range row {
			cells = append(cells, gridCell{strings.TrimSpace(c), t.right(i)})
		}
		out.Rows = append(out.Rows, cells)
	}
	return out
}
