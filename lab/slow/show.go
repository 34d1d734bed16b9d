package slow

import (
	"cmp"
	"fmt"
	"io"
	"slices"

	"github.com/millrace-ml/millrace/report"
)

// Sentence summarises a cell.
func (c *Cell) Sentence() string {
	d := c.Fastest()
	return fmt.Sprintf("%s: all-reduce over compute %.2f; %.2f times as fast as %s (%.2f to %.2f); step %.0f ms, "+
		"predicted %.0f",
		c.Name(), c.Share(), d.Ratio, d.Name, d.Interval.Lo, d.Interval.Hi, 1e3*c.Runs[0].StepS, 1e3*c.Runs[0].PredictedS)
}

// Markdown writes the cells as a table, and says which cells are nearest to PipeDream's published values.
func (r *Results) Markdown(w io.Writer) error {
	t := report.Table{Head: []string{"model", " hosts", " links", " all-reduce / compute", " DDP ms", " no_sync ms",
		" dp-overlap ms", " millrace ms", " predicted", " off", " over DDP", " over no_sync", " over dp-overlap", "plan"}}
	for i := range r.Cells {
		c := &r.Cells[i]
		ms := func(name string) string { return fmt.Sprintf("%.0f", 1e3*c.Run(name).StepS) }
		over := func(name string) string {
			o := c.Run(name)
			return fmt.Sprintf("%.2f (%.2f to %.2f)", o.Ratio, o.Interval.Lo, o.Interval.Hi)
		}
		off := "shared cores"
		if c.Hosts <= r.Machine.Cores {
			off = fmt.Sprintf("%.0f %%", 100*c.Off())
		}
		t.Add(c.Model, c.Hosts, c.Rate, fmt.Sprintf("%.2f", c.Share()), ms(DDP), ms(Accumulated), ms(Plain), ms(Chosen),
			fmt.Sprintf("%.0f", 1e3*c.Runs[0].PredictedS), off, over(DDP), over(Accumulated), over(Plain), c.Plan)
	}
	if err := t.Markdown(w); err != nil {
		return err
	}
	published, err := PipeDream()
	if err != nil {
		return err
	}
	fmt.Fprintln(w)
	for _, of := range Workloads {
		if slices.ContainsFunc(r.Cells, func(c Cell) bool { return c.Model == of.Name }) {
			fmt.Fprintf(w, "%s: %s; %d rows a host and step.\n", of.Name, of.Doc, of.Rows)
		}
	}
	fmt.Fprintln(w)
	for _, p := range published {
		fmt.Fprintf(w, "PipeDream's VGG-16 on %s (Table 1): %.2f times data parallelism, whose all-reduce takes %.2f of its "+
			"compute time.", p.Where, p.Factor, p.Share)
		if c := r.Nearest("vgg16-quarter", p); c != nil {
			fmt.Fprintf(w, " The nearest cell, %s, has %.2f: %.2f times DDP (paper: %.2f).", c.Name(), c.Share(),
				c.Fastest().Ratio, p.Factor)
		}
		fmt.Fprintln(w)
	}
	return nil
}

// Plot draws a point for each cell. One axis is the speed of the chosen plan, divided by the speed of the faster of
// PyTorch's two runs. The other axis is DDP's all-reduce time divided by its compute time. Plot also draws PipeDream's
// two values.
func (r *Results) Plot() (*report.Lines, error) {
	p := &report.Lines{Title: "Times as fast as PyTorch DDP", XLabel: "DDP's all-reduce time over its compute time",
		Log: true}
	at := map[string]int{} // by model and hosts: index of the series; by model: index of its first series
	for _, c := range r.Cells {
		name := fmt.Sprintf("%s, %d hosts", c.Model, c.Hosts)
		i, known := at[name]
		if !known {
			first, like := at[c.Model]
			s := report.Series{Name: name, Like: -1, Marked: true}
			if like {
				s.Like, s.Dashed = first, true
			}
			i = len(p.Series)
			if at[name] = i; !like {
				at[c.Model] = i
			}
			p.Series = append(p.Series, s)
		}
		d := c.Fastest()
		p.Series[i].Points = append(p.Series[i].Points, report.SeriesPoint{X: c.Share(), Y: d.Ratio, Lo: d.Interval.Lo,
			Hi: d.Interval.Hi})
	}
	for _, s := range p.Series {
		slices.SortFunc(s.Points, func(a, b report.SeriesPoint) int { return cmp.Compare(a.X, b.X) })
	}
	published, err := PipeDream()
	if err != nil {
		return nil, err
	}
	s := report.Series{Name: "PipeDream's VGG-16", Like: -1, Dots: true}
	for _, o := range published {
		s.Points = append(s.Points, report.SeriesPoint{X: o.Share, Y: o.Factor, Lo: o.Factor, Hi: o.Factor})
	}
	p.Series = append(p.Series, s)
	return p, nil
}
