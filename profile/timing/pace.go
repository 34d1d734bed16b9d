package timing

import (
	"cmp"
	"math"

	"github.com/millrace-ml/millrace/internal/stats"
)

// paced is, by micro-batch size, its visits, and how slow the machine was in each: 1 in the middle round of all.
//
// A machine shared with others is slow for seconds at a time, and that hits the sizes of one round alike.
// What makes sizes comparable is therefore how they compare within rounds: all times of a round are divided
// by its pace. The middle round's own pace stays in: it is the machine's usual one.
type paced map[int][]pacedVisit

type pacedVisit struct {
	*Visit
	pace float64
}

// paced gives every visit its pace. Rounds of a sitting are compared by all their sizes, sittings by the sizes
// that they have in common with earlier ones; one that has none in common is taken to be as the first was.
func (r *Record) paced() paced {
	type place struct{ sitting, round int }
	pace := map[place]float64{}
	usual := map[int][]float64{} // the middle length of each size in each sitting so far, at the first one's pace
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

// sweeps of a median polish; it is steady after two or three.
const sweeps = 10

// paces is how slow the machine was in each round of a sitting, 1 in the middle one: Tukey's median polish
// (Exploratory Data Analysis, 1977, chapter 11) of the visits' lengths, whose rows are rounds and whose columns
// are sizes. Each row is taken as a multiple of what the columns have in common and each column as a multiple
// of what the rows have, medians both, so that single visits that stumble count in neither.
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

// It takes some time to say how far apart workers are in the middle visit: one core is slow for a second. So
// many visits do, or visits of so many seconds together.
const (
	enoughVisits = 24
	enoughPacedS = 6.0
)

// paceSpread is profile.Profile's PaceSpread; 0 where few visits say something, or one worker was alone. It is of the
// machine, so that visits to all sizes say it, whichever of them a plan is made from.
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

// passSpread is where half of the passes over the whole model lie, as parts of the middle one of their size: how
// far below it the lower quartile is and how far above it the upper, and of how many passes.
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

// fewestPasses is how many have quartiles that say something.
const fewestPasses = 8
