package versus

import (
	"context"
	"fmt"
	"io"

	"github.com/millrace-ml/millrace/internal/stats"
)

// Case is a task that both builds run, and whose durations are compared.
type Case struct {
	Name string
	// Limit is the lowest allowed speed of the new build relative to the old one; 0: no limit.
	Limit float64
	Pairs int
	// Prepare does what has to be done before the measurement, without being measured itself. It returns a function
	// that measures one visit to a build and returns its time in seconds.
	Prepare func(ctx context.Context, old, new *Build) (visit func(context.Context, *Build) (float64, error), err error)
}

// Row is the result of a case.
type Row struct {
	Name       string         `json:"name"`
	OldS       []float64      `json:"old_s"` // seconds of each pair
	NewS       []float64      `json:"new_s"`
	OldMedianS float64        `json:"old_median_s"`
	NewMedianS float64        `json:"new_median_s"`
	Speed      float64        `json:"speed"` // speed of the new build divided by the old build's, median over pairs
	Interval   stats.Interval `json:"interval,omitzero"`
	Limit      float64        `json:"limit,omitempty"`
	Slower     bool           `json:"slower"` // the whole interval is below the limit
}

const confidence = 0.95

// Compare visits both builds in pairs. The builds take turns at going first. Before the pairs, it visits each build
// once, and does not count these visits.
func Compare(ctx context.Context, old, new *Build, c Case, log io.Writer) (Row, error) {
	row := Row{Name: c.Name, Limit: c.Limit}
	if least := stats.Fewest(confidence); c.Pairs < least {
		return row, fmt.Errorf("versus: %s: %d pairs; an interval takes %d at least", c.Name, c.Pairs, least)
	}
	visit, err := c.Prepare(ctx, old, new)
	if err != nil {
		return row, fmt.Errorf("%s: %w", c.Name, err)
	}
	for pair := range c.Pairs + 1 {
		took := map[*Build]float64{}
		order := []*Build{old, new}
		if pair%2 == 1 {
			order = []*Build{new, old}
		}
		for _, b := range order {
			if took[b], err = visit(ctx, b); err != nil {
				return row, fmt.Errorf("%s: %w", c.Name, err)
			}
			if !(took[b] > 0) {
				return row, fmt.Errorf("versus: %s: the %s build took %v s", c.Name, b.Name, took[b])
			}
			if pair == 0 {
				fmt.Fprintf(log, "  %s: the %s build takes %.3g s\n", c.Name, b.Name, took[b])
			}
		}
		if pair > 0 {
			row.OldS, row.NewS = append(row.OldS, took[old]), append(row.NewS, took[new])
			fmt.Fprintf(log, "  %s, pair %d of %d: %.3f\n", c.Name, pair, c.Pairs, took[old]/took[new])
		}
	}
	return row, row.judge()
}

// ratios returns the speed of the new build relative to the old one, by pair.
func (r *Row) ratios() ([]float64, error) {
	if len(r.OldS) != len(r.NewS) {
		return nil, fmt.Errorf("%s: %d times of one build and %d of the other", r.Name, len(r.OldS), len(r.NewS))
	}
	ratios := make([]float64, len(r.OldS))
	for i := range ratios {
		ratios[i] = r.OldS[i] / r.NewS[i]
	}
	return ratios, nil
}

// judge computes medians and the interval from the pairs.
func (r *Row) judge() (err error) {
	ratios, err := r.ratios()
	if err != nil {
		return err
	}
	r.OldMedianS, r.NewMedianS, r.Speed = stats.Median(r.OldS), stats.Median(r.NewS), stats.Median(ratios)
	if r.Interval, err = stats.MedianInterval(ratios, confidence); err != nil {
		return fmt.Errorf("%s: %w", r.Name, err)
	}
	r.Slower = r.Limit > 0 && r.Interval.Hi < r.Limit
	return nil
}
