package benchmarks

import (
	"fmt"
	"math"
	"strings"

	"github.com/millrace-ml/millrace/lab/bench"
	"github.com/millrace-ml/millrace/lab/curves"
	"github.com/millrace-ml/millrace/lab/p2p"
	"github.com/millrace-ml/millrace/lab/record"
)

// target is a value that a result should reach.
type target struct {
	what   string
	is     float64
	format string // format of both numbers
	most   bool   // true: the result must be at most `is`; false: at least `is`
	found  func(p *page) (value float64, h *record.Head)
}

var targets = []target{
	{"the worst predicted step of 20 splits of gpt is off by", .05, "%.0f %%", true, worst("prediction-gpt")},
	{"the worst predicted step of 20 splits of convnet is off by", .05, "%.0f %%", true, worst("prediction-convnet")},
	{"the 2-stage pipeline over sync.Pipe", 1.7, "%.2f", false, func(p *page) (float64, *record.Head) {
		r, h := p.rival("pipe")
		if r == nil || r.Pipeline == nil {
			return 0, nil
		}
		return r.Pipeline.MedianRatio, h
	}},
	{"gpt over one worker, of the bound", .95, "%.1f %%", false, ofBound("speedup-gpt")},
	{"convnet over one worker, of the bound", .95, "%.1f %%", false, ofBound("speedup-convnet")},
	{"messages of 4 KB, of raw TCP's speed", .7, "%.2f", false, func(p *page) (float64, *record.Head) {
		r, h := named[p2p.Results](p.files, "p2p")
		if r != nil {
			for _, m := range r.Messages {
				if m.Way == "millrace" && m.Bytes == 4096 {
					return m.MedianRatio, h
				}
			}
		}
		return 0, nil
	}},
	{"AvgPipe with 2 pipelines, epochs more than `sync`", .10, "%.0f %%", true, moreEpochs("elastic:2")},
	{"AvgPipe with 3 pipelines, epochs more than `sync`", .10, "%.0f %%", true, moreEpochs("elastic:3")},
	{"mlp's first profile, prediction from the thorough one's", .20, "%.2f %%", true, firstProfile("mlp")},
	{"imported gpt over 1F1B by hand", 1.1, "%.2f", false, func(p *page) (float64, *record.Head) {
		r, h := named[bench.ImportedReport](p.files, "imported-gpt")
		if r == nil || len(r.Modules) == 0 || len(r.Modules[0].Speeds) == 0 {
			return 0, nil
		}
		return r.Modules[0].Speeds[0].MedianRatio, h
	}},
}

func worst(name string) func(p *page) (float64, *record.Head) {
	return func(p *page) (float64, *record.Head) {
		s, h := named[bench.Predictions](p.files, name)
		if s == nil {
			return 0, nil
		}
		return s.Summary.StepWorst, h
	}
}

func ofBound(name string) func(p *page) (float64, *record.Head) {
	return func(p *page) (float64, *record.Head) {
		s, h := named[bench.Speedup](p.files, name)
		if s == nil {
			return 0, nil
		}
		return s.OfBound, h
	}
}

// moreEpochs returns a function for the first method whose name has this prefix. The function finds how many more
// epochs the method needs than sync.
func moreEpochs(prefix string) func(p *page) (float64, *record.Head) {
	return func(p *page) (float64, *record.Head) {
		r, h := named[curves.Report](p.files, "curves-learn")
		if r == nil {
			return 0, nil
		}
		sync := 0.0
		for _, m := range r.Methods {
			if m.Name == "sync" {
				sync = m.Mean
			}
			if strings.HasPrefix(m.Name, prefix) && sync > 0 && m.Mean > 0 {
				return m.Mean/sync - 1, h
			}
		}
		return 0, nil
	}
}

func firstProfile(model string) func(p *page) (float64, *record.Head) {
	return func(p *page) (float64, *record.Head) {
		q, h := named[bench.Quick](p.files, "quick")
		if q != nil {
			for i := range q.Models {
				if q.Models[i].Model == model {
					return math.Abs(q.Models[i].Off()), h
				}
			}
		}
		return 0, nil
	}
}

// missed returns a table of the targets that were not reached or not measured.
func (p *page) missed() string {
	rows := []string{"| what | target | measured |", "|---|---:|---:|"}
	for _, t := range targets {
		is, h := t.found(p)
		if h == nil {
			rows = append(rows, "| "+t.what+" | "+row(t.says(), none))
		} else if t.most && is > t.is || !t.most && is < t.is {
			rows = append(rows, "| "+t.what+" | "+row(t.says(), p.marked(h, t.number(is))))
		}
	}
	return strings.Join(rows, "\n")
}

func (t *target) says() string {
	if t.most {
		return "at most " + t.number(t.is)
	}
	return "at least " + t.number(t.is)
}

func (t *target) number(x float64) string {
	if strings.HasSuffix(t.format, "%%") {
		x *= 100
	}
	return fmt.Sprintf(t.format, x)
}
