package tight

import (
	"cmp"
	"context"
	"math"
	"slices"

	"github.com/millrace-ml/millrace/cluster"
)

// narrowed begins with at most mostRuns runs of layers. It chooses a cluster in which a stage can have at most mostSets
// different sets of devices. It looks at no more than mostLooked small cases.
const mostRuns, mostSets, mostLooked = 8, 300, 3

// patience is how many times as much work as usual narrowed may do to find the best plan of a small case.
const patience = 20

// narrowed returns a small case that decides what is loose, or nil if it finds none.
//
// The gap of some cases depends on their number of devices. But a small case with all these devices and many layers has
// too many plans. So narrowed keeps the batch and all groups, and as many devices of each group as mostSets allows. It
// shortens computing times in proportion to the number of devices (see merge). So a step takes as long as before, and
// its data and gradients occupy the links between groups as long as before.
//
// Then narrowed searches for few layers that still have the gap. It begins with runs of layers. Each run begins where a
// stage of the plan or of the proof's path begins. In each step, narrowed joins two neighbouring runs: the pair that
// keeps the gap nearest to the large case's. It stops when two runs are left, or when the gap would become too small
// (see `alike`). Finally, it searches the small cases that it has made along the way, beginning with the one whose gap
// is nearest.
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

// nearestFirst sorts small cases by how near their gap is to `gap`, the nearest first, and returns the first
// mostLooked. It compares gaps in whole percentage points. Of equally near cases, the one with the fewest layers is
// first.
func nearestFirst(tried []*every, gap float64) []*every {
	points := func(e *every) float64 { return math.Round(100 * math.Abs(e.small.Gap-gap)) }
	slices.SortStableFunc(tried, func(a, b *every) int {
		return cmp.Or(cmp.Compare(points(a), points(b)), cmp.Compare(a.small.Layers, b.small.Layers))
	})
	return tried[:min(mostLooked, len(tried))]
}

// thinned returns a cluster with all groups, but perhaps with fewer devices in each. It leaves out so many devices that
// a stage can have at most mostSets different sets of devices.
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
