package bapipe

import "fmt"

// Row is one column of BaPipe's Tables I and II for uniform stages 1..N.
type Row struct {
	TimeS  float64 // of a mini-batch
	Bubble float64 // of each accelerator; transfers do not count as work
	// BandwidthBytesPerSecond is the bandwidth that a link needs for a feature of one byte.
	BandwidthBytesPerSecond float64
	// InRange says whether the formula matches a simulation. The formula of 1F1B-SO matches only if 2 SR <= F + B,
	// which the paper does not say. The other formulas always match.
	InRange bool
}

// families maps the paper's names to the families of package schedule.
var families = map[string]string{"1F1B-AS": "1f1b-as", "FBP-AS": "fbp-as", "1F1B-SNO": "1f1b", "1F1B-SO": "so"}

// Table evaluates BaPipe's Table I (families 1f1b-as, fbp-as) or Table II (so, and 1f1b for SNO). n is the number of
// stages and m of micro-batches. f and b are the times of a forward and a backward. sr is the time to send and receive
// one feature map or its gradient. All times are in seconds.
func Table(family string, m, n int, f, b, sr float64) (Row, error) {
	M, N := float64(m), float64(n)
	compute := (M + N - 1) * (f + b)
	row := Row{TimeS: compute, InRange: true}
	switch family {
	case "1f1b-as":
		row.BandwidthBytesPerSecond = 1 / f
	case "fbp-as":
		row.BandwidthBytesPerSecond = 2 / (f + b)
	case "1f1b":
		waves := float64((m - 1 + n - 1) / n) // ceil((M-1)/N)
		row.TimeS = compute + (N+M-2-waves)*2*sr
		row.BandwidthBytesPerSecond = 1 / f
	case "so":
		row.TimeS = compute + (N-1)*2*sr
		row.BandwidthBytesPerSecond = 1 / f
		row.InRange = 2*sr <= f+b
	default:
		return Row{}, fmt.Errorf("plan: BaPipe's tables have no schedule %q; they have 1f1b-as, fbp-as, 1f1b (SNO) "+
			"and so", family)
	}
	row.Bubble = 1 - M*(f+b)/row.TimeS
	return row, nil
}

// featuresOf returns the most micro-batches whose features a stage holds at once (fourth row of both tables). The stage
// is number i of n, counted from 0.
func featuresOf(family string, i, n, m int) int {
	k := n - i
	if family == "fbp-as" || family == "so" {
		k *= 2
	}
	return min(k, m)
}

// warmup returns the number of forwards before the first backward with which a stage holds featuresOf micro-batches.
func warmup(family string, i, n, m int) int {
	k := featuresOf(family, i, n, m)
	if family == "fbp-as" {
		k = min(2*(n-i)-1, m) // the last features held are those of the forward that runs beside the first backward
	}
	return k
}
