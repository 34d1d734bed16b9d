package record

import (
	"maps"
	"slices"
	"testing"
)

// TestStepsOverTheWholeRunAreKept: of 200 steps the last three are kept, and steps at up to eight moments. Of the 197
// other steps, 13 are multiples of 16, which would be too many moments. 7 are multiples of 32. Each moment is kept with
// the steps beside it. Another process, in which steps end in another order, keeps the same steps. In a run that begins
// at step 161, the moments are multiples of 8.
func TestStepsOverTheWholeRunAreKept(t *testing.T) {
	want := []int{0, 1, 31, 32, 33, 63, 64, 65, 95, 96, 97, 127, 128, 129, 159, 160, 161, 191, 192, 193, 197, 198, 199}
	kept := func(from, to int, swapped bool) []int {
		r := New(3, nil, 8)
		steps := make([]int, 0, to-from)
		for n := from; n < to; n++ {
			steps = append(steps, n)
		}
		for k := 0; swapped && k+1 < len(steps)-3; k += 2 {
			steps[k], steps[k+1] = steps[k+1], steps[k]
		}
		for _, n := range steps {
			if r.Updated(n, 1); len(r.kept) > 3*8+3+2 {
				t.Fatalf("after step %d, %d steps are kept", n, len(r.kept))
			}
		}
		return slices.Sorted(maps.Keys(r.kept))
	}
	if got := kept(0, 200, false); !slices.Equal(got, want) {
		t.Errorf("kept are %v, not %v", got, want)
	}
	if got := kept(0, 200, true); !slices.Equal(got, want) {
		t.Errorf("in another order, kept are %v, not %v", got, want)
	}
	want = []int{161, 167, 168, 169, 175, 176, 177, 183, 184, 185, 191, 192, 193, 197, 198, 199}
	if got := kept(161, 200, false); !slices.Equal(got, want) {
		t.Errorf("from step 161 on, kept are %v, not %v", got, want)
	}
	r := New(3, nil, 0)
	for n := range 200 {
		r.Updated(n, 1)
	}

	if len(r.kept) != 3 {
		t.Errorf("without moments, %d steps are kept, not the last 3", len(r.kept))
	}
}
