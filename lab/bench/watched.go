package bench

import (
	"errors"
	"fmt"

	"github.com/millrace-ml/millrace/internal/stats"
	"github.com/millrace-ml/millrace/lab/record"
)

// Watched is what a run costs more that a page watches: everything that bench live found.
type Watched struct {
	record.Head
	Train    []string       `json:"train"` // flags of the training
	Pairs    []WatchedPair  `json:"pairs"`
	More     float64        `json:"more"` // part of a step that the watched one takes more, in the median
	Interval stats.Interval `json:"interval,omitzero"`
}

// WatchedPair is the median step of a run that nobody watches and of one that is.
type WatchedPair struct {
	AloneS   float64 `json:"alone_s"`
	WatchedS float64 `json:"watched_s"`
	Bytes    int64   `json:"bytes"` // that the page was sent
}

// Kind is the report's name in its file.
func (w *Watched) Kind() string { return "live" }

// Count fills in what the pairs say; of too few there is no interval.
func (w *Watched) Count() (err error) {
	more := w.more()
	w.More = stats.Median(more)
	if len(more) >= LeastRepeats {
		w.Interval, err = stats.MedianInterval(more, record.Confidence)
	}
	return err
}

// Recount refuses what the pairs do not give.
func (w *Watched) Recount() error { return w.Median("more", w.more(), w.More, w.Interval) }

// more is the part of a step that each watched one takes more.
func (w *Watched) more() (all []float64) {
	for _, p := range w.Pairs {
		all = append(all, p.WatchedS/p.AloneS-1)
	}
	return all
}

// LivePage is what a page of a long run takes of the browser that shows it.
type LivePage struct {
	record.Head
	Steps     int        `json:"steps"`      // when the page was opened
	PageBytes int64      `json:"page_bytes"` // sent until all was drawn: the page, its scripts and style
	DataBytes int64      `json:"data_bytes"` // of the run
	RedrawMS  []float64  `json:"redraw_ms"`  // each
	MedianMS  float64    `json:"median_ms"`
	MostMS    float64    `json:"most_ms"`
	Grown     []LiveHeld `json:"grown"`
}

// LiveHeld is what a page holds behind so many steps.
type LiveHeld struct {
	Steps     int   `json:"steps"`
	HeapBytes int64 `json:"heap_bytes"`
	Nodes     int64 `json:"nodes"`
	Listeners int64 `json:"listeners"`
}

// Kind is the figures' name in their file.
func (p *LivePage) Kind() string { return "livepage" }

// Recount refuses a median that is not of the redraws.
func (p *LivePage) Recount() error {
	return p.Median("median_ms", p.RedrawMS, p.MedianMS, stats.Interval{})
}

// Quick is a model's first profile beside a thorough one, for several models.
type Quick struct {
	record.Head
	Models []QuickModel `json:"models"`
}

// QuickModel is what the two profiles of a model say.
type QuickModel struct {
	Model string   `json:"model"`
	Plan  []string `json:"plan"` // the flags of profile and plan
	// Profiling takes so long.
	QuickS    float64 `json:"quick_s"`
	ThoroughS float64 `json:"thorough_s"`
	// The step of the quick profile's plan as that profile predicts it, and as the thorough one does.
	PredictedS float64 `json:"predicted_s"`
	LaterS     float64 `json:"later_s"`
	// BestS is the step of the plan that the thorough profile leads to.
	BestS float64 `json:"best_s"`
}

// Off is how far the quick profile's prediction is from the thorough one's, as a part of that.
func (m *QuickModel) Off() float64 { return m.PredictedS/m.LaterS - 1 }

// Behind is how much slower the plan of the quick profile is, by the thorough costs.
func (m *QuickModel) Behind() float64 { return m.LaterS/m.BestS - 1 }

// Kind is the figures' name in their file.
func (q *Quick) Kind() string { return "quick" }

// Recount refuses times that are none; each stands for itself.
func (q *Quick) Recount() (wrong error) {
	for _, m := range q.Models {
		if !(min(m.QuickS, m.ThoroughS, m.PredictedS, m.LaterS, m.BestS) > 0) {
			wrong = errors.Join(wrong, fmt.Errorf("%s: a time is 0 or less", m.Model))
		}
	}
	return wrong
}
