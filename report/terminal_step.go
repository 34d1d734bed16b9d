package report

import (
	"github.com/millrace-ml/millrace/report/picture"
	"github.com/millrace-ml/millrace/trace"
)

// steps draws the predicted and the measured step on one axis.
func (d *drawing) steps() {
	sim, simText := d.in.predictedStep()
	run, runText := d.in.measuredStep()
	if sim == nil && run == nil {
		if d.in.Unmeasured != "" {
			d.section("Step", "")
			d.wrap("  ", d.in.Unmeasured)
		}
		return
	}
	length := 0.0
	for _, t := range []*trace.Timeline{sim, run} {
		if t != nil {
			_, end := t.Extent()
			length = max(length, end)
		}
	}
	if length <= 0 {
		return
	}
	d.section("Step", "")
	frame := picture.Frame{Screen: d.screen, Clock: picture.ClockFor(length), ToS: length}
	var drawn []*picture.Drawing
	for _, side := range []struct {
		title, text string
		t           *trace.Timeline
		shown       func() (shownStep, bool)
	}{{"predicted", simText, sim, d.in.predicted}, {"measured", runText, run, d.in.measured}} {
		if side.t == nil {
			continue
		}
		d.wrap("  ", side.title+" "+side.text)
		frame.Own = nil
		if s, ok := side.shown(); ok {
			frame.Own = func(e *trace.Event) bool { return e.Step == s.mark.Step }
		}
		rows := picture.Letters(side.t, frame)
		d.b.WriteString(rows.Axis)
		d.byHost(side.t.Workers, func(a, b int) bool { return rows.Idle(a) && rows.Idle(b) },
			func(first, last int) { d.b.WriteString(rows.Rows(first, last)) })
		drawn = append(drawn, rows)
	}
	d.b.WriteString(picture.Legend(drawn...))
	if d.in.Unmeasured != "" {
		d.wrap("  ", d.in.Unmeasured)
	}
}
