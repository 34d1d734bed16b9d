package avgpipe

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestGrid(t *testing.T) {
	got, err := Grid(8, []int{1, 3, 4, 8, 4}, 2)
	if want := []Degrees{{1, 1}, {1, 2}, {2, 1}, {2, 2}, {8, 1}, {8, 2}}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v and %v, want %v", got, err, want)
	}
	for want, c := range map[string]struct {
		batch, pipelines int
		sizes            []int
	}{
		"0 pipelines":            {8, 0, []int{1}},
		"63 pipelines; 1 is":     {8, 63, []int{1}},
		"batch of 0 samples":     {0, 1, []int{1}},
		"none of the micro-batc": {7, 1, []int{2, 4}},
	} {
		if _, err := Grid(c.batch, c.sizes, c.pipelines); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want it to say %q", err, want)
		}
	}
}

// triedGrid returns a grid of settings. Those in the middle are fastest, as in AvgPipe's Fig. 19, so neither guideline
// finds the fastest.
func triedGrid() []Scored {
	var all []Scored
	for m, s := range map[int]float64{1: 3, 4: 1, 16: 1.5} {
		for n := 1; n <= 4; n++ {
			all = append(all, Scored{At: Degrees{m, n}, StepS: s / float64(n),
				MemoryBytes: []int64{int64(n * (100 + 64/m)), 10}})
		}
	}
	return all
}

func TestGuidelinesLookAtMemoryAlone(t *testing.T) {
	for _, c := range []struct {
		limit                 int64
		best, maxNum, maxSize Degrees
		smallest              int64
	}{
		{limit: 0, best: Degrees{4, 4}, maxNum: Degrees{16, 4}, maxSize: Degrees{1, 4}},
		{limit: 320, best: Degrees{4, 2}, maxNum: Degrees{16, 3}, maxSize: Degrees{1, 1}},
		{limit: 110, best: Degrees{16, 1}, maxNum: Degrees{16, 1}, maxSize: Degrees{16, 1}},
		{limit: 50, smallest: 104},
	} {
		for name, choose := range map[string]func([]Scored, int64) (Scored, error){"fastest": fastest, "max-num": MaxNum,
			"max-size": MaxSize} {
			got, err := choose(triedGrid(), c.limit)
			var over *LimitError
			if errors.As(err, &over) {
				if over.SmallestBytes != c.smallest || over.LimitBytes != c.limit || over.At != (Degrees{16, 1}) {
					t.Errorf("%s under %d: %v", name, c.limit, err)
				}
				continue
			}
			want := map[string]Degrees{"fastest": c.best, "max-num": c.maxNum, "max-size": c.maxSize}[name]
			if err != nil || c.smallest > 0 || got.At != want {
				t.Errorf("%s under %d: %v and %v, want %v", name, c.limit, got.At, err, want)
			}
		}
	}
}

// TestChoicesAreTheBestThatFit: the chosen setting fits, and no setting that fits ranks before it.
func TestChoicesAreTheBestThatFit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var all []Scored
		for range rapid.IntRange(1, 12).Draw(t, "settings") {
			all = append(all, Scored{
				At:    Degrees{rapid.IntRange(1, 4).Draw(t, "M"), rapid.IntRange(1, 4).Draw(t, "N")},
				StepS: float64(rapid.IntRange(1, 5).Draw(t, "step")), MemoryBytes: []int64{rapid.Int64Range(1, 9).Draw(t, "bytes")},
			})
		}
		limit := rapid.Int64Range(0, 9).Draw(t, "limit")
		for name, by := range map[string]struct {
			choose func([]Scored, int64) (Scored, error)
			before func(a, b Scored) bool
		}{
			"fastest": {fastest, func(a, b Scored) bool {
				return a.StepS < b.StepS ||
					a.StepS == b.StepS && a.Peak() < b.Peak()
			}},
			"max-num": {MaxNum, func(a, b Scored) bool {
				return a.At.MicroBatches > b.At.MicroBatches ||
					a.At.MicroBatches == b.At.MicroBatches && a.At.Pipelines > b.At.Pipelines
			}},
			"max-size": {MaxSize, func(a, b Scored) bool {
				return a.At.MicroBatches < b.At.MicroBatches ||
					a.At.MicroBatches == b.At.MicroBatches && a.At.Pipelines > b.At.Pipelines
			}},
		} {
			got, err := by.choose(all, limit)
			var over *LimitError
			if err != nil && !errors.As(err, &over) {
				t.Fatal(err)
			}
			for _, s := range all {
				switch fits := limit == 0 || s.Peak() <= limit; {
				case err != nil && (fits || s.Peak() < over.SmallestBytes):
					t.Fatalf("%s: %v, and %v is there", name, err, s)
				case err == nil && fits && by.before(s, got):
					t.Fatalf("%s chose %v before %v", name, got, s)
				}
			}
			if err == nil && limit > 0 && got.Peak() > limit {
				t.Fatalf("%s chose %v over %d", name, got, limit)
			}
		}
	})
}

func TestFrugalTakesTheLeanestOfTheFast(t *testing.T) {
	all := []Scored{
		{At: Degrees{1, 1}, StepS: 1, MemoryBytes: []int64{100}}, {At: Degrees{2, 1}, StepS: 1.004, MemoryBytes: []int64{40}},
		{At: Degrees{4, 1}, StepS: 1.006, MemoryBytes: []int64{10}},
		{At: Degrees{8, 1}, StepS: 0.5, MemoryBytes: []int64{1000}},
	}
	if got, err := frugal(all, 500); err != nil || got.At != (Degrees{2, 1}) {
		t.Errorf("got %v and %v, want M=2 N=1", got, err)
	}
	if got, err := frugal(all, 0); err != nil || got.At != (Degrees{8, 1}) {
		t.Errorf("got %v and %v, want M=8 N=1", got, err)
	}
}
