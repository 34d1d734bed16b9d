// Package stats computes what several numbers have in common: median, quartiles, mean, the interval of a
// median, correlation.
//
// In go slices of measurements, which are left as they are; out come single numbers. Of no numbers, median,
// quartiles and mean are 0. Refused: intervals of too few values, or of values that are no numbers.
//
// There is one meaning of a median here: the middle value, or the mean of the two in the middle. Whoever
// needs one of the things measured, and not a number between two of them, takes [Middle].
package stats

import (
	"math"
	"slices"
)

// Median is the middle one of values, or the mean of the two in the middle.
func Median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}

// Middle is the position of the median among so many sorted things, the lower one of two.
func Middle(n int) int { return (n - 1) / 2 }

// Quartiles are the values that a quarter, and three quarters, of all others are below: of so few that it
// matters, one of them each and no number between two.
func Quartiles(values []float64) (lower, upper float64) {
	if len(values) == 0 {
		return 0, 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/4], sorted[3*len(sorted)/4]
}

// Mean is the sum of values over their number.
func Mean(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}

// Correlation is Pearson's coefficient of two lists of the same length; 0 where one of them does not vary.
func Correlation(a, b []float64) float64 {
	ma, mb := Mean(a), Mean(b)
	var ab, aa, bb float64
	for i := range a {
		ab += (a[i] - ma) * (b[i] - mb)
		aa += (a[i] - ma) * (a[i] - ma)
		bb += (b[i] - mb) * (b[i] - mb)
	}
	if aa == 0 || bb == 0 {
		return 0
	}
	return ab / math.Sqrt(aa*bb)
}
