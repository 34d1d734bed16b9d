package avgpipe

import (
	"cmp"
	"context"
	"slices"
)

// Budget limits the memory of a setting. 0 means no limit.
type Budget struct {
	EachBytes     int64 // memory of the fullest device
	TogetherBytes int64 // memory of all devices together, as in AvgPipe's Figure 12
}

func (b Budget) admits(s Scored) bool {
	return s.fits(b.EachBytes) && (b.TogetherBytes == 0 || s.Together() <= b.TogetherBytes)
}

// Together returns the sum of all devices' memory.
func (s Scored) Together() int64 {
	sum := int64(0)
	for _, m := range s.MemoryBytes {
		sum += m
	}
	return sum
}

// Settings holds the settings of a grid, each at every warm-up depth that was tried.
type Settings [][]*Pipelined

// Settings simulates every setting of a grid at every depth, for use with several budgets.
func (w *Workload) Settings(ctx context.Context, grid []Degrees) (Settings, error) {
	var settings Settings
	for _, at := range grid {
		all, err := w.atEveryDepth(ctx, at)
		if err != nil {
			return nil, err
		}
		settings = append(settings, all)
	}
	return settings, nil
}

// Best returns the fastest setting within a budget. Of a setting's depths, it considers the shallowest one that is
// about as fast as the fastest. Among settings that are about equally fast, Best takes the one with the least memory.
// It returns a LimitError if no setting keeps to the budget.
func (s Settings) Best(within Budget) (*Pipelined, error) {
	by, all, admitted := map[Degrees]*Pipelined{}, []Scored{}, []Scored{}
	for _, depths := range s {
		p := shallowest(depths, within)
		by[p.At] = p
		all = append(all, p.Scored)
		if within.admits(p.Scored) {
			admitted = append(admitted, p.Scored)
		}
	}
	if len(admitted) == 0 {
		return nil, within.refused(all)
	}
	chosen, err := frugal(admitted, 0)
	if err != nil {
		return nil, err
	}
	return by[chosen.At], nil
}

// refused returns the error for a budget that no setting keeps to.
func (b Budget) refused(all []Scored) error {
	var fit []Scored
	for _, s := range all {
		if s.fits(b.EachBytes) {
			fit = append(fit, s)
		}
	}
	if len(fit) == 0 {
		return smallest(all, b.EachBytes)
	}
	least := slices.MinFunc(fit, func(x, y Scored) int { return cmp.Compare(x.Together(), y.Together()) })
	return &LimitError{LimitBytes: b.TogetherBytes, SmallestBytes: least.Together(), At: least.At, Together: true}
}
