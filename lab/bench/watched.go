package bench

import (
	"errors"
	"fmt"

	"github.com/millrace-ml/millrace/internal/stats"
	"github.com/millrace-ml/millrace/lab/record"
)

// Watched is the result of bench live: how much slower a run is while a page watches it.
type Watched struct {
	record.Head
	Train    []string       `json:"train"` // flags of the training
	Pairs    []WatchedPair  `json:"pairs"`
	More     float64        `json:"more"` // median of the relative increases of the step
	Interval stats.Interval `json:"interval,omitzero"`
}

// WatchedPair holds the median step of a run without a page, and the median step of a run with a page.
type WatchedPair struct {
	AloneS   float64 `json:"alone_s"`
	WatchedS float64 `json:"watched_s"`
	Bytes    int64   `json:"bytes"` // sent to the page
}

// Kind returns the name of the benchmark, as in Head.Bench.
func (w *Watched) Kind() string { return "live" }

// Count fills in the numbers from the pairs. With too few pairs there is no interval.
func (w *Watched) Count() (err error) {
	more := w.more()
	w.More = stats.Median(more)
	if len(more) >= LeastRepeats {
		w.Interval, err = stats.MedianInterval(more, record.Confidence)
	}
	return err
}

// Recount returns an error for numbers that do not follow from the pairs.
func (w *Watched) Recount() error { return w.Median("more", w.more(), w.More, w.Interval) }

// more returns the relative increase of each watched step.
func (w *Watched) more() (all []float64) {
	for _, p := range w.Pairs {
		all = append(all, p.WatchedS/p.AloneS-1)
	}
	return all
}

// LivePage is the load that the page of a long run puts on the browser that shows it.
type LivePage struct {
	record.Head
	Steps     int        `json:"steps"`      // steps done when the page was opened
	PageBytes int64      `json:"page_bytes"` // of the page, its scripts and its style, until all was drawn
	DataBytes int64      `json:"data_bytes"` // bytes of the run's data
	RedrawMS  []float64  `json:"redraw_ms"`  // time of each redraw
	MedianMS  float64    `json:"median_ms"`
	MostMS    float64    `json:"most_ms"`
	Grown     []LiveHeld `json:"grown"`
}

// LiveHeld is the memory that a page needs in the browser after this many steps, with its nodes and listeners.
type LiveHeld struct {
	Steps     int   `json:"steps"`
	HeapBytes int64 `json:"heap_bytes"`
	Nodes     int64 `json:"nodes"`
	Listeners int64 `json:"listeners"`
}

// Kind returns the name of the benchmark, as in Head.Bench.
func (p *LivePage) Kind() string { return "livepage" }

// Recount returns an error if the median does not follow from the redraws.
func (p *LivePage) Recount() error {
	return p.Median("median_ms", p.RedrawMS, p.MedianMS, stats.Interval{})
}

// Quick compares the first, quick profiles of models with thorough ones.
type Quick struct {
	record.Head
	Models []QuickModel `json:"models"`
}

// QuickModel compares the two profiles of a model.
type QuickModel struct {
	Model string   `json:"model"`
	Plan  []string `json:"plan"` // the flags of profile and plan
	// The durations of measuring the two profiles.
	QuickS    float64 `json:"quick_s"`
	ThoroughS float64 `json:"thorough_s"`
	// The step of the quick profile's plan, as predicted by the quick profile and by the thorough one.
	PredictedS float64 `json:"predicted_s"`
	LaterS     float64 `json:"later_s"`
	// BestS is the step of the thorough profile's plan, as predicted by that profile.
	BestS float64 `json:"best_s"`
}

// Off returns the relative error of the quick profile's prediction.
func (m *QuickModel) Off() float64 { return m.PredictedS/m.LaterS - 1 }

// Behind returns the relative slowdown of the quick profile's plan compared with the thorough profile's plan. Both
// steps are predicted with the thorough costs.
func (m *QuickModel) Behind() float64 { return m.LaterS/m.BestS - 1 }

// Kind returns the name of the benchmark, as in Head.Bench.
func (q *Quick) Kind() string { return "quick" }

// Recount returns an error for times that are not positive. No number here is computed from other ones.
func (q *Quick) Recount() (wrong error) {
	for _, m := range q.Models {
		if !(min(m.QuickS, m.ThoroughS, m.PredictedS, m.LaterS, m.BestS) > 0) {
			wrong = errors.Join(wrong, fmt.Errorf("%s: a time is 0 or less", m.Model))
		}
	}
	return wrong
}
