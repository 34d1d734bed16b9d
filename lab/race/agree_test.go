package race

import (
	"math"
	"strings"
	"testing"
)

func TestAgreementIsJudged(t *testing.T) {
	for _, c := range []struct {
		a, b []float64
		want string
	}{
		{[]float64{2, 1}, []float64{2.001, 1}, ""},
		{[]float64{2, 1.01}, []float64{2, 1}, "step 2 has the loss 1.01 in ours and 1 in theirs"},
		{[]float64{math.NaN(), 1}, []float64{2, 1}, "step 1"},
		{[]float64{2, 1}, []float64{2, math.NaN()}, "step 2"},
		{[]float64{2, 2}, []float64{2, 2}, "it learns nothing"},
	} {
		g := Agreement{A: "ours", B: "theirs", LossA: c.a, LossB: c.b}
		err := g.judge(1e-3)
		if (c.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v and %v: %v, want %q", c.a, c.b, err, c.want)
		}
		if c.want == "" && math.Abs(g.Within-0.001/2.001) > 1e-12 {
			t.Errorf("%v and %v lie within %v", c.a, c.b, g.Within)
		}
	}
}
