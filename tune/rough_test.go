package tune

import (
	"reflect"
	"testing"

	"github.com/millrace-ml/millrace/tune/predict"
	"pgregory.net/rapid"
)

// TestRoughCandidatesAreNotTaken compares searches that examine the memory of every plan with searches that skip this
// examination for plans that are too slow. Both keep the same plans, under any limit.
func TestRoughCandidatesAreNotTaken(t *testing.T) {
	checkSearches(t, 4, func(t *rapid.T) {
		p, c := world(t, rapid.IntRange(2, 5).Draw(t, "layers"), rapid.IntRange(2, 4).Draw(t, "devices"))
		c = limitedTo(c, rapid.SampledFrom([]int64{0, 300, 600, 1200}).Draw(t, "limit"))
		request := Request{Profile: p, Cluster: c, Batch: 4}
		lazy, err := newSearch(request)
		if err != nil {
			t.Fatal(err)
		}
		thorough, err := newSearch(request)
		if err != nil {
			t.Fatal(err)
		}
		var all []*shape
		everyShape(lazy, "1f1b", func(h *shape) { all = append(all, h) })
		passed := 0
		for range 30 {
			h := all[rapid.IntRange(0, len(all)-1).Draw(t, "shape")]
			tried, err := lazy.try(kindOf(h), lazy.plan(h))
			if err != nil {
				continue // skip depths that unequal replicas cannot have
			}
			pl := thorough.plan(h)
			predicted, err := predict.Plan(p, c, pl, false)
			if err != nil {
				t.Fatal(err)
			}
			full := candidate{plan: pl, predicted: predicted}
			if before, ok := thorough.best[kindOf(h)]; !ok || full.better(before, c) {
				thorough.best[kindOf(h)] = full
			}
			if thorough.top.plan == nil || full.better(thorough.top, c) {
				thorough.top = full
			}
			if tried.rough {
				passed++
			}
			if again, err := lazy.whole(tried); err != nil || !reflect.DeepEqual(again, full) {
				t.Fatalf("looked into, %+v; want %+v, %v", again, full, err)
			}
		}
		if !reflect.DeepEqual(lazy.best, thorough.best) || !reflect.DeepEqual(lazy.top, thorough.top) {
			t.Fatalf("%d passed over: best %+v, top %+v; want %+v, %+v", passed, lazy.best, lazy.top, thorough.best,
				thorough.top)
		}
	})
}
