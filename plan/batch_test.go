package plan

import (
	"slices"
	"testing"
)

func TestDivisorsAreAllThatDivide(t *testing.T) {
	for batch := -2; batch <= 2000; batch++ {
		var want []int
		for m := 1; m <= batch; m++ {
			if batch%m == 0 {
				want = append(want, m)
			}
		}
		if got := Divisors(batch); !slices.Equal(got, want) {
			t.Fatalf("%d: %v, want %v", batch, got, want)
		}
		for _, n := range []int{0, 1, 7, batch / 2, batch, batch + 1} {
			least := batch
			if i := slices.IndexFunc(want, func(m int) bool { return m >= n }); i >= 0 {
				least = want[i]
			}
			if got := LeastDivisor(batch, n); got != least {
				t.Fatalf("the smallest divisor of %d from %d on is %d, not %d", batch, n, least, got)
			}
		}
	}
	if got := len(Divisors(1 << 28)); got != 29 {
		t.Errorf("2^28 has %d divisors, not 29", got)
	}
}
