package benchmarks

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/millrace-ml/millrace/internal/stats"
	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/lab/bench"
	"github.com/millrace-ml/millrace/lab/p2p"
	timed "github.com/millrace-ml/millrace/lab/reproduce/bench"
	"github.com/millrace-ml/millrace/lab/slow"
)

// message returns how fast messages of one size are sent in the given way, relative to raw TCP.
func (p *page) message(way string, bytes int) string {
	r, h := named[p2p.Results](p.files, "p2p")
	if r == nil {
		return none
	}
	for _, m := range r.Messages {
		if m.Way == way && m.Bytes == bytes && len(m.Ratios) > 0 {
			return p.marked(h, between("%.2f", m.MedianRatio, m.Interval))
		}
	}
	return none
}

// arrival returns how much longer a message of a size takes while both processes compute.
func (p *page) arrival(way string, bytes int) string {
	r, h := named[p2p.Results](p.files, "p2p")
	if r == nil {
		return none
	}
	for _, a := range r.Arrivals {
		if a.Way == way && a.Bytes == bytes {
			return p.marked(h, between("%.1f", a.MedianRatio, a.Interval))
		}
	}
	return none
}

// ranks describes the training with the most stages, among the trainings that differ in their number of stages.
func (p *page) ranks() string {
	r, h := named[ranks](p.files, "ranks")
	if r == nil || len(r.Deeper) == 0 {
		return none
	}
	g := r.Deeper[len(r.Deeper)-1]
	return p.marked(h, fmt.Sprintf("%d ranks: %s and %s each", g.Ranks, terminal.Duration(g.Seconds),
		terminal.Bytes(int64(g.BytesEach))))
}

// cell returns the measurement of a model on this many slow hosts at a link rate; nil if there is none.
func (f files) cell(model string, hosts int, rate string) *slow.Cell {
	r, _ := named[slow.Results](f, "slow")
	if r == nil {
		return nil
	}
	at := slices.IndexFunc(r.Cells, func(c slow.Cell) bool {
		return c.Model == model && c.Hosts == hosts && c.Rate == rate
	})
	if at < 0 {
		return nil
	}
	return &r.Cells[at]
}

// overDDP returns the chosen plan's speed relative to the faster variant of DDP.
func (f files) overDDP(model string, hosts int, rate string) string {
	c := f.cell(model, hosts, rate)
	if c == nil {
		return none
	}
	d := c.Fastest()
	return between("%.1f", d.Ratio, d.Interval)
}

// slowRange returns the smallest and largest speed relative to the faster variant of DDP, and the number of cells.
func (p *page) slowRange() string {
	r, h := named[slow.Results](p.files, "slow")
	if r == nil || len(r.Cells) == 0 {
		return none
	}
	least, most := math.Inf(1), 0.0
	for i := range r.Cells {
		ratio := r.Cells[i].Fastest().Ratio
		least, most = min(least, ratio), max(most, ratio)
	}
	return p.marked(h, fmt.Sprintf("%.1f to %.0f times in %d cells", least, most, len(r.Cells)))
}

// watched returns how much longer a step takes while a page watches.
func (p *page) watched(name string) string {
	w, h := named[bench.Watched](p.files, name)
	if w == nil {
		return none
	}
	text := percent(w.More)
	if w.Interval != (stats.Interval{}) { // otherwise there are too few pairs
		text += fmt.Sprintf(" (%s to %s)", percent(w.Interval.Lo), percent(w.Interval.Hi))
	}
	return p.marked(h, text)
}

// livepage returns the load of a long run's page.
func (p *page) livepage() string {
	l, h := named[bench.LivePage](p.files, "live-page")
	if l == nil {
		return none
	}
	words := []string{fmt.Sprintf("%s at %d steps, %.1f ms a redraw", terminal.Bytes(l.PageBytes+l.DataBytes), l.Steps,
		l.MedianMS)}
	for _, g := range l.Grown {
		words = append(words, fmt.Sprintf("heap %s after %d", terminal.Bytes(g.HeapBytes), g.Steps))
	}
	return p.marked(h, strings.Join(words, ", "))
}

// shapes returns how long it takes to predict shapes.
func (p *page) shapes() string {
	s, h := named[timed.Shapes](p.files, "shapes")
	if s == nil || len(s.Rows) == 0 {
		return none
	}
	var words []string
	for _, r := range s.Rows {
		words = append(words, fmt.Sprintf("%s for %d of %d devices", terminal.Duration(r.MedianS), r.Shapes, r.Devices))
	}
	return p.marked(h, strings.Join(words, ", "))
}

// quick returns rows that compare first profiles with thorough ones.
func (p *page) quick() string {
	q, h := named[bench.Quick](p.files, "quick")
	if q == nil {
		return "| first profile (`lab/quick`) | " + none + " |"
	}
	var rows []string
	for i := range q.Models {
		m := &q.Models[i]
		rows = append(rows, fmt.Sprintf("| first profile of %s (`lab/quick`) | ", m.Model)+row(p.marked(h,
			fmt.Sprintf("%.0f s; thorough %.0f s; predictions %s apart; its plan %s behind", m.QuickS, m.ThoroughS,
				percent(math.Abs(m.Off())), percent(m.Behind())))))
	}
	return strings.Join(rows, "\n")
}
