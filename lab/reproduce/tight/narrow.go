package tight

import (
	"cmp"
	"context"
	"math"
	"slices"

	"github.com/millrace-ml/millrace/cluster"
)

// narrowed begins with at most mostRuns runs of layers. A stage can have at most mostSets sets of devices. narrowed
// looks at no more than mostLooked small cases.
const mostRuns, mostSets, mostLooked = 8, 300, 3

// patience is how many times as much work as usual narrowed may do to find the best plan of a small case.
const patience = 20

// narrowed returns a small case that decides what is loose, or nil if it finds none.
//
// Some cases have their gap because of their devices. But with all these devices there are too many plans for a case
// with many layers. So narrowed keeps the batch and all groups, and as many devices of each group as mostSets allows.
// Computing times follow the number of devices (see merge). So a step takes as long as before, and its data and
// gradients occupy the links between groups as long as before.
//
// Then narrowed searches for few layers that still have the gap. It begins with runs of layers. Each run begins where a
// stage of the plan or of the proof's path begins. Step by step, narrowed joins two neighbouring runs. It joins the two
// after which the gap is nearest to the large case's. It stops when two runs are left, or when the gap would no longer
// be alike (see `alike`). Last, it looks at the small cases that it has met, the one with the nearest gap first.
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

// thinned returns a cluster with all groups, but perhaps with fewer devices in each. A stage can then have at most
// mostSets sets of devices.
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
