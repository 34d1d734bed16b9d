package race

import (
	"context"
	"fmt"

	"github.com/millrace-ml/millrace/internal/stats"
)

// confidence is the minimal confidence of every interval in a Result.
const confidence = 0.95

// Pair is two visits in sequence, one to each of two runners.
type Pair struct {
	Done, Of int // the number of this pair, and of all pairs
	A, B     Work
	AFirst   bool
}

// Ratio returns A's rate divided by B's.
func (p Pair) Ratio() float64 { return p.A.Rate() / p.B.Rate() }

// Side is one runner's half of a Result.
type Side struct {
	Name   string    `json:"name"`
	Rates  []float64 `json:"rates"`  // samples per second, by pair
	Median float64   `json:"median"` // samples per second
}

// Result is the result of comparing A with B. A ratio above 1 means that A was faster.
type Result struct {
	A              Side      `json:"a"`
	B              Side      `json:"b"`
	Ratios         []float64 `json:"ratios"` // A's rate over B's, by pair
	MedianRatio    float64   `json:"median_ratio"`
	stats.Interval           // confidence interval of the median ratio
}

// Pairs visits the runners `a` and `b` n times each, in pairs, and compares them.
//
// A temporary slowdown of the machine affects both visits of a pair, so the ratio of a pair is more stable than the
// rates. A and B take turns at going first, so a drift within pairs favours neither. Runners should be warm; see
// [Warm]. If progress is not nil, it is called after every pair.
//
// It refuses fewer pairs than the interval needs (6), and stops at the first error.
func Pairs(ctx context.Context, a, b Runner, n int, progress func(Pair)) (Result, error) {
	if least := stats.Fewest(confidence); n < least {
		return Result{}, fmt.Errorf("race: %d pairs of %s and %s; an interval of %v takes %d at least",
			n, a.Name(), b.Name(), confidence, least)
	}
	result := Result{A: Side{Name: a.Name()}, B: Side{Name: b.Name()}}
	for i := range n {
		p, err := pair(ctx, a, b, i%2 == 0)
		if err != nil {
			return Result{}, err
		}
		p.Done, p.Of = i+1, n
		result.A.Rates = append(result.A.Rates, p.A.Rate())
		result.B.Rates = append(result.B.Rates, p.B.Rate())
		result.Ratios = append(result.Ratios, p.Ratio())
		if progress != nil {
			progress(p)
		}
	}
	result.A.Median, result.B.Median = stats.Median(result.A.Rates), stats.Median(result.B.Rates)
	result.MedianRatio = stats.Median(result.Ratios)
	var err error
	result.Interval, err = stats.MedianInterval(result.Ratios, confidence)
	return result, err
}

func pair(ctx context.Context, a, b Runner, aFirst bool) (Pair, error) {
	p := Pair{AFirst: aFirst}
	first, second := a, b
	if !aFirst {
		first, second = b, a
	}
	one, err := visit(ctx, first)
	if err != nil {
		return Pair{}, err
	}
	two, err := visit(ctx, second)
	if err != nil {
		return Pair{}, err
	}
	p.A, p.B = one, two
	if !aFirst {
		p.A, p.B = two, one
	}
	return p, nil
}
