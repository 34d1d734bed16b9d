package tight

import (
	"cmp"
	"context"
	"math"
	"slices"

	"github.com/millrace-ml/millrace/cluster"
)

// Limits of narrowed: runs of layers, sets of devices that a stage can have, and how many small cases are looked at.
const mostRuns, mostSets, mostLooked = 8, 300, 3

// patience multiplies the work of a search for the best plan of a small case that narrowed returns.
const patience = 20

// narrowed returns a small case that decides what is loose, or nil if it finds none.
//
// The devices are enough for the gap of some cases, but with them there are too many plans for a case with many layers.
// So narrowed keeps the batch and all groups, and as many devices of each group as mostSets allows. Computing times
// follow the number of devices (see merge). So a step takes as long as before, and its data and gradients occupy the
// links between groups as long as before. What remains is to find few layers that still have the gap. narrowed begins
// with runs of layers that begin where a stage begins, of the plan or of the proof's path. Of all ways to join two
// neighbouring runs it takes the one whose gap is nearest to the large case's, again and again, as long as the gap is
// alike. It looks at the small cases on the way, the one with the nearest gap first.
func (l *large) narrowed(ctx context.Context, cuts []int) (*Small, error) {
	on := thinned(l.c)
	runs := runsOf(l.p, l.c.Devices[0], min(mostRuns, len(cuts)), cuts)
	var tried []*every
	for len(runs) > 3 {
		var next []int
		nearest := math.Inf(1)
		for i := 1; i < len(runs)-1; i++ {
			joined := slices.Delete(slices.Clone(runs), i, i+1)
			e, err := l.like(ctx, on, l.batch, joined)
			if err != nil {
				return nil, err
			}
			if e.small.Gap < alike*l.gap {
				continue
			}
			tried = append(tried, e)
			if away := math.Abs(e.small.Gap - l.gap); away < nearest {
				nearest, next = away, joined
			}
		}
		if next == nil {
			break
		}
		runs = next
	}
	for _, e := range nearestFirst(tried, l.gap) {
		e.limit = patience * mostPlayed
		if err := e.look(ctx); err != nil {
			return nil, err
		}
		if e.small.judge(l.gap); e.small.Loose != Undecided {
			return e.small, nil
		}
	}
	return nil, nil
}

// nearestFirst returns the small cases that are looked at, in order: the one whose gap is nearest to this one first. It
// compares gaps in whole percentage points. Of equally near ones, the one with the fewest layers is first.
func nearestFirst(tried []*every, gap float64) []*every {
	points := func(e *every) float64 { return math.Round(100 * math.Abs(e.small.Gap-gap)) }
	slices.SortStableFunc(tried, func(a, b *every) int {
		return cmp.Or(cmp.Compare(points(a), points(b)), cmp.Compare(a.small.Layers, b.small.Layers))
	})
	return tried[:min(mostLooked, len(tried))]
}

// thinned returns a cluster with all groups, but so few devices in each that a stage can have at most mostSets sets of
// devices.
func thinned(c *cluster.Cluster) *cluster.Cluster {
	groups, size := 1, len(c.Devices)
	if whole := few(c, size, mostGroups); len(whole.Levels) > 1 {
		size, groups = whole.Levels[0].Size, whole.Levels[1].Size
	}
	for size > 1 && math.Pow(float64(size+1), float64(groups)) > mostSets {
		size--
	}
	return few(c, groups*size, groups)
}
