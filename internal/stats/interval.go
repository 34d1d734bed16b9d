package stats

import (
	"fmt"
	"math"
	"slices"
)

// Interval contains the true median with at least the probability Confidence.
type Interval struct {
	Lo         float64 `json:"lo"`
	Hi         float64 `json:"hi"`
	Confidence float64 `json:"confidence"`
}

// MedianInterval returns the narrowest pair of order statistics x(k), x(n+1-k) that contains the true median with a
// given confidence. The true median is the median of the distribution from which the values are drawn. The values must
// be independent; their distribution may have any shape.
//
// The number X of the n values that lie below the true median is binomial with n and 1/2. The pair misses the median if
// fewer than k values lie on one side of the median. So the pair's confidence is 1 - 2 P(X < k) (David and Nagaraja,
// Order Statistics, 3rd ed., section 7.1).
//
// It returns an error for too few values: a confidence of 0.95 needs at least 6 values.
func MedianInterval(values []float64, confidence float64) (Interval, error) {
	if confidence <= 0 || confidence >= 1 {
		return Interval{}, fmt.Errorf("stats: a confidence of %v; it must lie between 0 and 1", confidence)
	}
	for i, v := range values {
		if math.IsNaN(v) {
			return Interval{}, fmt.Errorf("stats: value %d of %d is not a number", i, len(values))
		}
	}
	n := len(values)
	k, reached := 0, 0.0
	below := 0.0 // probability that fewer than `next` values lie below the median
	for next := 1; next <= (n+1)/2; next++ {
		below += binomialHalf(n, next-1)
		if c := 1 - 2*below; c >= confidence-rounding {
			k, reached = next, c
		}
	}
	if k == 0 {
		return Interval{}, fmt.Errorf("stats: %d values are too few for an interval of %v; take %d",
			n, confidence, Fewest(confidence))
	}
	sorted := slices.Sorted(slices.Values(values))
	return Interval{Lo: sorted[k-1], Hi: sorted[n-k], Confidence: reached}, nil
}

// rounding is the tolerance of a comparison with a confidence. A probability that falls short of it only by rounding is
// accepted.
const rounding = 1e-12

// Fewest returns how many values are needed so that the median lies between the least and the greatest with a given
// confidence. For n values that confidence is 1 - 2/2^n.
func Fewest(confidence float64) int {
	return int(math.Ceil(1 - math.Log2(1-confidence)))
}

// binomialHalf returns the probability of k heads in n throws of a fair coin. It uses logarithms, so that no factorial
// overflows.
func binomialHalf(n, k int) float64 {
	ln := func(x int) float64 { v, _ := math.Lgamma(float64(x + 1)); return v }
	return math.Exp(ln(n) - ln(k) - ln(n-k) - float64(n)*math.Ln2)
}
