package versus

import (
	"context"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/millrace-ml/millrace/internal/stats"
)

// Splits compares one build's predictions of random plans of a model with its measurements.
type Splits struct {
	Model       string  `json:"model"`
	Build       string  `json:"build"`
	Plans       []Split `json:"plans"`
	Ratio       float64 `json:"ratio"` // median of the measured step divided by the predicted step
	Lower       float64 `json:"lower"` // Lower and Upper are the quartiles of the ratio
	Upper       float64 `json:"upper"`
	OffMedian   float64 `json:"off_median"` // median relative error of the predictions
	OffWorst    float64 `json:"off_worst"`
	Correlation float64 `json:"correlation"` // between predicted and measured throughput
}

// Split is one plan with its predicted and measured step.
type Split struct {
	Settings   string  `json:"settings"`
	PredictedS float64 `json:"predicted_s"`
	MeasuredS  float64 `json:"measured_s"`
}

// RandomSplits returns settings of random plans over a model's layers: cuts, a schedule, micro-batches, recompute.
// It uses only two numbers of micro-batches, because both builds must measure a profile for each.
func RandomSplits(seed uint64, count, layers, workers int) [][]string {
	rng := rand.New(rand.NewPCG(seed, 7))
	sizes := []int{4, 8}
	var all [][]string
	for range count {
		cuts := rng.Perm(layers - 1)[:min(workers, layers)-1]
		slices.Sort(cuts)
		words := make([]string, len(cuts))
		for i, cut := range cuts {
			words[i] = fmt.Sprint(cut + 1)
		}
		all = append(all, []string{"--split", strings.Join(words, ","), "--schedule",
			[]string{"1f1b", "afab", "pb"}[rng.IntN(3)],
			"--micro-batches", fmt.Sprint(sizes[rng.IntN(len(sizes))]), "--recompute", []string{"none", "none", "stage",
				"every:2"}[rng.IntN(4)]})
	}
	return all
}

// Predict trains every plan once on each build, and compares the predictions with the measured steps. The builds take
// turns at going first. Before the first plan, each build measures its profile in a training that is not counted.
func Predict(ctx context.Context, old, new *Build, s Subject, workers int, plans [][]string,
	log io.Writer) ([]Splits, error) {
	found := []Splits{{Model: s.Model, Build: old.Name}, {Model: s.Model, Build: new.Name}}
	steps := leastSteps
	for _, b := range []*Build{old, new} { // this training also measures the build's profile
		t, err := b.train(ctx, leastSteps, append(s.settings(workers), plans[0]...)...)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.Model, err)
		}
		steps = max(steps, stepsFor(t.Measured))
	}
	for i, plan := range plans {
		order := []int{0, 1}
		if i%2 == 1 {
			order = []int{1, 0}
		}
		for _, at := range order {
			b := []*Build{old, new}[at]
			settings := append(s.settings(workers), plan...)
			t, err := b.train(ctx, steps, settings...)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", s.Model, err)
			}
			found[at].Plans = append(found[at].Plans, Split{strings.Join(plan, " "), t.Predicted, t.Measured})
			fmt.Fprintf(log, "  %s, split %d of %d, %s: measured %.3f of predicted\n", s.Model, i+1, len(plans), b.Name,
				t.Measured/t.Predicted)
		}
	}
	for i := range found {
		found[i].count()
	}
	return found, nil
}

// count computes the summary from the plans.
func (s *Splits) count() {
	var ratios, off, predicted, measured []float64
	for _, p := range s.Plans {
		ratios, off = append(ratios, p.MeasuredS/p.PredictedS), append(off, math.Abs(p.PredictedS-p.MeasuredS)/p.MeasuredS)
		predicted, measured = append(predicted, 1/p.PredictedS), append(measured, 1/p.MeasuredS)
	}
	s.Ratio, s.OffMedian, s.OffWorst = stats.Median(ratios), stats.Median(off), slices.Max(off)
	s.Lower, s.Upper = stats.Quartiles(ratios)
	s.Correlation = stats.Correlation(predicted, measured)
}
