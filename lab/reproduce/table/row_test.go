package table

import (
	"slices"
	"testing"
)

// Agreement is counted by hand. The paper's ratios are 2, 1 and 0.5, and ours 2.1, 1.2 and 0.9. Only 2.1 is near the
// paper's ratio. Our 2.1 and 0.9 are on the same side of 1 as the paper's 2 and 0.5; the paper's 1 has no side. All
// three pairs are in the paper's order. One of two words is the same.
func TestAgreementByHand(t *testing.T) {
	var table Table
	for i, paper := range []float64{2, 1, .5} {
		table.Number("x", paper, []float64{2.1, 1.2, .9}[i], "%.1f", "").Ratio().In("g")
	}
	table.Word("w", "15-1", "15-1", "")
	table.Word("w", "16", "15-1", "why")
	table.Number("not printed", 0, 3, "%.0f", "")
	a := table.Agreement()
	want := Agreement{Values: Count{1, 3}, Signs: Count{2, 2}, Orders: Count{3, 3}, Words: Count{1, 2}}
	if a != want {
		t.Errorf("%+v, want %+v", a, want)
	}
	if got := a.String(); got != "values 1 of 3 within 10 %, signs 2 of 2, orders 3 of 3, words 1 of 2" {
		t.Error(got)
	}
	table.Number("y", 3, 1, "%.0f", "").In("g") // 3 is the paper's largest; our 1 is larger than only one of the three
	if a := table.Agreement(); a.Orders != (Count{4, 6}) {
		t.Errorf("%+v: 3 is before 2, 1 and 0.5 in the paper; 1 is before 0.9 alone here", a.Orders)
	}
}

// Under assumption x our word becomes the paper's word, and it is counted. The value that the paper does not print is
// not counted.
func TestUnderCountsWhatIsPrinted(t *testing.T) {
	var table Table
	table.Word("w", "16", "15-1", "").Ablations = []Ablation{{Assumption: "x", Ours: "16"}}
	table.Number("not printed", 0, 3, "%.0f", "").Ablate("x", 4, "%.0f")
	under, ok := table.Under("x")
	if a := under.Agreement(); !ok || a.Words != (Count{1, 1}) {
		t.Errorf("%+v, %v; want the one word, the same", a, ok)
	}
}

type world struct {
	rate float64
	on   bool
	big  bool
}

// Of five switches, two set the same rate, two set something else, and one changes nothing. The combinations are four
// single switches, five pairs and two triples.
func TestCombine(t *testing.T) {
	all := Combine(world{}, []Switch[world]{{"half", func(w *world) { w.rate = .5 }},
		{"twice", func(w *world) { w.rate = 2 }},
		{"on", func(w *world) { w.on = true }}, {"big", func(w *world) { w.big = true }}, {"same", func(*world) {}}}, 5)
	var got []string
	for _, s := range all {
		got = append(got, s.What)
	}
	want := []string{"half", "twice", "on", "big", "half, on", "half, big", "twice, on", "twice, big", "on, big",
		"half, on, big", "twice, on, big"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if last := all[len(all)-1].Assumed; last != (world{2, true, true}) {
		t.Errorf("twice, on, big is %+v", last)
	}
}

// The three systems are in the order opposite to the paper's. Assumption "a" corrects one pair, "b" none, and both
// together correct all. Pairs in the wrong order are listed with their numbers. Larger combinations that agree no
// better are only counted.
func TestSmallestCombination(t *testing.T) {
	var table Table
	for i, v := range [][4]float64{{3, 1, 2.5, 1}, {2, 2, 2, .9}, {1, 3, 3, .8}} { // paper; ours; under a; under a and b
		r := table.Number(string(rune('x'+i)), []float64{3, 2, 1}[i], v[1], "%.1f", "").In("g")
		r.Ablate("a", v[2], "%.1f")
		r.Ablate("b", v[1], "%.1f")
		r.Ablate("a, b", v[3], "%.1f")
		r.Ablate("a, b, c", v[3], "%.1f")
	}
	for i, what := range []string{"a", "b", "a, b", "a, b, c"} {
		table.Try(what, []int{1, 1, 2, 3}[i])
	}
	table.settle()
	v := table.Verdict()
	if v.Order != (Count{0, 3}) || v.If != "a, b" || v.Then != (Count{3, 3}) || len(v.Apart) != 0 || v.Tried != 4 {
		t.Errorf("%+v", v)
	}
	if got := table.Apart(); len(got) != 3 || got[0] != "x and y: 3 and 2 in the paper, here 1 and 2" {
		t.Errorf("%q", got)
	}
	for _, r := range table.Rows {
		if len(r.Ablations) != 3 || r.Ablations[2].Assumption != "a, b" {
			t.Errorf("%s keeps %+v", r.What, r.Ablations)
		}
	}
}
