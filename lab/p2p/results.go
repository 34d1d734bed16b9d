package p2p

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/millrace-ml/millrace/internal/stats"
	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/lab/record"
	"github.com/millrace-ml/millrace/report"
)

// Kind is the name of the benchmark in its files.
const Kind = "p2p"

// Results is the result of the benchmark, in the form of its file in lab/results.
type Results struct {
	record.Head
	Ways     []Way     `json:"ways"`
	Messages []Times   `json:"messages"` // times in one direction; ratios are raw TCP's time divided by this way's
	ComputeS float64   `json:"compute_s"`
	Arrivals []Arrival `json:"arrivals"`
	Sums     []Times   `json:"sums"` // ratios are millrace's time divided by this way's
}

// Way is a way of sending messages that was measured.
type Way struct {
	Name string `json:"name"`
	Doc  string `json:"doc"`
}

// Times are the times of one way with one size.
type Times struct {
	Way         string         `json:"way"`
	Bytes       int            `json:"bytes"`
	Seconds     []float64      `json:"seconds"` // by visit
	MedianS     float64        `json:"median_s"`
	LowerS      float64        `json:"lower_s"` // the lower quartile; UpperS is the upper one
	UpperS      float64        `json:"upper_s"`
	Ratios      []float64      `json:"ratios,omitempty"` // by pair
	MedianRatio float64        `json:"median_ratio,omitempty"`
	Interval    stats.Interval `json:"interval,omitzero"`
}

// Arrival is the arrival time of a message that was sent when both processes began to compute.
type Arrival struct {
	Way         string         `json:"way"`
	Bytes       int            `json:"bytes"`
	IdleS       []float64      `json:"idle_s"` // without computing, by pair
	BusyS       []float64      `json:"busy_s"`
	IdleMedianS float64        `json:"idle_median_s"`
	BusyMedianS float64        `json:"busy_median_s"`
	Ratios      []float64      `json:"ratios"`
	MedianRatio float64        `json:"median_ratio"`
	Interval    stats.Interval `json:"interval,omitzero"`
}

// judge computes medians and intervals.
func (r *Results) judge() (err error) {
	for _, all := range [][]Times{r.Messages, r.Sums} {
		for i := range all {
			t := &all[i]
			t.MedianS = stats.Median(t.Seconds)
			t.LowerS, t.UpperS = stats.Quartiles(t.Seconds)
			if len(t.Ratios) == 0 {
				continue
			}
			t.MedianRatio = stats.Median(t.Ratios)
			var failed error
			t.Interval, failed = stats.MedianInterval(t.Ratios, confidence)
			err = errors.Join(err, failed)
		}
	}
	for i := range r.Arrivals {
		a := &r.Arrivals[i]
		a.IdleMedianS, a.BusyMedianS = stats.Median(a.IdleS), stats.Median(a.BusyS)
		a.MedianRatio = stats.Median(a.Ratios)
		var failed error
		a.Interval, failed = stats.MedianInterval(a.Ratios, confidence)
		err = errors.Join(err, failed)
	}
	return err
}

// Kind returns the name of the benchmark, as in Head.Bench.
func (r *Results) Kind() string { return Kind }

// Recount returns an error for medians and intervals that do not follow from the visits.
func (r *Results) Recount() (wrong error) {
	for _, t := range slices.Concat(r.Messages, r.Sums) {
		name := fmt.Sprintf("%s, %s", size(t.Bytes), t.Way)
		wrong = errors.Join(wrong, r.Median(name+": median_s", t.Seconds, t.MedianS, stats.Interval{}))
		if len(t.Ratios) > 0 {
			wrong = errors.Join(wrong, r.Median(name+": median_ratio", t.Ratios, t.MedianRatio, t.Interval))
		}
	}
	for _, a := range r.Arrivals {
		wrong = errors.Join(wrong, r.Median(fmt.Sprintf("%s, %s: median_ratio", size(a.Bytes), a.Way), a.Ratios,
			a.MedianRatio, a.Interval))
	}
	return wrong
}

// size formats bytes.
func size(bytes int) string {
	if bytes >= 1<<20 {
		return fmt.Sprintf("%d MB", bytes>>20)
	}
	return fmt.Sprintf("%d KB", bytes>>10)
}

// Markdown writes the results in the form of BENCHMARKS.md.
func (r *Results) Markdown(w io.Writer) error {
	fmt.Fprintf(w, "%s, on %s (%d cores), load %s, in %s.\n\n", r.What, r.Machine.Processor, r.Machine.Cores,
		r.Machine.Load, terminal.Duration(r.TookS))
	t := report.Table{Head: []string{"message", "by", " one way", " quartiles", " of raw TCP's speed", " 95 % interval"}}
	addTimes(&t, r.Messages)
	if err := t.Markdown(w); err != nil {
		return err
	}
	busy := fmt.Sprintf(" both compute for %s", terminal.Duration(r.ComputeS))
	t = report.Table{Head: []string{"message", "by", " idle", busy, " busy over idle", " 95 % interval"}}
	for _, a := range r.Arrivals {
		t.Add(size(a.Bytes), a.Way, terminal.Duration(a.IdleMedianS), terminal.Duration(a.BusyMedianS),
			fmt.Sprintf("%.2f", a.MedianRatio), fmt.Sprintf("%.2f to %.2f", a.Interval.Lo, a.Interval.Hi))
	}
	fmt.Fprintln(w)
	if err := t.Markdown(w); err != nil {
		return err
	}
	t = report.Table{Head: []string{"sum of", "by", " time", " quartiles", " of millrace's speed", " 95 % interval"}}
	addTimes(&t, r.Sums)
	fmt.Fprintln(w)
	return t.Markdown(w)
}

func addTimes(t *report.Table, all []Times) {
	for _, x := range all {
		ratio, interval := "", ""
		if len(x.Ratios) > 0 {
			ratio = fmt.Sprintf("%.2f", x.MedianRatio)
			interval = fmt.Sprintf("%.2f to %.2f", x.Interval.Lo, x.Interval.Hi)
		}
		t.Add(size(x.Bytes), x.Way, terminal.Duration(x.MedianS),
			fmt.Sprintf("%s to %s", terminal.Duration(x.LowerS), terminal.Duration(x.UpperS)), ratio, interval)
	}
}
