package stats

import (
	"fmt"
	"math"
	"slices"
)

// Interval holds the true median with at least the probability Confidence.
type Interval struct {
	Lo         float64 `json:"lo"`
	Hi         float64 `json:"hi"`
	Confidence float64 `json:"confidence"`
}

// MedianInterval is the narrowest pair of order statistics x(k), x(n+1-k) that holds the median with a given
// confidence. The median is that of the distribution behind the values. It assumes that values are independent and
// nothing of their shape.
//
// Of n values, the number below the true median is binomial with n and 1/2; the pair
// misses it when fewer than k values lie on one side, so its confidence is
// 1 - 2 P(X < k) (David and Nagaraja, Order Statistics, 3rd ed., section 7.1).
//
// It refuses too few values: 6 are the least for 0.95.
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
	below := 0.0 // P(X < k+1)
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

// rounding is the error allowed in sums of a confidence, so that one that is reached exactly counts as reached.
const rounding = 1e-12

// Fewest is how many values have a range, x(1) to x(n), that reaches a confidence: 1 - 2/2^n.
func Fewest(confidence float64) int {
	return int(math.Ceil(1 - math.Log2(1-confidence)))
}

// binomialHalf is P(X = k) for n throws of a fair coin, by logarithms so that no
// factorial overflows.
func binomialHalf(n, k int) float64 {
	ln := func(x int) float64 { v, _ := math.Lgamma(float64(x + 1)); return v }
	return math.Exp(ln(n) - ln(k) - ln(n-k) - float64(n)*math.Ln2)
}
