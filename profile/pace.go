package profile

import (
	"slices"

	"github.com/millrace-ml/millrace/internal/stats"
)

// visit is what one visit to one micro-batch size measured of every layer.
type visit []LayerTiming

// lengthS is a pass over the whole model, forward and backward, in the middle of the visit.
func (v visit) lengthS() float64 {
	sum := 0.0
	for _, t := range v {
		sum += stats.Median(t.ForwardS) + stats.Median(t.BackwardS)
	}
	return sum
}

// paced joins the visits [round][size] to each size's timings, as they would be had the machine kept the
// pace of its middle round throughout.
//
// A machine shared with others is slow for seconds at a time, and that hits the sizes of one round alike.
// What makes sizes comparable is therefore how they compare within rounds: all times of a round are divided
// by its pace. The middle round's own pace stays in: it is the machine's usual one.
func paced(rounds [][]visit) [][]LayerTiming {
	out := make([][]LayerTiming, len(rounds[0]))
	for r, pace := range paces(rounds) {
		for s, v := range rounds[r] {
			out[s] = join(out[s], v, pace)
		}
	}
	return out
}

// sweeps of a median polish; it is steady after two or three.
const sweeps = 10

// paces is how slow the machine was in each round, 1 in the middle one: Tukey's median polish (Exploratory
// Data Analysis, 1977, chapter 11) of the visits' lengths, whose rows are rounds and whose columns are sizes.
// Each row is taken as a multiple of what the columns have in common and each column as a multiple of what
// the rows have, medians both, so that single visits that stumble count in neither.
func paces(rounds [][]visit) []float64 {
	pace := make([]float64, len(rounds))
	for r := range pace {
		pace[r] = 1
	}
	for range sweeps {
		usual := make([]float64, len(rounds[0]))
		for s := range usual {
			var lengths []float64
			for r := range rounds {
				lengths = append(lengths, rounds[r][s].lengthS()/pace[r])
			}
			usual[s] = stats.Median(lengths)
		}
		for r, visits := range rounds {
			var against []float64
			for s, v := range visits {
				if length := v.lengthS(); length > 0 && usual[s] > 0 {
					against = append(against, length/usual[s])
				}
			}
			if len(against) > 0 {
				pace[r] = stats.Median(against)
			}
		}
	}
	middle := stats.Median(pace)
	for r := range pace {
		pace[r] /= middle
	}
	return pace
}

// join adds the times of another visit, divided by its pace.
func join(all, more []LayerTiming, pace float64) []LayerTiming {
	if all == nil {
		all = make([]LayerTiming, len(more))
	}
	for l, m := range more {
		t := &all[l]
		for _, times := range []struct {
			to   *[]float64
			from []float64
		}{
			{&t.ForwardS, m.ForwardS}, {&t.BackwardS, m.BackwardS},
			{&t.BackwardInputS, m.BackwardInputS}, {&t.BackwardWeightS, m.BackwardWeightS},
			{&t.BareForwardS, m.BareForwardS}, {&t.AgainS, m.AgainS}, {&t.FeedS, m.FeedS},
		} {
			for _, s := range times.from {
				*times.to = append(*times.to, s/pace)
			}
		}
		t.OutputBytes, t.SavedBytes = m.OutputBytes, m.SavedBytes
		t.PendingBytes, t.InputLeavesBytes = m.PendingBytes, m.InputLeavesBytes
		t.ForwardPeakBytes = max(t.ForwardPeakBytes, m.ForwardPeakBytes)
		t.BackwardPeakBytes = max(t.BackwardPeakBytes, m.BackwardPeakBytes)
		t.FirstBackwardPeakBytes = max(t.FirstBackwardPeakBytes, m.FirstBackwardPeakBytes)
		a, b := &t.HalvesPeakBytes, &m.HalvesPeakBytes
		*a = HalvesPeaks{max(a.Input, b.Input), max(a.FirstInput, b.FirstInput), max(a.Weight, b.Weight),
			max(a.FirstWeight, b.FirstWeight)}
	}
	return all
}

// mostSpread is the largest Profile.PaceSpread that is read: a worker who takes so many times as long as the
// mean stands still.
const mostSpread = 100.0

// fewestPaced is how many visits it takes to say how far apart workers are in the middle one: one core is
// slow for a second, and a second has several visits.
const fewestPaced = 24

// paceSpread is Profile.PaceSpread; 0 where few visits say something, or one worker was alone.
func paceSpread(rounds [][]visit) float64 {
	var behind []float64
	for _, visits := range rounds {
		for _, v := range visits {
			var workers []float64
			for _, t := range v {
				workers = append(workers, make([]float64, max(0, len(t.WorkerS)-len(workers)))...)
				for w, s := range t.WorkerS {
					workers[w] += s
				}
			}
			sum := 0.0
			for _, s := range workers {
				sum += s
			}
			if len(workers) > 1 && sum > 0 {
				behind = append(behind, slices.Max(workers)*float64(len(workers))/sum-1)
			}
		}
	}
	if len(behind) < fewestPaced {
		return 0
	}
	return stats.Median(behind)
}
