package live

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"testing"
)

// A series keeps its values within bounds. All parts have the same number of rows, except that the last may be
// incomplete. Each part has the mean, the minimum and the maximum of its rows.
func TestASeriesKeepsLeastAndGreatest(t *testing.T) {
	g := rand.New(rand.NewPCG(1, 2))
	for _, rows := range []int{0, 1, 7, 8, 9, 16, 17, 1000} {
		s := newSeries(8, 2)
		values := make([][]float64, rows)
		for i := range values {
			values[i] = []float64{g.NormFloat64(), math.NaN()}
			if g.IntN(3) == 0 {
				values[i][1] = g.Float64()
			}
			s.add(i, float64(i)/10, int64(i*4), values[i])
		}
		if len(s.parts) > 8 {
			t.Fatalf("%d rows are %d parts", rows, len(s.parts))
		}
		at := 0
		for k, p := range s.parts {
			if k < len(s.parts)-1 && p.rows != s.each {
				t.Errorf("%d rows: part %d has %d of %d", rows, k, p.rows, s.each)
			}
			for c := range 2 {
				n, sum, low, top := 0, 0., math.Inf(1), math.Inf(-1)
				for _, v := range values[at : at+p.rows] {
					if !math.IsNaN(v[c]) {
						n, sum, low, top = n+1, sum+v[c], min(low, v[c]), max(top, v[c])
					}
				}
				x := p.of[c]
				if x.rows != n || n > 0 && (math.Abs(x.mean-sum/float64(n)) > 1e-12 || x.low != low || x.top != top) {
					t.Errorf("%d rows: column %d of part %d is %+v; want %d, %v, %v, %v", rows, c, k, x, n,
						sum/float64(n), low, top)
				}
			}
			if at += p.rows; p.to != at-1 || p.atS != float64(at-1)/10 || p.samples != int64(at-1)*4 {
				t.Errorf("%d rows: part %d ends with %+v", rows, k, p)
			}
		}
		if at != rows {
			t.Errorf("%d of %d rows are there", at, rows)
		}
	}
}

// A page that combines its updates has the whole series, however many updates it was sent.
func TestAPageHasTheSeries(t *testing.T) {
	type sent struct {
		Each, From         int
		Step, At, Samples  []float64
		Mean, Low, Top     [][]*float64
		each, whole, rows_ int
	}
	g := rand.New(rand.NewPCG(3, 4))
	s := newSeries(16, 1)
	var page sent
	for step := range 500 {
		s.add(step, float64(step), int64(step), []float64{g.Float64()})
		if g.IntN(4) > 0 {
			continue
		}
		from := page.whole
		if page.each != s.each {
			from = 0
		}
		var now sent
		if err := json.Unmarshal(s.appendJSON(nil, from), &now); err != nil || now.From != from {
			t.Fatalf("%v: %+v", err, now)
		}
		if now.Each > 1 && (len(now.Low) != 1 || len(now.Top) != 1) || now.Each == 1 && now.Low != nil {
			t.Fatalf("step %d: %+v", step, now)
		}
		page.Step = append(page.Step[:from], now.Step...)
		page.each, page.whole, page.rows_ = s.ends()
		if len(page.Step) != len(s.parts) {
			t.Fatalf("step %d: the page has %d parts of %d", step, len(page.Step), len(s.parts))
		}
		for i, p := range s.parts {
			if page.Step[i] != float64(p.to) {
				t.Fatalf("step %d: part %d ends with %v, want %d", step, i, page.Step[i], p.to)
			}
		}
	}
}
