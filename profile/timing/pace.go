package timing

import (
	"cmp"
	"math"

	"github.com/millrace-ml/millrace/internal/stats"
)

// paced holds the visits to each micro-batch size, each with the pace: how slow the machine was, where 1 is the median
// round.
//
// A machine shared with others is slow for seconds at a time, which affects all sizes of a round equally. So sizes are
// compared within rounds: all times of a round are divided by its pace. The pace of the median round is kept, since it
// is the machine's usual one.
type paced map[int][]pacedVisit

type pacedVisit struct {
	*Visit
	pace float64
}

// paced computes the pace of every visit. Rounds of a sitting are compared by all their sizes. Sittings are compared by
// the sizes that they have in common with earlier ones. A sitting without common sizes gets the pace of the first
// sitting.
func (r *Record) paced() paced {
	type place struct{ sitting, round int }
	pace := map[place]float64{}
	usual := map[int][]float64{} // by size: median length in each sitting so far, at the first sitting's pace
	var all []float64
	for s, sitting := range r.Sittings {
		within := paces(sitting.Rounds)
		lengths := map[int][]float64{}
		for k, round := range sitting.Rounds {
			for i := range round {
				lengths[round[i].MicroBatch] = append(lengths[round[i].MicroBatch], round[i].lengthS()/within[k])
			}
		}
		var against []float64
		for size, own := range lengths {
			if before := stats.Median(usual[size]); before > 0 && stats.Median(own) > 0 {
				against = append(against, stats.Median(own)/before)
			}
		}
		whole := 1.0
		if len(against) > 0 {
			whole = stats.Median(against)
		}
		for size, own := range lengths {
			usual[size] = append(usual[size], stats.Median(own)/whole)
		}
		for k := range sitting.Rounds {
			pace[place{s, k}] = whole * within[k]
			all = append(all, whole*within[k])
		}
	}
	middle := cmp.Or(stats.Median(all), 1)
	out := paced{}
	r.each(func(s, k int, v *Visit) {
		out[v.MicroBatch] = append(out[v.MicroBatch], pacedVisit{v, pace[place{s, k}] / middle})
	})
	return out
}

// sweeps is the number of iterations of a median polish; the result is steady after two or three.
const sweeps = 10

// paces returns how slow the machine was in each round of a sitting; 1 is the median round. It uses Tukey's median
// polish (Exploratory Data Analysis, 1977, chapter 11) of the visits' lengths, with rounds as rows and sizes as
// columns. A row's factor is the median over its columns, and a column's factor is the median over its rows. Because of
// the medians, single slow visits have no effect.
func paces(rounds []Round) []float64 {
	pace := make([]float64, len(rounds))
	for r := range pace {
		pace[r] = 1
	}
	for range sweeps {
		lengths := map[int][]float64{}
		for r, round := range rounds {
			for i := range round {
				lengths[round[i].MicroBatch] = append(lengths[round[i].MicroBatch], round[i].lengthS()/pace[r])
			}
		}
		for r, round := range rounds {
			var against []float64
			for i := range round {
				usual := stats.Median(lengths[round[i].MicroBatch])
				if length := round[i].lengthS(); length > 0 && usual > 0 {
					against = append(against, length/usual)
				}
			}
			if len(against) > 0 {
				pace[r] = stats.Median(against)
			}
		}
	}
	if middle := stats.Median(pace); middle > 0 {
		for r := range pace {
			pace[r] /= middle
		}
	}
	return pace
}

// At any time one core is slow, for about a second. So it takes some time to measure a pace spread: enoughVisits
// visits, or visits that together take enoughPacedS seconds.
const (
	enoughVisits = 24
	enoughPacedS = 6.0
)

// paceSpread returns the PaceSpread of a profile. It is 0 if there are too few visits and they took too little time
// together, or if only one worker computed. The spread belongs to the machine, so it is computed from the visits to all
// sizes, whichever of them a plan uses.
func (r *Record) paceSpread() float64 {
	var behind []float64
	tookS := 0.0
	r.each(func(_, _ int, v *Visit) {
		if v.Behind != nil {
			behind, tookS = append(behind, *v.Behind), tookS+v.TookS
		}
	})
	if len(behind) < enoughVisits && tookS < enoughPacedS {
		return 0
	}
	return stats.Median(behind)
}

// passSpread returns the quartiles of the passes over the whole model, each pass relative to the median of its size.
// The results are `below`, which is 1 - the lower quartile, `above`, which is the upper quartile - 1, and the number of
// passes.
func (r *Record) passSpread(sizes []int) (below, above float64, passes int) {
	var against []float64
	for _, size := range sizes {
		var lengths []float64
		for _, v := range r.visits(size) {
			lengths = append(lengths, v.PassesS...)
		}
		if middle := stats.Median(lengths); middle > 0 {
			for _, s := range lengths {
				against = append(against, s/middle)
			}
		}
	}
	if len(against) < fewestPasses {
		return 0, 0, len(against)
	}
	lower, upper := stats.Quartiles(against)
	return math.Max(0, 1-lower), math.Max(0, upper-1), len(against)
}

// fewestPasses is the smallest number of passes with meaningful quartiles.
const fewestPasses = 8
