package sim

import (
	"math"

	"github.com/millrace-ml/millrace/schedule"
)

// quartiles is the distance of the quartiles of a normal distribution in standard deviations.
const quartiles = 1.349

// mostSigma is the largest deviation that computations are given. Larger ones were measured on a
// machine that something interrupted for longer than a computation takes: of an exponential of them
// nothing sensible comes.
const mostSigma = 0.25

// Variation is the factor by which Noise has an instruction with such a Spread take longer than its median.
// MeanVariation is the mean of all such factors: of instructions few enough that theirs are no fair sample, a
// prediction that starts from means has to know both.
func Variation(in schedule.Instruction, spread float64) float64 { return jitter(in, spread/quartiles) }

// MeanVariation: see Variation. It is the mean of a log-normal distribution whose median is 1.
func MeanVariation(spread float64) float64 {
	sigma := min(spread/quartiles, mostSigma)
	return math.Exp(sigma * sigma / 2)
}

// jitter is what an instruction takes beyond its median, as a factor.
//
// A computation never takes the same time twice, and a pipeline waits for whoever was slow:
// two schedules that tie with constant times differ on a real machine, because only one
// of them has a micro-batch in hand when its neighbour is late. So instructions take log-normal
// times around the measured medians with the measured spread. Each factor is a function of the
// instruction alone: the same Program has the same timeline every time, and whatever the order
// in which events are handled.
func jitter(in schedule.Instruction, sigma float64) float64 {
	if sigma == 0 {
		return 1
	}
	sigma = min(sigma, mostSigma)
	// Of two neighbouring micro-batches one draws the other's number with the opposite sign: a
	// pair then takes at least twice the median, and a worker's even number of micro-batches
	// never less in all than with constant times.
	key := uint64(in.Kind)<<56 ^ uint64(in.Pipeline)<<48 ^ uint64(in.Replica)<<40 ^ uint64(in.Stage)<<28 ^
		uint64(uint32(in.Micro)>>1)
	if in.Micro&1 == 1 {
		sigma = -sigma
	}
	// Box and Muller's normal number from two uniform ones; the first is never 0.
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
