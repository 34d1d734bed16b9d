package tight

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/tune"
)

// TestThinnedKeepsAllGroups: with four groups of four devices, a stage can have 5^4 = 625 different sets of devices,
// which is too many. So thinned leaves three devices in each group, with 4^4 = 256 sets. It changes neither two groups
// of eight, with 81 sets, nor one group of 16, with 17.
func TestThinnedKeepsAllGroups(t *testing.T) {
	for name, want := range map[string][]int{"pipedream-a": {3, 4}, "pipedream-b": {8, 2}, "dapple-c": {16}} {
		c, err := cluster.Preset(name)
		if err != nil {
			t.Fatal(err)
		}
		on, devices := thinned(c), 1
		var got []int
		for _, l := range on.Levels {
			got, devices = append(got, l.Size), devices*l.Size
		}
		if !slices.Equal(got, want) || len(on.Devices) != devices {
			t.Errorf("%s: %d devices in levels of %v, want %v", name, len(on.Devices), got, want)
		}
	}
}

// TestTheNearestGapIsFirst: the wanted gap is 51 %. In whole points, 41 and 61.4 % are both 10 away from it, 40 % is 11
// away and 90 % is 39 away. Of the two that are 10 away, the case with fewer layers comes first. The case of 90 % is
// left out.
func TestTheNearestGapIsFirst(t *testing.T) {
	var all []*every
	for _, s := range []Small{{Gap: .90, Layers: 4}, {Gap: .40, Layers: 3}, {Gap: .41, Layers: 6},
		{Gap: .614, Layers: 5}} {
		all = append(all, &every{small: &s})
	}
	var layers []int
	for _, e := range nearestFirst(all, .51) {
		layers = append(layers, e.small.Layers)
	}
	if !slices.Equal(layers, []int{5, 6, 3}) {
		t.Errorf("cases of %v layers are looked at", layers)
	}
}

// TestNarrowedFindsFewLayersWithTheGap narrows random models of four layers on two servers. It looks for three quarters
// of the model's own gap. A small case must have fewer layers than the model, but all devices and samples. Each of its
// layers must begin where a layer of the model begins. Its gap must be at least half of the gap that is looked for, and
// bestOfAll must find no plan below its floor.
func TestNarrowedFindsFewLayersWithTheGap(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 21))
	seen := 0
	for i := 0; i < 12 && seen < 2; i++ {
		c, p := servers(), skewedOf(r, 4)
		found, err := tune.Search(context.Background(), tune.Request{Profile: p, Cluster: c, Batch: 2, Longest: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		gap := 0.75 * (found.Best.Predicted.StepS/found.Proof.StepS - 1)
		if gap < 0.02 {
			continue
		}
		l := &large{p: p, c: c, batch: 2, found: found, gap: gap, longest: time.Minute}
		cuts := []int{0, 1, 2, 3}
		small, err := l.narrowed(context.Background(), cuts)
		if err != nil {
			t.Fatal(err)
		}
		if small == nil {
			continue
		}
		seen++
		elsewhere := slices.ContainsFunc(small.First, func(k int) bool { return !slices.Contains(cuts, k) })
		if elsewhere || small.Layers != len(small.First) || small.Layers >= 4 || small.Devices != 4 || small.Groups != 2 ||
			small.Batch != 2 || small.Gap < gap/2 || !small.Whole || small.Loose == Undecided {
			t.Errorf("of a gap of %.3f: %+v", gap, *small)
		}
		merged, err := merge(p, "x", append(slices.Clone(small.First), 4), 1, 1, 2)
		if err != nil {
			t.Fatal(err)
		}
		best, plans := bestOfAll(t, merged, c, 2)
		if best < small.FloorS*(1-plan.SameTime) {
			t.Errorf("the best of %d plans takes %g s: %+v", plans, best, *small)
		}
	}
	if seen < 2 {
		t.Errorf("%d models are narrowed", seen)
	}
}

// If the list of layouts is too long, the floor remains at the bound, nothing is simulated, and the verdict is
// undecided.
func TestAListThatIsTooLongDecidesNothing(t *testing.T) {
	small := &Small{StepS: 100, BestS: 100, BoundS: 1, FloorS: 1, Gap: 99}
	e := &every{p: skewed(rand.New(rand.NewPCG(1, 2))), c: servers(), batch: 4, small: small, visited: mostVisited}
	if err := e.look(context.Background()); err != nil {
		t.Fatal(err)
	}
	if small.judge(99); small.Loose != Undecided || small.Whole || small.FloorS != 1 || small.Simulated > 0 {
		t.Errorf("%+v", *small)
	}
}

// skewedOf returns a model like that of skewed, but with the given number of layers.
func skewedOf(r *rand.Rand, layers int) *profile.Profile {
	p := skewed(r)
	for len(p.Layers) < layers {
		one := skewed(r).Layers[0]
		one.Name, one.From = fmt.Sprint("l", len(p.Layers)), []int{len(p.Layers) - 1}
		p.Layers = append(p.Layers, one)
	}
	return p
}
