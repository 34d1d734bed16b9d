// Package artifact is DAPPLE's published planner, AlibabaPAI/DAPPLE@fd75dcf src/.
//
// Unlike the paper's algorithm, it has no pivot, no phases and no K, and checks memory only for data parallelism
// (oracles README §3). Input: a profile, a cluster, a batch and the published code's constants. Output: the plans that
// it compares, with its estimates (Search), and the best as a plan (Plan). Length computes the length of a pipeline,
// like a published script. Errors: more than maxStates states, models for which the profile has no costs or whose
// layers take no time, and batches that are too small for one micro-batch.
package artifact

import (
	"math"

	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/plan/dapple/servers"
	"github.com/millrace-ml/millrace/profile"
)

// Candidate is one of the plans that the published search compares.
type Candidate struct {
	Pipelines int // rp: every stage has devices for this many pipelines side by side
	// Stages refer to states by their positions in Answer.Order. A stage's End is the next stage's First or, for the
	// last stage, the last state.
	Stages  []Stage
	Speedup float64 // time to compute the whole batch on one device, divided by the estimated latency
	Block   float64 // seconds of the slowest stage or transfer for the whole batch
}

// Stage is a run of states on devices.
type Stage struct {
	First, End int
	Devices    []int
}

// DP holds the speedups of plain data parallelism over all devices.
type DP struct {
	NoOverlap        float64
	P3InfiniteMemory float64 // the backward and the next forward hide all-reduces
	P3               float64 // like P3InfiniteMemory, but only in the last accumulation step
	NormalOverlap    float64 // the last accumulation step's backward hides all-reduces
	MaxBatch         int     // samples that fit one device
	AccumulationSize int     // samples of one accumulation step; 0 means that not even one sample fits
}

// Best returns the better of no overlap and normal overlap, which DAPPLE's Table 4 compares with.
func (d DP) Best() float64 { return max(d.NoOverlap, d.NormalOverlap) }

// Answer is the published planner's complete result.
type Answer struct {
	States        *profile.States
	Order         []int // numbers of the states, in the published code's order
	Candidates    []Candidate
	Best          int // index of the candidate with the highest speedup
	BestMulti     int // index of the best candidate with several stages; -1 means none
	TotalComputeS float64
	DP            DP
	// Limited says that a stage of a straight pipeline could be on more than MaxWays sets of devices. Then only the
	// first MaxWays of them were searched.
	Limited bool
	// RecursiveSpeedup is the result of sync_pipeline_speedup_recursive for BestMulti.
	RecursiveSpeedup float64
}

// input is the published planner's input, scaled to the whole batch.
type input struct {
	Constants
	batch int
	at    *servers.Layout
	// By state, in the published order: `output` has the bytes that cross after the state. The others have sums over
	// the state's closure.
	compute, parameters, saved, output []float64
	before                             [][]uint64 // bit k of entry j: state k is an ancestor of state j
}

func (a *input) total() float64 { return a.compute[len(a.compute)-1] }

// span returns the sum over states first..last from cumulative sums.
func span(sums []float64, first, last int) float64 {
	if first == 0 {
		return sums[last]
	}
	return sums[last] - sums[first-1]
}

// transferS is split_concat_all2all_time: the seconds that bytes take from all devices of one stage to all of the
// next. It ignores the numbers of links and of receivers.
func (a *input) transferS(from, to []int, bytes float64) float64 {
	if a.at.Apart(to...) {
		return bytes / a.EthernetNCCL
	}
	elsewhere := 0
	for _, d := range from {
		if a.at.Of[d] != a.at.Of[to[0]] {
			elsewhere++
		}
	}
	if elsewhere > 0 {
		return bytes / float64(len(from)) * float64(elsewhere) / a.EthernetP2P
	}
	return bytes / a.NVLink
}

// fastestRate returns a lower bound on transferS of one byte from this number of devices, wherever the devices are.
func (a *input) fastestRate(from int) float64 {
	return min(1/a.EthernetNCCL, 1/a.EthernetP2P/float64(from), 1/a.NVLink)
}

// allReduceS is all_reduce_time: the seconds to all-reduce bytes among devices.
func (a *input) allReduceS(devices []int, bytes float64) float64 {
	n := float64(len(devices))
	switch {
	case len(devices) == 1:
		return 0
	case a.at.Apart(devices...):
		return 2 * bytes * ((n - 1) / n) / a.EthernetNCCL
	}
	return 2 * bytes * ((n - 1) / n) / a.NVLink / float64(len(devices)/2)
}

// microBatches returns the number of micro-batches of each of rp pipelines; 0 if the batch is too small for them.
func (a *input) microBatches(rp int) int { return a.batch / rp / a.MinMicroBatch }

// speedup is sync_pipeline_speedup_analytical (oracles README §3.2). It divides the total compute by the latency L:
//
//	L = block (M-1) + compute/(rp M) + sum over cuts transfer(a/(rp M)) + max(0, max_i AR_i - i block)
//
// block is the time of the slowest stage or transfer for one micro-batch. rp pipelines have M micro-batches each, a is
// the bytes that cross a cut, and AR_i the all-reduce of stage i. An all-reduce covers one state more than its stage,
// except the last stage's.
func (a *input) speedup(c Candidate) float64 {
	M := a.microBatches(c.Pipelines)
	if M == 0 {
		return 0
	}
	rp, m := float64(c.Pipelines), float64(M)
	block := c.Block / m
	length := block*(m-1) + a.total()/rp/m
	for i, s := range c.Stages[:len(c.Stages)-1] {
		length += a.transferS(s.Devices, c.Stages[i+1].Devices, a.output[s.End-1]/rp/m)
	}
	late := 0.0
	for i, s := range c.Stages {
		late = max(late, a.allReduceS(s.Devices, span(a.parameters, s.First, s.End))-float64(i)*block)
	}
	return a.total() / (length + late)
}

// recursive is sync_pipeline_speedup_recursive. It times every micro-batch's forwards and backwards by the recursion of
// Length, with inOrder false (see pipelineEnds). A forward and a backward each take half of their stage's time.
// Transfers count as stages, and each stage's all-reduce follows its last backward.
func (a *input) recursive(c Candidate) float64 {
	M := a.microBatches(c.Pipelines)
	if M == 0 {
		return 0
	}
	m := float64(M)
	var times []float64
	for i, s := range c.Stages {
		times = append(times, span(a.compute, s.First, s.End)/float64(len(s.Devices))/m/2)
		if i+1 < len(c.Stages) {
			times = append(times, a.transferS(s.Devices, c.Stages[i+1].Devices, a.output[s.End-1]/m))
		}
	}
	warmup := make([]int, len(times))
	for x := range warmup {
		warmup[x] = len(times) - x
	}
	_, ends := pipelineEnds(times, times, M, warmup, false)
	length := 0.0
	for x, end := range ends {
		if x%2 == 0 {
			s := c.Stages[x/2]
			end += a.allReduceS(s.Devices, span(a.parameters, s.First, s.End))
		}
		length = max(length, end)
	}
	return a.total() / length
}

// dataParallel returns the published estimates of plain data parallelism on all devices.
func (a *input) dataParallel() DP {
	all := make([]int, len(a.at.Of))
	for d := range all {
		all[d] = d
	}
	n, last := float64(len(all)), len(a.compute)-1
	of := func(late float64) float64 { return a.total() / (a.total()/n + late) }
	dp := DP{
		NoOverlap:        of(a.allReduceS(all, a.parameters[last])),
		P3InfiniteMemory: of(a.overlap(all, true, 1)),
		MaxBatch: int(max(0, min(math.MaxInt32,
			(a.GPUMemory-a.parameters[last]*a.OptimizerMemoryScaling)/a.PeakActivationPerSample))),
	}
	if dp.AccumulationSize = a.accumulation(dp.MaxBatch); dp.AccumulationSize > 0 {
		part := float64(dp.AccumulationSize) / float64(a.batch)
		dp.P3, dp.NormalOverlap = of(a.overlap(all, true, part)), of(a.overlap(all, false, part))
	}
	return dp
}

// accumulation returns the samples of one accumulation step. As in the published code, it compares the samples that
// fit one device with the whole batch instead of the device's share.
func (a *input) accumulation(fit int) int {
	switch {
	case fit == 0:
		return 0
	case fit >= a.batch:
		return a.batch
	}
	return a.batch / plan.LeastDivisor(a.batch, (a.batch+fit-1)/fit)
}

// overlap returns the seconds of all-reduces that computation does not hide. All-reduces run one state at a time, the
// last first, during the backward of the fraction `part` of the batch. If `next` is set, they also run during the next
// forward.
func (a *input) overlap(all []int, next bool, part float64) float64 {
	n := len(a.compute)
	half := func(state int) float64 { return span(a.compute, state, state) * part / 2 }
	reduce := func(block int) float64 {
		return a.allReduceS(all, span(a.parameters, n-1-block, n-1-block))
	}
	late, spare := reduce(n-1), 0.0
	for i := n - 2; i >= 0; i-- {
		slot := half(n - 2 - i)
		if next {
			slot += half(i + 1) // the published code counts forwards from the wrong end
		}
		switch lacking := reduce(i) - slot; {
		case lacking <= 0:
			spare -= lacking
		case lacking < spare:
			spare -= lacking
		default:
			late += lacking - spare
			spare = 0
		}
	}
	return late
}
