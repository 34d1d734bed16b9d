package sim

import (
	"math"

	"github.com/millrace-ml/millrace/schedule"
)

// quartiles is the interquartile range of a normal distribution, in standard deviations.
const quartiles = 1.349

// mostSigma is the largest standard deviation that is used. A larger one comes from a measurement during which
// something interrupted the machine for longer than a computation takes. The exponential of such a deviation makes no
// sense.
const mostSigma = 0.25

// Variation returns the factor by which Noise of this Spread changes an instruction's median time. MeanVariation
// returns the mean of all such factors. A prediction from mean times needs both functions if its instructions are too
// few for their own factors to be a fair sample.
func Variation(in schedule.Instruction, spread float64) float64 { return jitter(in, spread/quartiles) }

// MeanVariation returns the mean of a log-normal distribution whose median is 1. See Variation.
func MeanVariation(spread float64) float64 {
	sigma := min(spread/quartiles, mostSigma)
	return math.Exp(sigma * sigma / 2)
}

// jitter returns an instruction's time divided by its median.
//
// A computation never takes exactly the same time twice, and a pipeline waits for the slowest computation. With
// constant times, two schedules may take equally long. On a real machine they still differ, if only one of them has a
// micro-batch in reserve when a neighbouring worker is late. So instructions take log-normal times around the measured
// medians with the measured spread. Each factor depends on the instruction only. So the same Program has the same
// timeline every time, whatever the order in which events are handled.
func jitter(in schedule.Instruction, sigma float64) float64 {
	if sigma == 0 {
		return 1
	}
	sigma = min(sigma, mostSigma)
	// Micro-batches 2k and 2k+1 use the same random number with opposite signs. Together they take at least twice the
	// median. So an even number of micro-batches never takes less time in total than with constant times.
	key := uint64(in.Kind)<<56 ^ uint64(in.Pipeline)<<48 ^ uint64(in.Replica)<<40 ^ uint64(in.Stage)<<28 ^
		uint64(uint32(in.Micro)>>1)
	if in.Micro&1 == 1 {
		sigma = -sigma
	}
	// A normal number from two uniform ones (Box and Muller); the first is never 0.
	u, v := float64(mixed(2*key)>>11+1)/(1<<53), float64(mixed(2*key+1)>>11)/(1<<53)
	return math.Exp(sigma * math.Sqrt(-2*math.Log(u)) * math.Cos(2*math.Pi*v))
}

// mixed is the output function of SplitMix64 (Steele, Lea and Flood, 2014).
func mixed(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
