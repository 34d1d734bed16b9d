package report

import (
	"fmt"
	"io"
	"math"
	"strings"
)

// Bars is a plot of groups of bars, which lie, so that their names can be read.
type Bars struct {
	Title  string
	Unit   Unit
	Names  []string // of the bars of each group, for the legend
	Groups []BarGroup
}

// BarGroup is a name and its bars.
type BarGroup struct {
	Name string
	Bars []Bar
}

// Bar is one value, and from where to where it goes; Lo and Hi are 0 where that is not known.
// A bar without a value has None in its place.
type Bar struct {
	Value, Lo, Hi float64
	None          string // why there is no value; empty: there is one
	Note          string // behind the value
}

// Sizes of bars, in units of the drawing.
const (
	barHigh, barApart, groupApart = 15.0, 2.0, 9.0
	barNames, barValues           = 128.0, 92.0
	nameLetters                   = 19
)

// SVG implements Plot.
func (p *Bars) SVG(w io.Writer) error { return writePlot(w, p) }

// view lays the plot out. It refuses a plot without bars and values that are below 0 or no number.
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
	toX := func(x float64) float64 { return barNames + x/most*(plotWidth-barNames-barValues) }
	y := plotTop
	var said []string
	for _, g := range p.Groups {
		high := float64(len(g.Bars))*(barHigh+barApart) - barApart
		v.Labels = append(v.Labels, plotText{X: barNames - 8, Y: y + high/2 + 4, Text: clip(g.Name, nameLetters),
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
			bar := plotBar{Class: seriesClass(i), X: barNames, Y: y, H: barHigh, Says: name + ": " + text}
			if b.None == "" {
				bar.W = max(toX(b.Value)-barNames, 1)
			}
			end := barNames + bar.W
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
