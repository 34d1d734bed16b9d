package avgpipe

import (
	"fmt"

	"github.com/millrace-ml/millrace/lab/reproduce/table"
	"github.com/millrace-ml/millrace/tune/avgpipe"
)

// chart returns a chart with two bars for each baseline: its own value, and AvgPipe's value within the baseline's
// memory. If no setting of AvgPipe fits into this memory, AvgPipe's bar is 0.
func (c *comparison) chart(unit string, baseline func(avgpipe.EqualMemory) float64,
	own func(*avgpipe.Pipelined) float64) table.Chart {
	out := table.Chart{Title: c.of.Training.Name, X: unit, Lines: []table.Line{{Name: "the baseline"},
		{Name: "AvgPipe in its memory"}}}
	for _, r := range c.rows {
		out.Bars = append(out.Bars, r.Name)
		out.Lines[0].Y = append(out.Lines[0].Y, baseline(r))
		x := 0.0
		if r.AvgPipe != nil {
			x = own(r.AvgPipe)
		}
		out.Lines[1].Y = append(out.Lines[1].Y, x)
	}
	return out
}

// byGPU returns a chart with a bar for each GPU under each schedule.
func (s schedules) byGPU(title, unit string, value func(p *avgpipe.Pipelined, gpu int) float64) table.Chart {
	out := table.Chart{Title: title, X: unit}
	for gpu := range s.one.MemoryBytes {
		out.Bars = append(out.Bars, fmt.Sprintf("GPU %d", gpu+1))
	}
	for _, by := range []struct {
		name string
		of   *avgpipe.Pipelined
	}{{"1F1B", s.one}, {"advance", s.advance}, {"AFAB", s.all}} {
		l := table.Line{Name: by.name}
		for gpu := range by.of.MemoryBytes {
			l.Y = append(l.Y, value(by.of, gpu))
		}
		out.Lines = append(out.Lines, l)
	}
	return out
}
