package bapipe

import "fmt"

// Row is one column of BaPipe's Tables I and II for uniform stages 1..N.
type Row struct {
	TimeS  float64 // time of a mini-batch
	Bubble float64 // idle part of each accelerator's time; a transfer counts as idle
	// BandwidthBytesPerSecond is the bandwidth that a link needs for a feature of one byte.
	BandwidthBytesPerSecond float64
	// InRange says whether the formula matches a simulation. The formula of 1F1B-SO matches only if 2 SR <= F + B,
	// which the paper does not say. The other formulas always match.
	InRange bool
}

// families maps the paper's names to the families of package schedule.
var families = map[string]string{"1F1B-AS": "1f1b-as", "FBP-AS": "fbp-as", "1F1B-SNO": "1f1b", "1F1B-SO": "so"}

// Table evaluates BaPipe's Table I (families 1f1b-as, fbp-as) or Table II (so, and 1f1b for SNO). n is the number of
// stages and m the number of micro-batches; both must be 1 or more. f is the time of a forward and b the time of a
// backward; both must be over 0. sr is the time to send and receive one feature map or error. All times are in seconds.
func Table(family string, m, n int, f, b, sr float64) (Row, error) {
	if m < 1 || n < 1 || !(f > 0) || !(b > 0) || !(sr >= 0) {
		return Row{}, fmt.Errorf("plan: BaPipe's tables with M = %d, N = %d, F = %v s, B = %v s and SR = %v s; M and N must "+
			"be 1 at least, F and B over 0, SR not negative", m, n, f, b, sr)
	}
	timeS, err := stepOf(family, m, n, f+b, sr)
	if err != nil {
		return Row{}, err
	}
	row := Row{TimeS: timeS, Bubble: 1 - float64(m)*(f+b)/timeS, BandwidthBytesPerSecond: 1 / f, InRange: true}
	switch family {
	case "fbp-as":
		row.BandwidthBytesPerSecond = 2 / (f + b)
	case "so":
		row.InRange = 2*sr <= f+b
	}
	return row, nil
}

// stepOf returns the tables' time of a mini-batch. pace is the time of a forward and a backward together; it may be 0.
func stepOf(family string, m, n int, pace, sr float64) (float64, error) {
	M, N := float64(m), float64(n)
	compute := (M + N - 1) * pace
	switch family {
	case "1f1b-as", "fbp-as":
		return compute, nil
	case "1f1b":
		waves := float64((m - 1 + n - 1) / n) // ceil((M-1)/N)
		return compute + (N+M-2-waves)*2*sr, nil
	case "so":
		return compute + (N-1)*2*sr, nil
	}
	return 0, fmt.Errorf("plan: BaPipe's tables have no schedule %q; they have 1f1b-as, fbp-as, 1f1b (SNO) and so", family)
}

// featuresOf returns the largest number of micro-batches whose features a stage holds at once (fourth row of both
// tables). The stage is number i of n, counted from 0.
func featuresOf(family string, i, n, m int) int {
	k := n - i
	if family == "fbp-as" || family == "so" {
		k *= 2
	}
	return min(k, m)
}

// warmup returns how many forwards a stage runs before its first backward, so that it holds featuresOf micro-batches.
func warmup(family string, i, n, m int) int {
	k := featuresOf(family, i, n, m)
	if family == "fbp-as" {
		k = min(2*(n-i)-1, m) // the last features held are those of the forward that runs beside the first backward
	}
	return k
}
