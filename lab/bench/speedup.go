package bench

import (
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/millrace-ml/millrace/internal/stats"
	"github.com/millrace-ml/millrace/lab/race"
	"github.com/millrace-ml/millrace/lab/record"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/family"
)

// Speedup is the result of bench speedup.
type Speedup struct {
	record.Head
	Model    string            `json:"model"`
	Micros   int               `json:"micro_batches"`
	Micro    int               `json:"micro_batch"` // in samples
	Plan     string            `json:"plan"`
	Singles  [][]race.Measured `json:"singles"` // one worker, with one thread and with two
	Results  []race.Result     `json:"results"` // races against the best single worker, with one thread and with two
	Pairs    []speedupPair     `json:"pairs"`   // pairs of the race against one thread
	Bound    float64           `json:"bound"`   // Bound, OfBound, Work and Waiting are medians of the pairs
	OfBound  float64           `json:"of_bound"`
	Interval stats.Interval    `json:"of_bound_interval,omitzero"`
	Work     float64           `json:"work"`
	Waiting  float64           `json:"waiting"`
}

// Kind returns the name of the benchmark, as in Head.Bench.
func (s *Speedup) Kind() string { return "speedup" }

// Recount returns an error for results and bounds that do not follow from the pairs.
func (s *Speedup) Recount() (wrong error) {
	for _, r := range s.Results {
		wrong = errors.Join(wrong, recount(&s.Head, s.Model, &r))
	}
	var bounds, reached []float64
	for _, p := range s.Pairs {
		bounds, reached = append(bounds, p.Bound), append(reached, p.OfBound)
	}
	return errors.Join(wrong, s.Median("bound", bounds, s.Bound, stats.Interval{}),
		s.Median("of_bound", reached, s.OfBound, s.Interval))
}

// speedupPair compares the speedup of one pair of visits with its bound.
type speedupPair struct {
	BusyS   []float64 `json:"busy_s"`   // each worker's computing time in a step
	Bound   float64   `json:"bound"`    // largest possible speedup over one thread; see boundOf
	OfBound float64   `json:"of_bound"` // fraction of the bound that was reached
	Work    float64   `json:"work"`     // computing time of all workers, divided by the single worker's step
	Waiting float64   `json:"waiting"`  // step of the pipeline, divided by the least step that the bound allows
}

// Bounded computes, for each pair against one thread, the bound and the fraction of it that was reached. `busy` has,
// for each pair, the computing time of each pipeline worker in a step.
func (s *Speedup) Bounded(pl *plan.Plan, one race.Result, busy [][]float64) (err error) {
	var bounds, reached, work, waiting []float64
	for i, shares := range busy {
		all := 0.0
		for _, b := range shares {
			all += b
		}
		pair := speedupPair{BusyS: shares, Bound: boundOf(pl, shares), Work: all * one.B.Rates[i] / float64(pl.StepSamples())}
		pair.OfBound = one.Ratios[i] / pair.Bound
		pair.Waiting = 1 / (pair.OfBound * pair.Work)
		s.Pairs = append(s.Pairs, pair)
		bounds, reached, work, waiting = append(bounds, pair.Bound), append(reached, pair.OfBound), append(work,
			pair.Work), append(waiting, pair.Waiting)
	}
	s.Bound, s.OfBound = stats.Median(bounds), stats.Median(reached)
	s.Work, s.Waiting = stats.Median(work), stats.Median(waiting)
	s.Interval, err = stats.MedianInterval(reached, one.Confidence)
	return err
}

// boundOf returns the largest possible speedup of a plan. For a straight pipeline that flushes and does not split
// backwards, the bound is race.StageBound. For other plans the bound considers only the busiest worker and not the time
// to fill the pipeline. There are three reasons. Workers with several stages or replicas need not wait for each other.
// Split backwards fill the end of a step. A pipeline without a flush fills only once.
func boundOf(pl *plan.Plan, busy []float64) float64 {
	f, err := family.Lookup(pl.Schedule)
	fills := err == nil && f.General == BaseOrder && schedule.Policy(pl.Weights).Flushes() && len(pl.Stages) == len(busy)
	for _, s := range pl.Stages {
		fills = fills && len(s.Devices) == 1
	}
	if !fills {
		return race.StageBound(busy, math.MaxInt)
	}
	return race.StageBound(busy, pl.MicroBatches)
}

// SettleSteps is how many steps are left out at the beginning of a measured training, because memory grows in them.
const SettleSteps = 3

// Write prints the result for people.
func (s *Speedup) Write(out io.Writer, unit race.Unit) error {
	fmt.Fprintf(out, "%s\n\n", s.Plan)
	if err := race.WriteResults(out, unit, s.Results); err != nil {
		return err
	}
	fmt.Fprintf(out, "\nBy what its workers computed, and its fill, the pipeline can be no more than %.3f times as fast "+
		"as one worker of one thread. Reached: %.1f %% (%.1f to %.1f).\n"+
		"Together its workers computed %.3f times as long as the single worker took; a step was %.3f times the least that "+
		"their shares and the fill allow. All are medians over the pairs.\n\n",
		s.Bound, 100*s.OfBound, 100*s.Interval.Lo, 100*s.Interval.Hi, s.Work, s.Waiting)
	for i, singles := range s.Singles {
		fmt.Fprintf(out, "One worker, %s:\n\n", []string{"one thread", "two threads"}[i])
		if err := race.WriteSweep(out, unit, singles); err != nil {
			return err
		}
		fmt.Fprintln(out)
	}
	return nil
}
