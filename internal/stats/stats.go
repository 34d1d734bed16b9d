// Package stats computes statistics of numbers: median, quartiles, mean, the interval of a median, correlation.
//
// Input: slices of measurements, which are not changed. Output: single numbers. The median, quartiles and mean of no
// numbers are 0. Intervals of too few values, or of NaN, are refused.
//
// The median is always the middle value, or the mean of the two middle ones. To select one of several sorted
// measurements, use the index that [Middle] returns.
package stats

import (
	"math"
	"slices"
)

// Median returns the middle value, or the mean of the two middle ones.
func Median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}

// Middle returns the index of the middle one of n sorted values. If two are in the middle, it returns the lower index.
func Middle(n int) int { return (n - 1) / 2 }

// Quartiles returns the lower and the upper quartile. A quarter of all values lies below the lower one, and three
// quarters below the upper one. Each quartile is one of the values, without interpolation.
func Quartiles(values []float64) (lower, upper float64) {
	if len(values) == 0 {
		return 0, 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/4], sorted[3*len(sorted)/4]
}

// Mean returns the sum of values divided by their number.
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

// Correlation returns Pearson's coefficient of two lists of the same length; 0 if one of them does not vary.
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
