package stats

import (
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func ascending(n int) []float64 {
	values := make([]float64, n)
	for i := range values {
		values[i] = float64(i + 1)
	}
	return values
}

// TestKnownIntervals compares ranks and confidences with tables of the sign test.
func TestKnownIntervals(t *testing.T) {
	for _, c := range []struct {
		n, lo, hi  int
		confidence float64
	}{
		{6, 1, 6, 0.96875},
		{9, 2, 8, 0.9609},
		{15, 4, 12, 0.9648},
		{20, 6, 15, 0.9586},
		{30, 10, 21, 0.9572},
	} {
		i, err := MedianInterval(ascending(c.n), 0.95)
		if err != nil {
			t.Fatal(err)
		}
		if i.Lo != float64(c.lo) || i.Hi != float64(c.hi) || math.Abs(i.Confidence-c.confidence) > 5e-5 {
			t.Errorf("%d values: %v, want ranks %d and %d at %.4f", c.n, i, c.lo, c.hi, c.confidence)
		}
	}
}

func TestIntervalRefuses(t *testing.T) {
	for _, c := range []struct {
		values     []float64
		confidence float64
		want       string
	}{
		{ascending(5), 0.95, "take 6"},
		{ascending(7), 0.99, "take 8"},
		{nil, 0.95, "0 values"},
		{ascending(9), 1, "between 0 and 1"},
		{[]float64{1, 2, math.NaN()}, 0.5, "value 2 of 3 is not a number"},
	} {
		if _, err := MedianInterval(c.values, c.confidence); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v at %v: %v, want %q", c.values, c.confidence, err, c.want)
		}
	}
	for n := 1; n < 40; n++ { // Fewest is the least number of values that suffices
		_, err := MedianInterval(ascending(n), 0.95)
		if (err == nil) != (n >= Fewest(0.95)) {
			t.Errorf("%d values: %v; the least is said to be %d", n, err, Fewest(0.95))
		}
	}
}

// TestRanksAreTheNarrowest compares MedianInterval's ranks with a simple count for every rank k. n values can lie below
// or above the median in 2^n ways. The test counts those ways in which the median lies between ranks k and n + 1 - k.
func TestRanksAreTheNarrowest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 14).Draw(t, "n")
		confidence := rapid.Float64Range(0.05, 0.995).Draw(t, "confidence")
		best, reached := 0, 0.0
		for k := 1; k <= (n+1)/2; k++ {
			held := 0
			for sides := range uint(1) << n {
				if below := bits.OnesCount(sides); below >= k && n-below >= k {
					held++
				}
			}
			if c := float64(held) / float64(uint(1)<<n); c >= confidence-rounding {
				best, reached = k, c
			}
		}
		i, err := MedianInterval(ascending(n), confidence)
		if best == 0 {
			if err == nil {
				t.Fatalf("%v where no ranks reach %v", i, confidence)
			}
			return
		}
		if err != nil || i.Lo != float64(best) || i.Hi != float64(n+1-best) || math.Abs(i.Confidence-reached) > 1e-9 {
			t.Fatalf("%v, %v; want ranks %d and %d at %v", i, err, best, n+1-best, reached)
		}
	})
}

// TestIntervalHoldsTheMedian uses a skewed distribution with the median 1: the interval contains the median as often as
// stated.
func TestIntervalHoldsTheMedian(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	const trials = 4000
	held, said := 0, 0.0
	for range trials {
		values := make([]float64, 15)
		for i := range values {
			values[i] = math.Exp(random.NormFloat64())
		}
		i, err := MedianInterval(values, 0.95)
		if err != nil {
			t.Fatal(err)
		}
		said = i.Confidence
		if i.Lo <= 1 && 1 <= i.Hi {
			held++
		}
	}
	if share := float64(held) / trials; math.Abs(share-said) > 0.012 { // about 4 standard errors of the share
		t.Errorf("held in %.4f of the trials, said %.4f", share, said)
	}
}

func TestIntervalHoldsItsOwnMedian(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Float64Range(0.1, 10), 6, 60).Draw(t, "values")
		before := slices.Clone(values)
		i, err := MedianInterval(values, 0.95)
		if err != nil {
			t.Fatal(err)
		}
		if m := Median(values); i.Lo > m || m > i.Hi {
			t.Errorf("the median %v lies outside %v", m, i)
		}
		if !slices.Equal(values, before) {
			t.Error("the values were moved")
		}
		slices.Reverse(values)
		if again, _ := MedianInterval(values, 0.95); again != i {
			t.Errorf("%v, in another order %v", i, again)
		}
	})
}
