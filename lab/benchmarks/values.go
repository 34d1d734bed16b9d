package benchmarks

import (
	"fmt"
	"slices"
	"strings"

	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/lab/bench"
	"github.com/millrace-ml/millrace/lab/curves"
	"github.com/millrace-ml/millrace/lab/race"
	"github.com/millrace-ml/millrace/lab/record"
	"github.com/millrace-ml/millrace/lab/versus"
)

// rival returns a rival from the latest file that has it.
func (f files) rival(name string) (*bench.PeerRival, *record.Head) {
	for _, one := range slices.Backward(f) {
		r, ok := one.is.(*bench.PeersReport)
		if !ok {
			continue
		}
		for i := range r.Rivals {
			if r.Rivals[i].Name == name {
				return &r.Rivals[i], one.head
			}
		}
	}
	return nil, nil
}

// peer returns two cells about a rival. The first says how much faster millrace's choice is, the second how much faster
// millrace's pipeline is.
func (p *page) peer(name string) string {
	r, h := p.rival(name)
	if r == nil {
		return empty(2)
	}
	pipeline := "-"
	if r.Pipeline != nil {
		pipeline = gain(r.Pipeline)
	}
	return p.row(h, gain(&r.Choice), pipeline)
}

func gain(r *race.Result) string { return between("%.3f", r.MedianRatio, r.Interval) }

// speedup returns how much faster a pipeline is than one worker with one thread, and than one worker with two threads.
// It also returns which fraction of its bound the pipeline reaches.
func (p *page) speedup(name string) string {
	s, h := named[bench.Speedup](p.files, name)
	if s == nil || len(s.Results) < 2 {
		return none + " | " + empty(3)
	}
	of := "-"
	if s.OfBound > 0 {
		of = percent(s.OfBound)
	}
	return fmt.Sprintf("%s, %d micro-batches of %d | ", s.Model, s.Micros, s.Micro) +
		p.row(h, gain(&s.Results[0]), of, gain(&s.Results[1]))
}

// prediction returns the errors of a model's predictions.
func (p *page) prediction(name string) string {
	s, h := named[bench.Predictions](p.files, name)
	if s == nil {
		return empty(4)
	}
	u := s.Summary
	return p.row(h, percent(u.StepMedian)+", "+percent(u.StepWorst), percent(u.MemoryMedian)+", "+percent(u.MemoryWorst),
		fmt.Sprintf("%d of %d", u.Exact, u.Plans), fmt.Sprintf("%.3f", u.Correlation))
}

// tuner describes AvgPipe's tuner on a model.
func (p *page) tuner(name string) string {
	t, h := named[bench.Tuner](p.files, name)
	if t == nil {
		return none
	}
	return p.marked(h, fmt.Sprintf("steps are off by %s in the median and %s at worst, tuning costs %.2g settings of the "+
		"traversal, the choice is %s behind", percent(t.StepMedian), percent(t.StepWorst), t.Cost, percent(t.Behind)))
}

// orders returns rows for the schedules of files, except 1F1B.
func (p *page) orders(names ...string) string {
	var rows []string
	for _, name := range names {
		o, _ := named[bench.Orders](p.files, name)
		if o == nil {
			rows = append(rows, "| "+name+" | "+empty(3))
			continue
		}
		for _, one := range o.Orders {
			if one.Name != bench.BaseOrder {
				rows = append(rows, "| "+one.Name+" | "+p.order(name, one.Name))
			}
		}
	}
	return strings.Join(rows, "\n")
}

// order returns three cells about one schedule: its predicted gain, its measured gain, and the error of its predicted
// memory.
func (p *page) order(name, schedule string) string {
	o, h := named[bench.Orders](p.files, name)
	if o == nil {
		return empty(3)
	}
	for _, one := range o.Orders {
		if one.Name != schedule {
			continue
		}
		expected, off := "-", "-"
		if one.Expected > 0 {
			expected = fmt.Sprintf("%.3f", one.Expected)
		}
		if one.MemoryOff != nil {
			off = percent(*one.MemoryOff)
		}
		return p.row(h, expected, between("%.3f", one.Gain, one.Interval), off)
	}
	return empty(3)
}

// held returns the memory that a schedule needs with the largest number of micro-batches that was tried.
func (p *page) held(name, schedule string) string {
	m, h := named[bench.Memory](p.files, name)
	if m == nil {
		return none
	}
	var most *bench.Held
	for i := range m.Held {
		if one := &m.Held[i]; one.Schedule == schedule && (most == nil || one.MicroBatches > most.MicroBatches) {
			most = one
		}
	}
	if most == nil {
		return none
	}
	text := fmt.Sprintf("%s with %d micro-batches of %d", terminal.Bytes(slices.Max(most.Measured)), most.MicroBatches,
		m.MicroBatch)
	if len(most.Predicted) > 0 {
		text += fmt.Sprintf(" (predicted: %s)", terminal.Bytes(slices.Max(most.Predicted)))
	}
	return p.marked(h, text)
}

// methods returns rows on how methods learn.
func (p *page) methods(name string) string {
	r, h := named[curves.Report](p.files, name)
	if r == nil || len(r.Methods) == 0 {
		return "| " + none + " | " + empty(3)
	}
	var rows []string
	for _, m := range r.Methods {
		epochs, best := "-", fmt.Sprintf("%.4f", m.Best)
		if m.Reached > 0 {
			epochs = fmt.Sprintf("%.3f (%.3f to %.3f)", m.Mean, m.Least, m.Most)
		}
		if r.Metric == curves.Accuracy {
			best = fmt.Sprintf("%.2f %%", 100*m.Best)
		}
		rows = append(rows, fmt.Sprintf("| `%s` | %s", m.Name, p.row(h, epochs, fmt.Sprintf("%d of %d", m.Reached,
			m.Seeds), best)))
	}
	return strings.Join(rows, "\n")
}

// gains returns the gains of AvgPipe's settings over 1F1B.
func (p *page) gains(name string) string {
	r, h := named[curves.Report](p.files, name)
	if r == nil || len(r.Gains) == 0 {
		return none
	}
	var all []string
	for _, g := range r.Gains {
		target := ""
		if g.ToTarget > 0 {
			target = fmt.Sprintf(" and %.3f to the target", g.ToTarget)
		}
		all = append(all, p.marked(h, fmt.Sprintf("%s gains %s a batch%s in %s (1F1B: %s)", g.Name,
			between("%.3f", g.Gain, g.Interval), target, terminal.Bytes(g.PeakBytes), terminal.Bytes(g.BaseBytes))))
	}
	return strings.Join(all, "; ")
}

// imported returns rows that compare imported modules.
func (p *page) imported(names ...string) string {
	var rows []string
	for _, name := range names {
		r, h := named[bench.ImportedReport](p.files, name)
		if r == nil {
			rows = append(rows, "| "+name+" | "+empty(3))
			continue
		}
		for _, m := range r.Modules {
			for i := range m.Speeds {
				s := &m.Speeds[i]
				rows = append(rows, "| "+s.A.Name+" | "+s.B.Name+" | "+p.row(h,
					between("%.2f", s.MedianRatio, s.Interval), fmt.Sprint(len(s.Ratios))))
			}
		}
	}
	return strings.Join(rows, "\n")
}

// processes returns the speed of processes relative to threads, for the case whose name begins with the given text.
func (p *page) processes(of string) string {
	r, h := named[versus.Results](p.files, "processes")
	if r == nil {
		return none
	}
	for _, one := range r.Rows {
		if strings.HasPrefix(one.Name, of) {
			return p.marked(h, between("%.3f", one.Speed, one.Interval))
		}
	}
	return none
}
